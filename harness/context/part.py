"""Parts: the pieces that a prompt consists of, each of which can be pointed at afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from workspaces.revision import RevisionId
from workspaces.storage.records import JsonObject

INSTRUCTIONS = "instructions"
GUIDANCE = "guidance"
MEMORY = "memory"
"""The words about memory; each mount's own is `memory/<mount>`."""
DATE = "date"
SUMMARY = "summary"
"""What stands for the beginning of the conversation."""
TURN = "turn"


@dataclass(frozen=True, slots=True)
class PromptPart:
    source: str
    """Where it comes from."""
    is_trusted: bool
    text: str
    revision: RevisionId | None = None
    """What memory was read from."""
    entries_left_out: int = 0
    lines_left_out: int = 0
    unavailable: str | None = None
    """Why the memory that it stands for could not be read."""

    @property
    def is_memory(self) -> bool:
        return self.source.startswith(f"{MEMORY}/")

    def as_json(self) -> JsonObject:
        """Only what there is to say."""
        return {
            "source": self.source,
            "trusted": self.is_trusted,
            "text": self.text,
            **({"revision": self.revision} if self.revision else {}),
            **({"entriesLeftOut": self.entries_left_out} if self.entries_left_out else {}),
            **({"linesLeftOut": self.lines_left_out} if self.lines_left_out else {}),
            **({"unavailable": self.unavailable} if self.unavailable else {}),
        }


def memory_of(mount: str) -> str:
    """The source of a mount's memory."""
    return f"{MEMORY}/{mount}"


def part_of(data: JsonObject) -> PromptPart:
    revision = data.get("revision")
    return PromptPart(
        data["source"],
        data["trusted"],
        data["text"],
        RevisionId(revision) if revision else None,
        data.get("entriesLeftOut", 0),
        data.get("linesLeftOut", 0),
        data.get("unavailable"),
    )


class Render(Protocol):
    """A function that returns the text of a template with its variables filled in."""

    def __call__(self, name: str, **variables: object) -> str: ...
