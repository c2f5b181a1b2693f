"""A model whose every question is paid for by somebody: a wrapper of the port.

Before each question the account must have money left, and after it what was used up is noted, whatever
came of it: an answer, a failure, a cancellation in the middle. Stands next to the provider's model, behind
whatever repeats questions, so that every repetition is asked for and noted on its own.

Whoever stores what is answered can be left to note it, in the same batch: then a reply that is stored was
noted, whoever dies, and nobody waits for a batch of its own. What is no reply is noted here.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

from harness.billing.ledger import Ledger, UsageOwner
from harness.billing.limits import AccountLimiter
from harness.messages.model_request import NO_USAGE, ModelFailure, ModelRequest, Reply, Usage
from harness.messages.progress import Counted, Emit, Progress
from harness.models.port import Foreseeing, Model, foresee
from harness.runtime.async_bridge import run_in_thread
from workspaces.errors import Exhausted, Failure, Refused


class MeteredModel(Foreseeing):
    def __init__(
        self,
        model: Model,
        spender: UsageOwner,
        ledger: Ledger,
        allowance: AccountLimiter,
        *,
        leaves_replies: bool = False,
    ) -> None:
        """`leaves_replies`: to be noted by whoever stores them."""
        self._leaves_replies = leaves_replies
        self._model = model
        self._spender = spender
        self._ledger = ledger
        self._allowance = allowance

    @property
    def name(self) -> str:
        return self._model.name

    def foresee(self, request: ModelRequest, *, output_tokens_max: int) -> None:
        """Only where money will hardly come between."""
        if self._allowance.was_unlimited(self._spender.account_id):
            foresee(self._model, request, output_tokens_max=output_tokens_max)

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        account_id = self._spender.account_id
        if not self._allowance.is_unlimited(account_id):
            try:
                await run_in_thread(self._allowance.check_money, account_id, self.name)
            except (Exhausted, Refused) as error:
                return ModelFailure("budget", str(error), error.remedy or "")
        so_far = NO_USAGE

        def count(progress: Progress) -> None:
            nonlocal so_far
            if isinstance(progress, Counted):
                so_far = progress.usage
            emit(progress)

        try:
            result = await self._model.reply(
                request, output_tokens_max=output_tokens_max, emit=count
            )
        except BaseException:  # cancelled, as a rule: what was used up until then is paid for
            with suppress(Failure):  # the cancellation is what is told
                await self._note(so_far)
            raise
        if self._leaves_replies and isinstance(result, Reply) and result.usage != NO_USAGE:
            note = partial(self._ledger.note_with, self._spender, self.name, result.usage)
            return replace(result, note=note)
        await self._note(result.usage)
        return result

    async def _note(self, usage: Usage) -> None:
        if usage != NO_USAGE:
            await run_in_thread(self._ledger.note, self._spender, self.name, usage)
