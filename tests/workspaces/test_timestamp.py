"""What a revision is stamped, and what a stamp is taken for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from workspaces.timestamp import AHEAD_MAX, Stamp, at_most, next_stamp, stamp_of

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SOON = timedelta(microseconds=1)


def stamp(ahead: timedelta) -> Stamp:
    return stamp_of(NOW + ahead)


@pytest.mark.parametrize(
    ("parents", "expected"),
    [
        ([], timedelta()),
        ([-SOON], timedelta()),
        ([timedelta()], SOON),
        ([AHEAD_MAX], AHEAD_MAX + SOON),
        ([AHEAD_MAX + SOON], timedelta()),
        ([timedelta(days=400)], timedelta()),
        ([timedelta(days=400), timedelta(hours=1)], timedelta(hours=1) + SOON),
        ([timedelta(days=-400)], timedelta()),
    ],
)
def test_a_parent_that_this_clock_can_believe_bounds_a_stamp_and_no_other(
    parents: list[timedelta], expected: timedelta
) -> None:
    assert next_stamp(NOW, *map(stamp, parents)) == stamp(expected)


def test_a_stamp_is_taken_for_no_later_than_a_day_after_it_was_met() -> None:
    assert at_most(stamp(timedelta(days=-3)), NOW) == stamp(timedelta(days=-3))
    assert at_most(stamp(AHEAD_MAX), NOW) == stamp(AHEAD_MAX)
    assert at_most(stamp(timedelta(days=400)), NOW) == stamp(AHEAD_MAX)
