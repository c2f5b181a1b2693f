"""Lists the parts of the prompt in their fixed order.

The most stable parts come first, because the provider's prompt cache holds up to the first byte that differs:
the agent's own instructions → guidance → memory → the date → the summary of the earlier conversation. Empty
parts are left out; the date is always there. Instructions for one turn alone come after all of this, where
the request is put together (`assemble`): no snapshot holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from harness.context.fence import fenced, one_line
from harness.context.memory_parts import Memory, memory_parts
from harness.context.part import DATE, GUIDANCE, INSTRUCTIONS, MEMORY, SUMMARY, PromptPart, Render


@dataclass(frozen=True, slots=True)
class MountView:
    """The facts about one mount that the guidance states."""

    name: str
    is_writable: bool
    description: str
    is_guided: bool
    """The workspace's own setting `harness.enabled`."""
    is_default: bool = False
    """True for the mount that a tool call means if it names no workspace."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The inputs of a prompt, as they were read."""

    instructions: str | None
    mounts: tuple[MountView, ...]
    memories: tuple[Memory, ...]
    day: date
    memory_characters_max: int
    summary: str | None = None
    """The summary of the messages before the window."""
    blocks: tuple[PromptPart, ...] = ()
    """The parts of the core blocks."""
    facts: tuple[PromptPart, ...] = ()
    """The parts of the facts of the agent and of the mounts."""


def prompt_parts(sources: Sources, render: Render) -> tuple[PromptPart, ...]:
    parts = [
        PromptPart(INSTRUCTIONS, True, (sources.instructions or "").strip()),
        PromptPart(GUIDANCE, True, _guidance(sources.mounts, render)),
        *_memory(sources, render),
        PromptPart(DATE, True, date_text(sources.day, render)),
        *_summary(sources.summary, render),
    ]
    return tuple(part for part in parts if part.text)


def date_text(day: date, render: Render) -> str:
    return render("prompt/date.md", date=day.isoformat(), weekday=_WEEKDAYS[day.weekday()])


_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _guidance(mounts: Sequence[MountView], render: Render) -> str:
    guided = [
        {
            "name": one_line(mount.name),
            "is_writable": mount.is_writable,
            "is_default": mount.is_default,
            "description": one_line(mount.description),
        }
        for mount in mounts
        if mount.is_guided
    ]
    if not guided:
        return ""
    return render("prompt/guidance.md", mounts=guided, is_choice=len(mounts) > 1)


def _summary(summary: str | None, render: Render) -> list[PromptPart]:
    if summary is None:
        return []
    return [PromptPart(SUMMARY, False, render("prompt/summary.md", text=fenced(summary)))]


def _memory(sources: Sources, render: Render) -> list[PromptPart]:
    if not (sources.memories or sources.facts or sources.blocks):
        return []
    about = PromptPart(MEMORY, True, render("prompt/memory.md"))
    memories = memory_parts(sources.memories, sources.memory_characters_max, render)
    return [about, *memories, *sources.facts, *sources.blocks]
