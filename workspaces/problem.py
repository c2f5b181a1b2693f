"""A problem of a file in a workspace: the file stays where it is, and the problem is listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workspaces.errors import ForbiddenPlace

ProblemKind = Literal[
    "bad_name",
    "not_a_file",
    "over_quota",
    "twin",
    "conflict",
    "unreadable",
    "history",
    "clock",
    "fact",
    "edited",
    "forbidden",
]


LISTED_ONLY: frozenset[ProblemKind] = frozenset({"conflict", "history", "clock", "fact", "edited"})
"""Kinds that name something for a person to look at, while the file itself is kept."""


@dataclass(frozen=True, slots=True)
class Problem:
    path: str
    """The path as it is on the disk: not necessarily a valid one."""
    kind: ProblemKind
    detail: str
    places: tuple[ForbiddenPlace, ...] = ()
    """The forbidden texts of a file that is held back because of them."""
