"""Builds the prompt parts that hold memory: MEMORY.md and an index of the notes of each mount.

A part depends only on the revision it was read from, the view and the budget: the same files give the same
bytes. Therefore the index is ordered by path. Age only decides which lines are shown when there are too many.
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
"""Notes in the index of a mount. The model finds older ones by listing the directory."""

NOTE_LINE_CHARACTERS_MAX = 200

NOTES_SHARE = 0.25
"""The index's part of a mount's share when not everything fits: the index yields to MEMORY.md."""

MEMORIES_SIZED = 64
"""Fenced memories that are cached, whatever their length: every prompt needs each of them twice."""


@dataclass(frozen=True, slots=True)
class Note:
    path: str
    heading: str | None


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one mount, as it was read."""

    mount: str
    text: str | None
    """The text of MEMORY.md; None if it could not be read."""
    revision: RevisionId | None = None
    """The revision it was read from. For a workspace read directly from S3: the version of MEMORY.md."""
    ages: tuple[str, ...] = ()
    """The time when each line was written; needed only if not everything fits."""
    notes: tuple[Note, ...] = ()
    """The notes, newest first as far as their age matters."""
    notes_count: int = 0
    characters_max: int | None = None
    """The workspace's own limit, in characters."""
    unavailable: str | None = None
    """The reason why it could not be read."""

    def __hash__(self) -> int:
        """Return a hash of mount and revision. Every prompt looks up the cached parts by it, so it must not
        read all notes."""
        return hash((self.mount, self.revision))


@dataclass(frozen=True, slots=True)
class _Sized:
    """The memory of one mount after fencing, with its size."""

    memory: Memory
    text: str
    index: tuple[str, ...]
    """One line for each note, newest first."""
    length: int
    wanted: int
    """The length, but at most the workspace's own limit."""


def memory_parts(
    memories: Sequence[Memory], characters_max: int, render: Render
) -> list[PromptPart]:
    """Return one part for each mount, all within one budget."""
    sized = [_sized(memory) for memory in memories]
    granted = shares([one.wanted for one in sized], characters_max)
    return [_part(one, share, render) for one, share in zip(sized, granted, strict=True)]


def memory_length(memories: Sequence[Memory]) -> int:
    """Return the characters that all of these memories need."""
    return sum(_sized(memory).wanted for memory in memories)


def needs_ages(memories: Sequence[Memory], characters_max: int) -> bool:
    """Return True if the age of lines matters, because not all of them fit."""
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
    notes_left_out = memory.notes_count - len(index)
    return PromptPart(
        memory_of(name),
        False,
        text,
        memory.revision,
        entries_left_out=shown.entries_left_out + notes_left_out,
        lines_left_out=shown.lines_left_out + notes_left_out,
        notes_left_out=notes_left_out,
    )


def _index(sized: _Sized, share: int) -> list[str]:
    """Return the whole index if everything fits, else the newest lines within the index's part of the
    share."""
    if sized.length <= share:
        return list(sized.index)
    room = max(share - len(sized.text), int(share * NOTES_SHARE))
    lines: list[str] = []
    for line in sized.index:
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    return lines


def _note_line(note: Note) -> str:
    heading = f" — {one_line(note.heading)}" if note.heading else ""
    line = f"- `{one_line(note.path)}`{heading}"
    if len(line) <= NOTE_LINE_CHARACTERS_MAX:
        return line
    return line[: NOTE_LINE_CHARACTERS_MAX - 1] + "…"


def _left_out(shown: Cut) -> str:
    phrases: list[str] = []
    if shown.entries_left_out:
        phrases.append(f"{_count(shown.entries_left_out, 'older entry', 'older entries')} left out")
    if shown.shortened:
        phrases.append(f"{_count(shown.shortened, 'entry', 'entries')} shown by the beginning")
    return " and ".join(phrases)


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
