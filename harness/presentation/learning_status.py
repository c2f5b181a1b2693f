"""What the status of a home says of learning in the background: that it is on, and today's work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from harness.billing.price import NANODOLLARS
from harness.learning.learning_jobs import LEARN

if TYPE_CHECKING:
    from harness.harness import Harness

LearningLine = tuple[Literal["ok", "pending", "problem"], str, str | None, Mapping[str, Any]]

TURN_OFF = """`harness agent set NAME --config '{"extract": {"enabled": false}}'` turns it off"""

_COUNTS = {
    "passes": ("read once", "read {} times"),
    "facts": ("1 fact stored", "{} facts stored"),
    "blocks": ("1 block changed", "{} blocks changed"),
    "secrets": ("1 secret left out", "{} secrets left out"),
}
_PROBLEMS = {
    "over_limit": "not read: the day's limit was reached",
    "over_budget": "not read: one pass would have cost too much",
    "failed": "without a usable reply",
    "gave_up": "given up: a memory block changed during every request",
    "interrupted": "interrupted; the text is read with what is said next",
}


def learning_lines(harness: Harness) -> Iterator[LearningLine]:
    """Yield state, text, remedy and facts of each row."""
    records, limit = harness.rooms.learning_services.records, harness.house.learning_limit
    account_id = harness.rooms.principal.account_id
    maximum = limit.maximum(account_id)
    if not records.is_told() and maximum > 0:
        text = (
            "conversations are read in the background, to store facts that will be useful again; "
            f"at most {maximum:.2f} dollars a day"
        )
        remedy = f"{TURN_OFF}; the account's limits.learningDollarsPerDay is the limit"
        yield "pending", text, remedy, {"notice": True, "dollarsPerDay": maximum}
    counts = records.today()
    done = [_counted(name, counts[name]) for name in _COUNTS if counts.get(name)]
    if done:
        spent = limit.spent(account_id) / NANODOLLARS
        text = f"today: {', '.join(done)} · {spent:.4f} of {maximum:.2f} dollars"
        facts = {"counts": dict(counts), "dollars": spent, "dollarsPerDay": maximum}
        yield "ok", text, "`harness usage --by purpose` shows the cost", facts
    for name, told in _PROBLEMS.items():
        if counts.get(name):
            state = "problem" if name in ("failed", "over_budget") else "pending"
            yield state, f"today: {counts[name]} {told}", None, {name: counts[name]}
    now = harness.house.clock.now()
    waiting = [one for one in harness.jobs.list() if one.job.kind == LEARN and one.job.due <= now]
    idle = sum(one.process is None and not one.is_aside for one in waiting)
    if idle:
        noun = "conversation waits" if idle == 1 else "conversations wait"
        remedy = "`harness up` reads them, or `harness jobs run`"
        yield "ok", f"{idle} {noun} to be read", remedy, {"waiting": idle}


def _counted(name: str, number: int) -> str:
    one, many = _COUNTS[name]
    return one if number == 1 else many.format(f"{number:,}")
