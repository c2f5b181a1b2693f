"""Stamps: when a revision was made, in UTC to the microsecond, always later than its parents'.

A clock may stand still or go back; a stamp does not. Two stamps of one line of history therefore
sort as the revisions do, as times and as strings alike.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NewType

Stamp = NewType("Stamp", str)

YEAR_MAX = 8999
"""So that there is always a later one."""

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
    earliest = [moment_of(parent) + timedelta(microseconds=1) for parent in parents]
    return stamp_of(max([now, *earliest]))
