"""Stamps: the time of a revision, in UTC to the microsecond.

A clock may stand still or go back a little. A stamp does not: it is later than the stamps of its parents.
But a parent may be stamped further ahead of this clock than clocks differ (`AHEAD_MAX`). Then one of the
two clocks is wrong, and neither machine can tell which. The stamp is then this clock's time, so a wrong
clock spoils only its own revisions. The order of revisions therefore comes from ancestry (`Commit.place`),
never from stamps alone.

Code that counts time from a stamp takes it as at most a day after this machine first saw it (`at_most`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NewType

Stamp = NewType("Stamp", str)

YEAR_MAX = 8999
"""The last year of a stamp, so that a later stamp always exists."""

AHEAD_MAX = timedelta(hours=24)
"""The largest believable difference of two clocks.

Maintained clocks differ by seconds; a wrong time zone is half a day.
"""

_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"
_SHAPE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


def stamp_of(moment: datetime) -> Stamp:
    return Stamp(moment.astimezone(UTC).strftime(_FORMAT))


def moment_of(stamp: Stamp) -> datetime:
    return datetime.fromisoformat(stamp).replace(tzinfo=UTC)  # strptime takes fifty times as long


def is_stamp(text: str) -> bool:
    """Return True if text from another writer is a stamp that can be used in calculations."""
    if not _SHAPE.fullmatch(text):
        return False
    try:
        return 1970 <= datetime.fromisoformat(text).year <= YEAR_MAX
    except ValueError:
        return False


def next_stamp(now: datetime, *parents: Stamp) -> Stamp:
    """Return this clock's stamp, or the first stamp after those parents that this clock can believe."""
    latest = now + AHEAD_MAX
    believable = [moment for parent in parents if (moment := moment_of(parent)) <= latest]
    return stamp_of(max([now, *(moment + timedelta(microseconds=1) for moment in believable)]))


def at_most(stamp: Stamp, first_seen: datetime) -> Stamp:
    """Return the stamp, limited to the latest believable one when this machine first saw the revision."""
    return min(stamp, stamp_of(first_seen + AHEAD_MAX))
