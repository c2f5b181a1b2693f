"""What a pass may cost: judged by the price table before the model is asked.

A request is counted as if every three bytes were a token, which no usual text reaches. So what a pass costs
is known before, and is never more. The reply gets as many tokens as the rest of the budget pays for.

An account's passes of one day have a limit too. A pass in progress counts with all that it may cost. Passes
of other processes are counted when they have ended, so each further server may exceed the limit by the passes
that it runs at once.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from harness.billing.ledger import Ledger, UsagePurpose
from harness.billing.price import NANODOLLARS, Price
from harness.messages.model_request import ModelRequest, Usage
from workspaces.accounts.account import Accounts
from workspaces.ids import AccountId

PASS_NANODOLLARS_MAX = 30_000_000
"""0.03 dollars. A pass with the default model costs about a third of it."""

UNPRICED_TOKENS_MAX = 30_000
"""Tokens of a pass by a model without a price. For the day's limit it counts with the whole budget."""

TOKEN_BYTES = 3
OVERHEAD_TOKENS = 700
"""What providers add to a request with tools."""

OUTPUT_TOKENS_MIN = 400
"""Fewer are no reply: such a request is not sent."""

LEARNING: frozenset[UsagePurpose] = frozenset({"extraction", "sleep"})


@dataclass(frozen=True, slots=True)
class PassBudget:
    """The most that one request costs."""

    input_tokens: int
    output_tokens: int
    nanodollars: int


class OverBudget(Exception):
    """The request would cost more than a pass may. It was not sent."""


class OverDailyLimit(Exception):
    """The account has no money left for learning today. The request was not sent."""


def pass_budget(request: ModelRequest, price: Price | None, output_tokens_max: int) -> PassBudget:
    """Return the budget of a request.

    Raises: OverBudget.
    """
    text = json.dumps(request.as_json(), ensure_ascii=False)
    tokens = len(text.encode(errors="replace")) // TOKEN_BYTES + OVERHEAD_TOKENS
    if price is None:
        output = min(output_tokens_max, UNPRICED_TOKENS_MAX - tokens)
        _check(output)
        return PassBudget(tokens, output, PASS_NANODOLLARS_MAX)
    base = price.of(Usage(input=tokens))
    each = price.of(Usage(input=tokens, output=1)) - base
    output = output_tokens_max
    if each > 0:
        output = min(output, (PASS_NANODOLLARS_MAX - base) // each)
    _check(output if base <= PASS_NANODOLLARS_MAX else 0)
    return PassBudget(tokens, output, base + each * output)


def _check(output_tokens: int) -> None:
    if output_tokens < OUTPUT_TOKENS_MIN:
        raise OverBudget


class DailyLimit:
    """The dollars that accounts may spend on learning in a day. Threads may share it."""

    def __init__(self, accounts: Accounts, ledger: Ledger) -> None:
        self._accounts = accounts
        self._ledger = ledger
        self._lock = threading.Lock()
        self._held: Counter[AccountId] = Counter()
        """What the passes in progress may cost."""

    def maximum(self, account_id: AccountId) -> float:
        """Return the dollars that the account may spend in a day."""
        return self._accounts.get(account_id).config.limits.learning_dollars_per_day

    def spent(self, account_id: AccountId) -> int:
        """Return the nanodollars that count against today's limit."""
        spent = self._ledger.spent_on(account_id, self._ledger.today(), LEARNING)
        return spent.nanodollars + spent.unpriced * PASS_NANODOLLARS_MAX

    @contextmanager
    def held(self, account_id: AccountId, budget: PassBudget) -> Generator[None]:
        """Keep what a request may cost while the body runs.

        Raises: OverDailyLimit if too little is left.
        """
        maximum = round(self.maximum(account_id) * NANODOLLARS)
        with self._lock:
            taken = self.spent(account_id) + self._held[account_id] + budget.nanodollars
            if budget.nanodollars and taken > maximum:
                raise OverDailyLimit
            self._held[account_id] += budget.nanodollars
        try:
            yield
        finally:
            with self._lock:
                self._held[account_id] -= budget.nanodollars
