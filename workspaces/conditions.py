"""The precondition of a write: a tag of the current state, ABSENT or ANY."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar


class Wildcard(Enum):
    ABSENT = "absent"
    """Nothing may exist under this name."""
    ANY = "any"
    """Any state is accepted; the caller is responsible for the state that it overwrites."""


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
