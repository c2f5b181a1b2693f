"""What a hook of another agent program tells its model: memory when a session starts, then its changes.

Both programs put a long answer of a hook into a file and show its ends alone: Codex one of more than 2 500
tokens, which it counts as four bytes each, Claude Code one of more than 10 000 characters. So an answer stays
below that, and says itself what it leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.agents.record import AgentConfig, SessionConfig, SessionMemory
from harness.context.delta import delta
from harness.context.part import PromptPart
from harness.memory.facts.fact_index import FactIndexes
from harness.presentation.workspace_prompt import workspace_prompt
from harness.runtime.templates import render
from workspaces.clock import Clock
from workspaces.errors import NotFound
from workspaces.history.history import HEAD, View
from workspaces.revision import RevisionId
from workspaces.workspace.workspace import Workspace

HOOK_BYTES_MAX = 9_500

TRIES_MAX = 5
"""Times that a prompt is built with less memory until it fits."""

FILES_NAMED_MAX = 20

REVISIONS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class HookContext:
    """The memory of one workspace, for the hooks of one program."""

    workspace: Workspace
    clock: Clock
    facts: FactIndexes
    where: str = ""
    """Where the files are, for a program that reads them with its own tools."""

    def whole(self) -> str:
        """Return the prompt, with as much memory as fits."""
        room = HOOK_BYTES_MAX - len(self.where.encode()) - 2
        parts = self._parts(HEAD)
        over = len(_joined(parts).encode()) - room
        characters = sum(len(part.text) for part in parts if part.is_memory)
        for _ in range(TRIES_MAX):
            if over <= 0:
                break
            # A character may be several bytes: as many as those of the text that is shown are on average.
            text = "".join(part.text for part in parts if part.is_memory)
            average = max(1.0, len(text.encode()) / max(1, len(text)))
            characters = max(1, characters - int(over / average) - 1)
            parts = self._parts(HEAD, characters)
            over = len(_joined(parts).encode()) - room
        return "\n\n".join(text for text in (_joined(parts), self.where) if text)

    def news(self, told: RevisionId) -> str:
        """Return the changes since a revision that the model was told of; "" if there are none.

        Raises: NotFound if the history does not hold that revision.
        """
        if not self.workspace.history.holds(told):
            raise NotFound("revision", told)
        changed = delta(0, self._parts(told), self._parts(HEAD), None, render)
        if changed is None:
            return ""
        text = render("use/news.md", changes=changed.text, files=[], left_out=0)
        if len(text.encode()) <= HOOK_BYTES_MAX:
            return text
        log = self.workspace.history.log(since=told, limit=REVISIONS_MAX)
        files = sorted({path for revision in log for path in revision.paths})
        named, more = files[:FILES_NAMED_MAX], len(files[FILES_NAMED_MAX:])
        return render("use/news.md", changes="", files=named, left_out=more)

    def _parts(self, view: View, characters_max: int | None = None) -> tuple[PromptPart, ...]:
        config = AgentConfig()
        if characters_max is not None:
            memory = SessionMemory(max_length=characters_max)
            config = AgentConfig(session=SessionConfig(memory=memory))
        return workspace_prompt(
            self.workspace, self.clock, view=view, facts=self.facts, config=config
        )


def _joined(parts: tuple[PromptPart, ...]) -> str:
    return "\n\n".join(part.text for part in parts)
