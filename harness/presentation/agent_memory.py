"""The memory that an agent's prompt cannot show: lines that do not fit, and mounts that are gone.

The files are read as their newest revisions have them, and nothing is changed. The core blocks and the
agent's own facts are not counted: they are small beside the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.agents.mounts import Mount
from harness.agents.record import AgentRecord
from harness.context.part import memory_of
from harness.memory.facts.prompt_facts import MountedFacts, PromptFacts
from harness.prompts.prompt_sources import PromptSources
from workspaces.errors import Failure
from workspaces.history.history import HEAD

if TYPE_CHECKING:
    from harness.harness import Harness


@dataclass(frozen=True, slots=True)
class MountLinesLeftOut:
    """The lines of MEMORY.md of one mount that a prompt does not show."""

    mount: str
    lines: int

    @property
    def text(self) -> str:
        return "1 line" if self.lines == 1 else f"{self.lines:,} lines"


def lines_left_out(
    harness: Harness, agent: AgentRecord, mounts: Sequence[Mount]
) -> list[MountLinesLeftOut]:
    """Return the mounts whose MEMORY.md an agent's next prompt would not show whole."""
    views = dict(_views(mounts))
    shown = [mount for mount in mounts if mount.name in views]
    if not shown:
        return []
    house = harness.house
    facts = [
        MountedFacts(mount.name, mount.workspace, views[mount.name])
        for mount in shown
        if not mount.is_private
    ]
    sources = PromptSources(
        agent.config,
        shown,
        model="",
        memories=house.memory_cache,
        facts=PromptFacts(house.fact_indexes, (), facts),
        view_of=lambda mount: views[mount.name],
    )
    parts = {part.source: part for part in sources.parts(house.clock.now().date())}
    lines = (
        (mount.name, part.lines_left_out - part.notes_left_out)
        for mount in shown
        if (part := parts.get(memory_of(mount.name))) is not None
    )
    return [MountLinesLeftOut(name, count) for name, count in lines if count]


def _views(mounts: Sequence[Mount]) -> Iterator[tuple[str, str]]:
    """Yield the newest revision of each mount that is on this machine and can be read."""
    for mount in mounts:
        if mount.is_distant:
            continue
        try:
            revision = mount.here.history.tip()
        except Failure:  # the section of workspaces names it
            continue
        if revision is not None and revision != HEAD:
            yield mount.name, revision
