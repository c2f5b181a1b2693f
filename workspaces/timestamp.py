"""Stamps: when a revision was made, in UTC to the microsecond.

A clock may stand still or go back a little; a stamp does not, and is later than its parents'. But a parent
may be stamped further ahead of this clock than clocks differ (`AHEAD_MAX`). Then one of two clocks is
wrong, nobody can say which, and the stamp is this clock's: a wrong clock spoils its own revisions alone.
What came before what is therefore a matter of ancestry (`Commit.place`), never of stamps alone.

Whoever counts time from a stamp takes it for no later than a day after it was met here (`at_most`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NewType

Stamp = NewType("Stamp", str)

YEAR_MAX = 8999
"""So that there is always a later one."""

AHEAD_MAX = timedelta(hours=24)
"""Clocks that somebody looks after differ by seconds; a wrong time zone is half a day."""

_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"
_SHAPE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


def stamp_of(moment: datetime) -> Stamp:
    return Stamp(moment.astimezone(UTC).strftime(_FORMAT))


def moment_of(stamp: Stamp) -> datetime:
    return datetime.fromisoformat(stamp).replace(tzinfo=UTC)  # strptime takes fifty times as long


def is_stamp(text: str) -> bool:
    """Whether what a stranger wrote for one can be reckoned with."""
    if not _SHAPE.fullmatch(text):
        return False
    try:
        return 1970 <= datetime.fromisoformat(text).year <= YEAR_MAX
    except ValueError:
        return False


def next_stamp(now: datetime, *parents: Stamp) -> Stamp:
    """Return this clock's stamp, or the first one after the parents' that this clock can believe."""
    latest = now + AHEAD_MAX
    before = [moment for parent in parents if (moment := moment_of(parent)) <= latest]
    return stamp_of(max([now, *(moment + timedelta(microseconds=1) for moment in before)]))


def at_most(stamp: Stamp, met: datetime) -> Stamp:
    """Return the smaller of a stamp and the latest that was believable when its revision was met."""
    return min(stamp, stamp_of(met + AHEAD_MAX))
