"""The parts of the prompt that hold memory: of each mount its MEMORY.md and an index of its notes.

A part is a function of the revision it was read from, the view and the budget, and of nothing else: the
same files give the same bytes. So the index stands in the order of the paths; age only decides what of
it is shown when there is too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from harness.context.budget import Cut, cut, shares
from harness.context.fence import attribute, fenced, one_line
from harness.context.part import PromptPart, Render, memory_of
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId

MEMORY = WorkspacePath("MEMORY.md")
NOTES = "notes"

NOTES_MAX = 40
"""In the index of a mount: what is older is found by looking into the directory."""

NOTE_LINE_CHARACTERS_MAX = 200

NOTES_SHARE = 0.25
"""Of a mount's share, when it is too small for everything: the index gives way to MEMORY.md."""

MEMORIES_SIZED = 64
"""Kept as they were fenced, each as long as it is: every prompt asks for it twice."""


@dataclass(frozen=True, slots=True)
class Note:
    path: str
    heading: str | None


@dataclass(frozen=True, slots=True)
class Memory:
    """What one mount remembers, as it was found."""

    mount: str
    text: str | None
    """Of MEMORY.md. None: it could not be read."""
    revision: RevisionId | None = None
    """What it was read from; of a workspace that is read in S3 the version of MEMORY.md."""
    ages: tuple[str, ...] = ()
    """For each line when it was written; needed only for what does not fit."""
    notes: tuple[Note, ...] = ()
    """The newest first, as far as their age matters."""
    notes_count: int = 0
    characters_max: int | None = None
    """The workspace's own limit."""
    unavailable: str | None = None
    """Why it could not be read."""

    def __hash__(self) -> int:
        """Every prompt looks for what was made of it: not all of its notes need be gone through for that."""
        return hash((self.mount, self.revision))


@dataclass(frozen=True, slots=True)
class _Sized:
    """A mount's memory, fenced."""

    memory: Memory
    text: str
    index: tuple[str, ...]
    """A line each, the newest first."""
    length: int
    wanted: int
    """As far as the workspace's own limit goes."""


def memory_parts(
    memories: Sequence[Memory], characters_max: int, render: Render
) -> list[PromptPart]:
    """One part for each mount, within one budget."""
    sized = [_sized(memory) for memory in memories]
    given = shares([one.wanted for one in sized], characters_max)
    return [_part(one, share, render) for one, share in zip(sized, given, strict=True)]


def needs_ages(memories: Sequence[Memory], characters_max: int) -> bool:
    """Whether it matters when the lines were written."""
    sized = [_sized(memory) for memory in memories]
    wanted = [one.wanted for one in sized]
    return sum(wanted) > characters_max or wanted != [one.length for one in sized]


@lru_cache(maxsize=MEMORIES_SIZED)
def _sized(memory: Memory) -> _Sized:
    text = fenced(memory.text or "")
    index = tuple(_note_line(note) for note in memory.notes[:NOTES_MAX])
    length = len(text) + sum(len(line) + 1 for line in index)
    return _Sized(memory, text, index, length, min(length, memory.characters_max or length))


def _part(sized: _Sized, share: int, render: Render) -> PromptPart:
    memory = sized.memory
    name = attribute(memory.mount)
    if memory.unavailable is not None:
        reason = one_line(memory.unavailable)
        text = render("prompt/memory-unavailable.md", workspace=name, reason=reason)
        return PromptPart(memory_of(name), False, text, unavailable=reason)
    index = _index(sized, share)
    shown = cut(sized.text, share - sum(len(line) + 1 for line in index), memory.ages)
    text = render(
        "prompt/memory-file.md",
        workspace=name,
        text=shown.text.strip("\n"),
        is_empty=not sized.text.strip(),
        left_out=None if shown.is_whole else _left_out(shown),
        notes=sorted(index),
        notes_count=memory.notes_count,
    )
    return PromptPart(
        memory_of(name),
        False,
        text,
        memory.revision,
        shown.entries_left_out + memory.notes_count - len(index),
        shown.lines_left_out + memory.notes_count - len(index),
    )


def _index(sized: _Sized, share: int) -> list[str]:
    """All of it when everything fits, else the newest lines in their part of the share."""
    if sized.length <= share:
        return list(sized.index)
    room = max(share - len(sized.text), int(share * NOTES_SHARE))
    kept: list[str] = []
    for line in sized.index:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept


def _note_line(note: Note) -> str:
    heading = f" — {one_line(note.heading)}" if note.heading else ""
    line = f"- `{one_line(note.path)}`{heading}"
    if len(line) <= NOTE_LINE_CHARACTERS_MAX:
        return line
    return line[: NOTE_LINE_CHARACTERS_MAX - 1] + "…"


def _left_out(shown: Cut) -> str:
    told: list[str] = []
    if shown.entries_left_out:
        told.append(f"{_count(shown.entries_left_out, 'older entry', 'older entries')} left out")
    if shown.shortened:
        told.append(f"{_count(shown.shortened, 'entry', 'entries')} shown by the beginning")
    return " and ".join(told)


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
