"""Two texts that are lists of statements, such as two MEMORY.md, as one: nothing is said twice.

What the first says stays as it is. Of the second, what is new is added at the end, under its own headings;
a heading whose every statement was known already is left out, and a block of code is one statement.
"""

from __future__ import annotations

import re

HEADING_LEVEL_MAX = 6

_HEADING = re.compile(r"(#{1,6})\s")
_FENCE = re.compile(r"\s*(```|~~~)")


def union(first: str, second: str) -> str:
    known = {statement.strip() for statement in _statements(first)}
    added = _without_empty_headings(
        [
            statement
            for statement in _statements(second)
            if _level(statement) > 1 or not statement.strip() or statement.strip() not in known
        ]
    )
    if not added:
        return first
    begun = first.rstrip()
    return f"{begun}\n\n{added}\n" if begun else f"{added}\n"


def lowered(text: str, levels: int) -> str:
    """With its headings so many levels further down, for a place under a heading of somebody else's."""
    return "\n".join(
        "#" * min(levels, HEADING_LEVEL_MAX - level) + statement
        if (level := _level(statement))
        else statement
        for statement in _statements(text)
    )


def _statements(text: str) -> list[str]:
    """Lines; what stands between fences is one with them."""
    found: list[list[str]] = []
    fence: str | None = None
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence is not None:
            found[-1].append(line)
            fence = None if mark and mark[1] == fence else fence
            continue
        found.append([line])
        fence = mark[1] if mark else None
    return ["\n".join(lines) for lines in found]


def _without_empty_headings(statements: list[str]) -> str:
    """From the end to the beginning: a heading is kept when something below it was."""
    kept: list[str] = []
    filled = 0
    """The level of the headings that what was just kept belongs to; 0: there is nothing below."""
    for statement in reversed(statements):
        level = _level(statement)
        if level:
            if not filled or level > filled:
                continue
            filled = level - 1
        elif statement.strip():
            filled = 7
        kept.append(statement)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(reversed(kept))).strip("\n")


def _level(statement: str) -> int:
    """Of a heading; 0 for anything else."""
    mark = _HEADING.match(statement)
    return len(mark[1]) if mark else 0
