"""The union of two texts that are lists of statements, such as two MEMORY.md, in which no statement appears
twice.

The first text stays as it is. The new statements of the second are added at the end, under their own
headings. A heading whose statements were all known already is left out. A block of code is one statement.
"""

from __future__ import annotations

import re

HEADING_LEVEL_MAX = 6

_HEADING = re.compile(r"(#{1,6})\s")
_FENCE = re.compile(r"\s*(```|~~~)")


def union(first: str, second: str) -> str:
    """Return the union of two texts."""
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
    """Return the text with its headings that many levels further down, to stand under another heading."""
    return "\n".join(
        "#" * min(levels, HEADING_LEVEL_MAX - level) + statement
        if (level := _level(statement))
        else statement
        for statement in _statements(text)
    )


def _statements(text: str) -> list[str]:
    """Return the statements: lines, or a code block between fences as one statement."""
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
    """Join statements without empty headings, from the end to the beginning: a heading stays if text below
    it stayed."""
    kept: list[str] = []
    filled = 0
    """The level of the headings that the last kept statement belongs to; 0 if there is none below."""
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
    """Return the level of a heading; 0 for any other statement."""
    mark = _HEADING.match(statement)
    return len(mark[1]) if mark else 0
