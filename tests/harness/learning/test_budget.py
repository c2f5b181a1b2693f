"""What a pass may cost: judged before the request, and kept within the account's limit of the day."""

from __future__ import annotations

import pytest

from harness import Harness
from harness.billing.ledger import UsageOwner
from harness.billing.price import own_prices
from harness.learning.budget import (
    PASS_NANODOLLARS_MAX,
    UNPRICED_TOKENS_MAX,
    OverBudget,
    OverDailyLimit,
    PassBudget,
    pass_budget,
)
from harness.learning.new_text import CHARACTERS_MAX
from harness.learning.question import BLOCKS_OUTPUT_TOKENS_MAX, OUTPUT_TOKENS_MAX, question
from harness.messages.model_request import Usage
from harness.runtime.settings import DEFAULT_SMALL_MODEL
from workspaces.ids import AgentId, UserId

HAIKU = own_prices().find(DEFAULT_SMALL_MODEL)
CENT = 10_000_000


@pytest.mark.parametrize("character", ["x", "é", "数", "🎈"])
def test_the_longest_text_fits_the_budget_with_the_default_model(character: str) -> None:
    asked = question(character * CHARACTERS_MAX, [], None)
    budget = pass_budget(asked, HAIKU, OUTPUT_TOKENS_MAX)
    assert budget.nanodollars <= PASS_NANODOLLARS_MAX
    assert budget.output_tokens >= 1_000


def test_the_reply_gets_what_the_rest_of_the_budget_pays_for() -> None:
    asked = question("x" * CHARACTERS_MAX, [], {("user", "core"): None})
    budget = pass_budget(asked, HAIKU, BLOCKS_OUTPUT_TOKENS_MAX)
    assert HAIKU is not None
    used = Usage(input=budget.input_tokens, output=budget.output_tokens)
    assert HAIKU.of(used) == budget.nanodollars
    assert PASS_NANODOLLARS_MAX - budget.nanodollars < HAIKU.of(Usage(output=1))


def test_a_model_that_costs_too_much_is_not_asked() -> None:
    dear = own_prices().find("claude-fable-5-1")
    with pytest.raises(OverBudget):
        pass_budget(question("x" * CHARACTERS_MAX, [], None), dear, OUTPUT_TOKENS_MAX)


def test_a_model_without_a_price_gets_at_most_30_000_tokens() -> None:
    budget = pass_budget(question("x" * 300, [], None), None, OUTPUT_TOKENS_MAX)
    assert budget.input_tokens + budget.output_tokens <= UNPRICED_TOKENS_MAX
    assert budget.nanodollars == PASS_NANODOLLARS_MAX
    with pytest.raises(OverBudget):
        pass_budget(question("x" * 3 * UNPRICED_TOKENS_MAX, [], None), None, OUTPUT_TOKENS_MAX)


def test_passes_in_progress_count_against_the_limit_of_the_day(harness: Harness) -> None:
    limit, account = harness.house.learning_limit, harness.rooms.principal.account_id
    harness.house.accounts.patch(account, {"config": {"limits": {"learningDollarsPerDay": 0.05}}})
    two_cents = PassBudget(1, 1, 2 * CENT)
    with limit.held(account, two_cents), limit.held(account, two_cents):
        with pytest.raises(OverDailyLimit), limit.held(account, two_cents):
            pass
        with limit.held(account, PassBudget(1, 1, CENT)):
            pass
    owner = UsageOwner(account, AgentId("a"), UserId("u"), None, "extraction")
    harness.house.ledger.note(owner, DEFAULT_SMALL_MODEL, Usage(input=40_000))
    with pytest.raises(OverDailyLimit), limit.held(account, two_cents):
        pass
    with limit.held(account, PassBudget(1, 1, CENT)), limit.held(account, PassBudget(1, 1, 0)):
        pass


def test_other_purposes_do_not_count_and_requests_without_a_price_do(harness: Harness) -> None:
    limit, account = harness.house.learning_limit, harness.rooms.principal.account_id
    spender = AgentId("a"), UserId("u"), None
    note = harness.house.ledger.note
    note(UsageOwner(account, *spender, "turn"), DEFAULT_SMALL_MODEL, Usage(input=10_000_000))
    assert limit.spent(account) == 0
    note(UsageOwner(account, *spender, "sleep"), "of-nobody", Usage(input=1))
    assert limit.spent(account) == PASS_NANODOLLARS_MAX
