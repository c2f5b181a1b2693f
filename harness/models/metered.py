"""A wrapper of the model port that checks limits and records usage.

Before each request the account must have money left. Afterwards the usage is recorded, whatever the outcome:
an answer, a failure, or a cancellation in the middle. The wrapper stands next to the provider's model, inside
any retries, so that each try is checked and recorded on its own.

The caller that stores a reply can record its usage in the same batch. Then every stored reply has its usage
recorded, even after a crash, and no separate batch is needed. The usage of failures and cancellations is
recorded here.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from harness.billing.ledger import Ledger, UsageOwner
from harness.billing.limits import AccountLimiter
from harness.messages.model_request import NO_USAGE, ModelFailure, ModelRequest, Reply, Usage
from harness.messages.progress import Counted, Emit, Progress
from harness.runtime.async_bridge import run_in_thread
from workspaces.errors import Exhausted, Failure, Refused

if TYPE_CHECKING:
    from harness.models.port import Model


class MeteredModel:
    def __init__(
        self,
        model: Model,
        owner: UsageOwner,
        ledger: Ledger,
        limiter: AccountLimiter,
        *,
        caller_records_replies: bool = False,
    ) -> None:
        """Create the wrapper. `caller_records_replies`: the caller records the usage of the replies that it
        stores."""
        self._caller_records_replies = caller_records_replies
        self._model = model
        self._owner = owner
        self._ledger = ledger
        self._limiter = limiter

    @property
    def name(self) -> str:
        return self._model.name

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        account_id = self._owner.account_id
        if not self._limiter.is_unlimited(account_id):
            try:
                await run_in_thread(self._limiter.check_money, account_id, self.name)
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
        except BaseException:  # usually a cancellation: the usage so far is billed
            with suppress(Failure):  # report the cancellation, not this failure
                await self._note(so_far)
            raise
        if self._caller_records_replies and isinstance(result, Reply) and result.usage != NO_USAGE:
            note = partial(self._ledger.note_with, self._owner, self.name, result.usage)
            return replace(result, note=note)
        await self._note(result.usage)
        return result

    async def _note(self, usage: Usage) -> None:
        if usage != NO_USAGE:
            await run_in_thread(self._ledger.note, self._owner, self.name, usage)
