"""The harness as Python sees it: one object for one home.

with Harness.open("~/.harness") as harness:
    print(harness.run("Remember that I like short answers.").reply)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from harness.agent import AgentRecord, Agents, Mount, mount_name
from harness.birth import be_born
from harness.briefing import brief
from harness.context.assemble import Part
from harness.crossing import LoopThread, entered
from harness.event import Event
from harness.models.port import Model
from harness.progress import Emit, silent
from harness.sandboxes.port import Confinement, Sandbox
from harness.settings import Settings, read_settings
from harness.tools.bash import order_for
from harness.turn import Outcome
from harness.wiring import House, Rooms, wire
from workspaces.clock import Clock
from workspaces.errors import Failure, Refused
from workspaces.ids import new_id
from workspaces.workspaces import Workspaces


class Harness:
    """Use it as a context manager, or call `close`. Threads may share it."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.rooms: Rooms = house.rooms(house.owner())
        self._loop = LoopThread()

    @classmethod
    def open(
        cls,
        home: str | Path | None = None,
        *,
        model: Model | None = None,
        clock: Clock | None = None,
        sandbox: Sandbox | None = None,
    ) -> Harness:
        """A home, made when it is not there yet; without a name the one that the environment names."""
        settings = read_settings(None if home is None else Path(home))
        house = wire(settings, model=model, clock=clock, sandbox=sandbox)
        harness = cls(house)
        be_born(harness.rooms)
        return harness

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

    def confinement(self) -> Confinement:
        """Whether agents get bash here, and if not, why not."""
        return self._loop.run(self.house.sandbox.check())

    def shell(self, workspace: str, command: Sequence[str], *, sandbox: str = "default") -> int:
        """Run a command, else a shell, on the caller's terminal in the sandbox that an agent gets. What
        it changes becomes a revision by the principal. Returns the exit code."""
        return self._loop.run(self._in_sandbox(workspace, command, sandbox))

    async def _in_sandbox(self, reference: str, command: Sequence[str], sandbox: str) -> int:
        record = self.rooms.sandboxes.get(sandbox)
        workspace = self.workspaces.get(reference)
        name, is_writable = mount_name(workspace.record.name), record.config.mode == "rw"
        mount = Mount(name, workspace, is_writable, sandbox=record)
        argv = tuple(command) or ("bash", "-i")
        order = order_for(argv, [mount], name, record.config, seconds=None)
        if not is_writable:
            return await self.house.sandbox.attach(order)
        async with entered(workspace.command(self.rooms.principal.author("api"))):
            return await self.house.sandbox.attach(order)

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
        self.house.close()

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
