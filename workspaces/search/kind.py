"""What a question to the search may name: a kind of memory, derived from a file's path. And its limits."""

from __future__ import annotations

from typing import Literal

LIMIT_MAX = 100
"""The most hits."""

QUERY_CHARACTERS_MAX = 10_000
"""Longest query. A message to an agent may be as long as a page; more is no question."""

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
