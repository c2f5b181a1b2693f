"""What is wrong with a file in a workspace: it stays where it is, and is listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ProblemKind = Literal[
    "bad_name", "not_a_file", "over_quota", "twin", "conflict", "unreadable", "history", "clock"
]


@dataclass(frozen=True, slots=True)
class Problem:
    path: str
    """As found on the disk: not necessarily a valid path."""
    kind: ProblemKind
    detail: str
