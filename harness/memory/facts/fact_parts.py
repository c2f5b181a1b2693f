"""Builds the prompt parts that hold facts: one line for each, in the order of the list.

The facts of an agent, and those of its user with it, are one part, as many as the budget holds. Of each
workspace at most thirty are shown. Whole facts are left out, and the part says how many.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.context.budget import shares
from harness.context.fence import attribute, fenced, one_line
from harness.context.part import PromptPart, Render, facts_of
from workspaces.revision import RevisionId

ROWS_MAX = 30
"""Facts of one workspace in a prompt. A model finds more by reading `facts/` or with recall."""

FACTS_SHARE = 0.25
"""The part of the budget that facts get at least, if they need it."""

AGENT = "_agent"
"""The name of the part with the facts of the agent."""

_BACKTICKS = re.compile(r"`{3,}|~{3,}")


@dataclass(frozen=True, slots=True)
class FactRow:
    """A fact as a prompt shows it."""

    id: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class FactMemory:
    """The facts of one workspace, or of an agent, as they were read."""

    mount: str
    """The name of the mount, or AGENT."""
    rows: tuple[FactRow, ...] = ()
    """The first facts in the order of the list."""
    count: int = 0
    """The number of all facts."""
    revision: RevisionId | None = None
    unread: int = 0
    """Files that were not read, because the workspace is read in S3 and has many."""
    unavailable: str | None = None
    """The reason why they could not be read."""

    def __hash__(self) -> int:
        """Return a hash of mount and revision. Every prompt looks up the cached parts by it."""
        return hash((self.mount, self.revision))

    @property
    def is_agents(self) -> bool:
        return self.mount == AGENT


@dataclass(frozen=True, slots=True)
class _Lines:
    """The facts of one part as lines."""

    memory: FactMemory
    lines: tuple[str, ...]

    @property
    def length(self) -> int:
        return sum(len(line) + 1 for line in self.lines)


def fact_parts(
    memories: Sequence[FactMemory],
    others: int,
    characters_max: int,
    render: Render,
    *,
    is_named: bool,
) -> tuple[tuple[PromptPart, ...], int]:
    """Return one part for each, and the room that is left for the other memory, which needs `others`
    characters. `is_named`: the heading names the workspace, because there are several."""
    shown = [_lines(memory) for memory in memories]
    needed = [one.length for one in shown]
    share = _share(sum(needed), others, characters_max)
    parts = tuple(
        _part(one, granted, render, is_named=is_named)
        for one, granted in zip(shown, shares(needed, share), strict=True)
    )
    return parts, characters_max - share


def _share(needed: int, others: int, characters_max: int) -> int:
    """Return the characters for facts: what one kind of memory does not need the other gets."""
    if needed + others <= characters_max:
        return needed
    return min(needed, max(int(characters_max * FACTS_SHARE), characters_max - others))


def _lines(memory: FactMemory) -> _Lines:
    rows = memory.rows if memory.is_agents else memory.rows[:ROWS_MAX]
    return _Lines(replace(memory, rows=rows), tuple(_line(row) for row in rows))


def _line(row: FactRow) -> str:
    key = one_line(row.key).replace("*", "\\*")
    value = " ".join(fenced(row.value).split())
    return f"- **{key}**: {_BACKTICKS.sub(_single, value)}"


def _single(match: re.Match[str]) -> str:
    """Return one mark instead of a fence of code."""
    return match[0][0]


def _part(lines: _Lines, share: int, render: Render, *, is_named: bool) -> PromptPart:
    memory = lines.memory
    name, source = attribute(memory.mount), facts_of(memory.mount)
    is_private = memory.mount.startswith("_")
    heading = "Agent Memory" if memory.is_agents else "Workspace Memory"
    if not memory.is_agents and (is_named or is_private):
        heading += f" ({name})"
    fitting = _fitting(lines.lines, share)
    left_out = memory.count - fitting
    reason = None if memory.unavailable is None else one_line(memory.unavailable)
    text = render(
        "prompt/facts.md",
        heading=heading,
        workspace=name,
        lines=lines.lines[:fitting],
        left_out=left_out,
        unread=memory.unread,
        unavailable=reason,
    )
    return PromptPart(
        source,
        False,
        text,
        memory.revision,
        entries_left_out=left_out + memory.unread,
        lines_left_out=left_out + memory.unread,
        unavailable=reason,
        rows=tuple(row.id for row in memory.rows[:fitting]),
    )


def _fitting(lines: Sequence[str], room: int) -> int:
    """Return the number of the first lines that fit."""
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return number
    return len(lines)
