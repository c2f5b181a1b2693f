"""The part of the prompt that holds memory: MEMORY.md of every mount, fenced and within a budget."""

from __future__ import annotations

from dataclasses import dataclass

from harness.context.fence import attribute, fenced

MEMORY_CHARACTERS_MAX = 40_000
"""All mounts together. About a twentieth of a large model's window, and more than anyone rereads."""


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """One MEMORY.md as it was found. A missing one is not listed at all."""

    workspace: str
    text: str
    name: str = "MEMORY.md"
    unavailable: str | None = None
    """Why it could not be read; then there is no text."""


@dataclass(frozen=True, slots=True)
class ShownFile:
    workspace: str
    name: str
    text: str
    unavailable: str | None
    left_out: int
    """Lines that did not fit."""


def shown(
    files: list[MemoryFile], *, characters_max: int = MEMORY_CHARACTERS_MAX
) -> list[ShownFile]:
    """What the prompt shows of them, sharing the budget evenly; lines are shown whole or not."""
    share = characters_max // max(1, len(files))
    result: list[ShownFile] = []
    for file in files:
        kept, left_out = _cut(fenced(file.text).strip("\n"), share)
        reason = None if file.unavailable is None else attribute(file.unavailable)
        result.append(
            ShownFile(attribute(file.workspace), attribute(file.name), kept, reason, left_out)
        )
    return result


def _cut(text: str, characters_max: int) -> tuple[str, int]:
    if len(text) <= characters_max:
        return text, 0
    lines = text.split("\n")
    used = 0
    for number, line in enumerate(lines):
        used += len(line) + 1
        if used > characters_max + 1:
            return "\n".join(lines[:number]), len(lines) - number
    return text, 0
