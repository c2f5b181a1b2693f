"""Stamps of revisions, and how far ahead of the clock a stamp is accepted."""

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
def test_a_stamp_is_later_than_its_parents_unless_a_parent_is_over_a_day_ahead(
    parents: list[timedelta], expected: timedelta
) -> None:
    assert next_stamp(NOW, *map(stamp, parents)) == stamp(expected)


def test_a_stamp_counts_as_at_most_a_day_ahead_of_the_clock() -> None:
    assert at_most(stamp(timedelta(days=-3)), NOW) == stamp(timedelta(days=-3))
    assert at_most(stamp(AHEAD_MAX), NOW) == stamp(AHEAD_MAX)
    assert at_most(stamp(timedelta(days=400)), NOW) == stamp(AHEAD_MAX)
