"""The harness as Python sees it: one object for one home.

with Harness.open("~/.harness") as harness:
    print(harness.run("Remember that I like short answers.").reply)
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import TracebackType

from harness.agent import AgentRecord, Agents
from harness.birth import be_born
from harness.briefing import brief
from harness.context.assemble import Part
from harness.crossing import LoopThread
from harness.event import Event
from harness.models.port import Model
from harness.progress import Emit, silent
from harness.settings import Settings, read_settings
from harness.turn import Outcome
from harness.wiring import Rooms, wire
from workspaces.clock import Clock
from workspaces.errors import Failure, Refused
from workspaces.ids import new_id
from workspaces.search.meaning import Embedder
from workspaces.workspaces import Workspaces


class Harness:
    """Use it as a context manager, or call `close`. Threads may share it."""

    def __init__(self, rooms: Rooms) -> None:
        self.rooms = rooms
        self._loop = LoopThread()

    @classmethod
    def open(
        cls,
        home: str | Path | None = None,
        *,
        model: Model | None = None,
        clock: Clock | None = None,
        embedder: Embedder | None = None,
    ) -> Harness:
        """A home, made when it is not there yet; without a name the one that the environment names.

        `embedder`: any callable from texts to vectors; recall then finds by meaning too.
        """
        settings = read_settings(None if home is None else Path(home))
        rooms = wire(settings, model=model, clock=clock, embedder=embedder)
        be_born(rooms)
        return cls(rooms)

    @property
    def settings(self) -> Settings:
        return self.rooms.settings

    @property
    def workspaces(self) -> Workspaces:
        return self.rooms.workspaces

    @property
    def agents(self) -> Agents:
        return self.rooms.agents

    def run(
        self,
        text: str,
        *,
        agent: AgentRecord | str | None = None,
        conversation: str | None = None,
        event_id: str | None = None,
        emit: Emit = silent,
    ) -> Outcome:
        """Say something to an agent and wait for what comes of it.

        Without `agent` the home's default one; without `conversation` a new one.
        """
        event = Event(
            new_id("evt") if event_id is None else event_id,
            new_id("c") if conversation is None else conversation,
            text,
        )
        return self._loop.run(self.rooms.inbox.deliver(self._agent(agent), event, emit))

    def prompt(self, agent: AgentRecord | str | None = None) -> list[Part]:
        """The parts of the system prompt that the agent's next turn would be given."""
        record = self._agent(agent)
        return brief(record.config.system, self.agents.bindings(record))

    def delete_workspace(self, reference: str, *, force: bool = False) -> Path:
        """Delete a workspace; Refused while agents mount it, unless forced. Its files and history
        stay in the trash of the home, at the path that is returned."""
        record = self.workspaces.get(reference).record
        agents = [agent.name for agent in self.agents.mounting(record.id)]
        if agents and not force:
            rule = f"is mounted by {', '.join(agents)}"
            remedy = "unmount it there first, or force the deletion"
            raise Refused("workspace", record.name, rule, remedy=remedy)
        return self.workspaces.delete(record.id)

    def close(self) -> None:
        self._loop.close()
        with suppress(Failure):  # whatever stands in the way, the next one to close will do it
            self.workspaces.tidy()
        self.rooms.records.close()

    def __enter__(self) -> Harness:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _agent(self, agent: AgentRecord | str | None) -> AgentRecord:
        if isinstance(agent, AgentRecord):
            return agent
        return self.agents.get(self.settings.default_agent if agent is None else agent)
