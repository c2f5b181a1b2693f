"""Prompt parts: the named pieces of a prompt. Receipts refer to them by their source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from workspaces.revision import RevisionId
from workspaces.storage.records import JsonObject

INSTRUCTIONS = "instructions"
GUIDANCE = "guidance"
MEMORY = "memory"
"""The text that explains memory; each mount's own part is `memory/<mount>`."""
BLOCKS = "blocks"
"""The first word of the source of a memory block: `blocks/<scope>`."""
DATE = "date"
SUMMARY = "summary"
"""The summary that replaces the beginning of the conversation."""
TURN = "turn"


@dataclass(frozen=True, slots=True)
class PromptPart:
    source: str
    """The origin of the text, for example `instructions` or `memory/<mount>`."""
    is_trusted: bool
    text: str
    revision: RevisionId | None = None
    """The revision that memory was read from."""
    entries_left_out: int = 0
    lines_left_out: int = 0
    """Lines of memory, and notes that the index does not list."""
    notes_left_out: int = 0
    """The part of them that are notes."""
    unavailable: str | None = None
    """The reason why the memory of this part could not be read."""
    rows: tuple[str, ...] = ()
    """The ids of the facts that the part shows."""

    @property
    def is_memory(self) -> bool:
        return self.source.startswith((f"{MEMORY}/", f"{BLOCKS}/"))

    def as_json(self) -> JsonObject:
        """Return the part as JSON, without empty fields."""
        return {
            "source": self.source,
            "trusted": self.is_trusted,
            "text": self.text,
            **({"revision": self.revision} if self.revision else {}),
            **({"entriesLeftOut": self.entries_left_out} if self.entries_left_out else {}),
            **({"linesLeftOut": self.lines_left_out} if self.lines_left_out else {}),
            **({"notesLeftOut": self.notes_left_out} if self.notes_left_out else {}),
            **({"unavailable": self.unavailable} if self.unavailable else {}),
            **({"rows": list(self.rows)} if self.rows else {}),
        }


def memory_of(mount: str) -> str:
    """Return the source of a mount's memory part."""
    return f"{MEMORY}/{mount}"


def block_source(scope: str) -> str:
    """Return the source of the core block of a scope."""
    return f"{BLOCKS}/{scope}"


def facts_of(mount: str) -> str:
    """Return the source of the part with a mount's facts. No mount has a name with a slash."""
    return f"{MEMORY}/{mount}/facts"


def part_of(data: JsonObject) -> PromptPart:
    revision = data.get("revision")
    return PromptPart(
        source=data["source"],
        is_trusted=data["trusted"],
        text=data["text"],
        revision=RevisionId(revision) if revision else None,
        entries_left_out=data.get("entriesLeftOut", 0),
        lines_left_out=data.get("linesLeftOut", 0),
        notes_left_out=data.get("notesLeftOut", 0),
        unavailable=data.get("unavailable"),
        rows=tuple(data.get("rows", ())),
    )


class Render(Protocol):
    """A function that returns the text of a template with its variables filled in."""

    def __call__(self, name: str, **variables: object) -> str: ...
