"""The kind of memory that a file holds, derived from its path."""

from __future__ import annotations

from typing import Literal

MemoryKind = Literal["memory", "tasks", "note", "fact", "block", "decision", "other"]

_FILES: dict[str, MemoryKind] = {"MEMORY.md": "memory", "TASKS.md": "tasks"}
_DIRECTORIES: dict[str, MemoryKind] = {
    "notes": "note",
    "facts": "fact",
    "blocks": "block",
    "decisions": "decision",
}


def kind_of(path: str) -> MemoryKind:
    directory, slash, _ = path.partition("/")
    return _DIRECTORIES.get(directory, "other") if slash else _FILES.get(path, "other")
