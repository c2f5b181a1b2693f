"""The request of one step, from its parts, most stable first: the provider's prompt cache holds up
to the first byte that differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from harness.context.memory import MemoryFile, shown
from harness.context.repair import repair
from harness.message import Message
from harness.request import Request, ToolSpec


class Render(Protocol):
    """The text of a template with its variables filled in."""

    def __call__(self, name: str, **variables: object) -> str: ...


@dataclass(frozen=True, slots=True)
class MountView:
    """What guidance says of one mount."""

    name: str
    is_writable: bool
    description: str
    is_guided: bool
    """The workspace's own setting `harness.enabled`."""
    is_default: bool = False
    """Meant when a tool call names no workspace."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the prompt that can be pointed at: where it comes from, whether it is trusted."""

    source: str
    is_trusted: bool
    text: str


def system_parts(
    instructions: str | None, mounts: list[MountView], memory: list[MemoryFile], render: Render
) -> list[Part]:
    """The agent's own instructions, then guidance, then memory; what has nothing to say is absent."""
    guided = [mount for mount in mounts if mount.is_guided]
    parts: list[Part] = []
    if instructions:
        parts.append(Part("instructions", True, instructions))
    if guided:
        parts.append(Part("guidance", True, render("prompt/guidance.md", mounts=guided)))
    if memory:
        parts.append(Part("memory", False, render("prompt/memory.md", files=shown(memory))))
    return parts


def assemble(
    parts: list[Part], messages: tuple[Message, ...], tools: tuple[ToolSpec, ...]
) -> Request:
    return Request(tuple(part.text for part in parts), repair(messages), tools)
