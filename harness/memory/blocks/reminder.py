"""The archival lines that stand beside a message, if the memory policy is `auto`.

The model sees them, and the user does not. They are stored with the message, so every later request repeats
them byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.context.fence import fenced, one_line
from harness.context.part import Render
from harness.memory.blocks.block import BlockPlace
from harness.memory.blocks.blocks import BlockLine, Blocks
from harness.messages.memory_policy import MemoryPolicy
from workspaces.errors import Failure
from workspaces.ids import AgentId
from workspaces.search.kind import QUERY_CHARACTERS_MAX

REMINDER_CHARACTERS_MAX = 8_000
"""Characters of all lines of a reminder: as much as one archival block holds."""


@dataclass(frozen=True, slots=True)
class Reminders:
    """The reminders of a turn's user and agent."""

    blocks: Blocks
    agent_id: AgentId
    policy: MemoryPolicy
    render: Render

    @property
    def places(self) -> tuple[BlockPlace, ...]:
        """The archival blocks that the policy searches for every message."""
        if self.policy.archival_mode != "auto":
            return ()
        return (
            self.blocks.place_of("archival"),
            self.blocks.place_of("archival", self.agent_id),
        )

    def of(self, message: str) -> str:
        """Return the reminder beside a message; empty if the policy wants none or no line matches."""
        if not self.places or not message.strip():
            return ""
        try:
            found = self.blocks.recall_in(
                self.places, message[:QUERY_CHARACTERS_MAX], limit=self.policy.archival_limit
            )
        except Failure as failure:
            return self._rendered([], unavailable=one_line(str(failure)))
        least = self.policy.archival_min_score
        fitting = _fitting([line for line in found if least is None or line.score >= least])
        return self._rendered(fitting) if fitting else ""

    def _rendered(self, lines: list[BlockLine], unavailable: str | None = None) -> str:
        return self.render(
            "prompt/reminder.md",
            lines=[
                {
                    "scope": line.place.scope,
                    "day": (line.updated_at or "")[:10],
                    "text": fenced(line.content),
                }
                for line in lines
            ],
            unavailable=unavailable,
        )


def _fitting(lines: list[BlockLine]) -> list[BlockLine]:
    """Return the first lines that fit into a reminder."""
    room = REMINDER_CHARACTERS_MAX
    fitting: list[BlockLine] = []
    for line in lines:
        room -= len(line.content)
        if room < 0:
            break
        fitting.append(line)
    return fitting
