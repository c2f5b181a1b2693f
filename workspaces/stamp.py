"""Stamps: when a revision was made, in UTC to the microsecond, always later than its parents'.

A clock may stand still or go back; a stamp does not. Two stamps of one line of history therefore
sort as the revisions do, as times and as strings alike.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NewType

Stamp = NewType("Stamp", str)

_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


def stamp_of(moment: datetime) -> Stamp:
    return Stamp(moment.astimezone(UTC).strftime(_FORMAT))


def moment_of(stamp: Stamp) -> datetime:
    return datetime.fromisoformat(stamp).replace(tzinfo=UTC)  # strptime takes fifty times as long


def next_stamp(now: datetime, *parents: Stamp) -> Stamp:
    earliest = [moment_of(parent) + timedelta(microseconds=1) for parent in parents]
    return stamp_of(max([now, *earliest]))
