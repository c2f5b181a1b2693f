"""What a writer says it had seen: a tag of the current state, nothing at all, or anything."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar


class Wildcard(Enum):
    ABSENT = "absent"
    """There must be nothing."""
    ANY = "any"
    """Whatever is there; the caller takes the blame."""


ABSENT = Wildcard.ABSENT
ANY = Wildcard.ANY

T = TypeVar("T")


def is_met(expect: T | Wildcard, current: T | None) -> bool:
    match expect:
        case Wildcard.ANY:
            return True
        case Wildcard.ABSENT:
            return current is None
        case tag:
            return tag == current
