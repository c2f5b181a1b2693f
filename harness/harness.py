"""The Python interface of the harness: one object for one home.

with Harness.open("~/.harness") as harness:
    print(harness.run("Remember that I like short answers.").reply)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.bootstrap.composition import wire
from harness.bootstrap.first_start import create_defaults, write_missing_cards
from harness.messages.progress import silent
from harness.runtime.settings import Settings, read_settings
from workspaces.coordination.lazily import is_built, lazily
from workspaces.errors import Failure, NotFound, Unavailable
from workspaces.ids import new_id

if TYPE_CHECKING:
    from datetime import date
    from types import TracebackType

    from harness.agents.catalog import AgentCatalog
    from harness.agents.record import AgentRecord
    from harness.billing.ledger import Dimension, Spending, UsageReport
    from harness.bootstrap.composition import Application
    from harness.bootstrap.services.principal_services import PrincipalServices
    from harness.conversations.conversation import Conversation, Conversations
    from harness.jobs.job import Jobs
    from harness.jobs.runner import Drained, OnJob
    from harness.learning.learner import PassReport
    from harness.memory.blocks.blocks import Blocks
    from harness.memory.facts.fact_catalog import FactCatalog
    from harness.messages.event import Answer, EventItem, OnBusy
    from harness.messages.memory_policy import MemoryPolicy, PolicyKeys
    from harness.messages.pending_call import PendingCall
    from harness.messages.progress import Emit
    from harness.models.port import Model
    from harness.prompts.compaction import Compacted
    from harness.prompts.prompt_request import PromptRequest
    from harness.runs.chain import ChainView
    from harness.runs.runs import Runs, RunView
    from harness.runtime.async_bridge import LoopThread, UnderWay
    from harness.sandboxes.port import Confinement, Sandbox
    from harness.sync.record_deletion import RecordDeletion
    from harness.sync.registry_sync import RegistrySync
    from harness.tools.custom import CustomTool
    from harness.transcripts.outcome import Outcome
    from harness.turns.dispatcher import Dispatcher
    from harness.turns.explanation import Explanation
    from harness.turns.manual_loop import ManualLoop
    from workspaces.accounts.principal import Principal
    from workspaces.clock import Clock
    from workspaces.home.workspaces import Workspaces
    from workspaces.localfs.permissions import DiskUsage
    from workspaces.search.embeddings import Embedder


class Harness:
    """One home, as its principal uses it. Use it as a context manager, or call `close`. Threads may share
    it."""

    def __init__(self, house: Application, principal: Principal) -> None:
        self.house = house
        self.rooms: PrincipalServices = house.rooms(principal)

    @lazily
    def _loop(self) -> LoopThread:
        from harness.runtime.async_bridge import LoopThread

        return LoopThread()

    @classmethod
    def open(
        cls,
        home: str | Path | None = None,
        *,
        account: str | None = None,
        model: Model | None = None,
        clock: Clock | None = None,
        embedder: Embedder | None = None,
        sandbox: Sandbox | None = None,
        tools: Sequence[CustomTool | Callable[..., Any]] = (),
        allows_demo: bool = True,
    ) -> Harness:
        """Open a home, and create it if it does not exist. Without `home`, the environment names it.

        The caller acts as the owner of the home's default account, or of `account`. `embedder` is any
        callable from texts to vectors; recall then also searches by meaning. `tools` are functions that every
        agent can call, plain ones or made with `@tool`. Without `allows_demo` the demo model never answers.
        """
        settings = read_settings(None if home is None else Path(home))
        house = wire(
            settings,
            model=model,
            clock=clock,
            embedder=embedder,
            sandbox=sandbox,
            tools=tools,
            allows_demo=allows_demo,
        )
        try:
            owner = house.owner()
            create_defaults(house.rooms(owner))
            # made while the home takes writes: a server needs it to read
            with suppress(Unavailable):
                _ = settings.home.machine
            write_missing_cards(house)
            if account is not None:
                owner = house.accounts.owner(house.accounts.get(account))
            return cls(house, owner)
        except BaseException:
            house.close()
            raise

    @property
    def settings(self) -> Settings:
        return self.rooms.settings

    @property
    def workspaces(self) -> Workspaces:
        return self.rooms.workspaces

    @property
    def agents(self) -> AgentCatalog:
        return self.rooms.agents

    @property
    def blocks(self) -> Blocks:
        """The memory blocks of the user."""
        return self.rooms.blocks

    @property
    def facts(self) -> FactCatalog:
        """The facts of workspaces and agents: `harness.facts.of_workspace("team").list()`."""
        return self.rooms.facts

    @property
    def deletion(self) -> RecordDeletion:
        """The deletion of records, with everything that belongs to them."""
        return self.rooms.deletion

    @property
    def following(self) -> RegistrySync | None:
        """The sync of the account's records between machines. None where nothing is shared."""
        return self.rooms.registry_sync

    @property
    def conversations(self) -> Conversations:
        return self.rooms.conversations

    @property
    def runs(self) -> Runs:
        """The runs of the account, and the active memory of its agents."""
        return self.rooms.runs

    def finish_run(self, run_id: str) -> RunView:
        """Bring a run to its end, behind the agent's earlier runs, and return it.

        A run that waits for an approval is returned as it is.
        """
        return self._loop.run(self.rooms.runs.wait(run_id))

    def run_chain(self, agents: Sequence[str], task: str) -> ChainView:
        """Let agents work on a task one after the other, and return the chain at its end.

        A chain with a step that waits for an approval is returned as it is.
        """
        chains = self.rooms.chains
        chain = chains.start(agents, task)
        self._loop.run(chains.finish(chain.id))
        return chains.get(chain.id)

    def cancel_run(self, run_id: str) -> bool:
        """Cancel a run, in any process. Return False if it has ended."""
        return self._loop.run(self.rooms.runs.cancel(run_id))

    @property
    def jobs(self) -> Jobs:
        return self.rooms.jobs

    def run(
        self,
        text: str,
        *,
        agent: AgentRecord | str | None = None,
        conversation: str | None = None,
        event_id: str | None = None,
        memory_policy: MemoryPolicy | PolicyKeys | None = None,
        on_busy: OnBusy | None = None,
        is_shared: bool = False,
        tools: Sequence[CustomTool | Callable[..., Any]] = (),
        emit: Emit = silent,
    ) -> Outcome:
        """Send a message to an agent and wait for the outcome.

        Without `agent` the home's default agent answers; without `conversation` a new one begins. The keys of
        `memory_policy` replace those of the agent's. `on_busy` decides what happens when the conversation is
        in use, otherwise the agent's configuration does. With `is_shared`, the message goes to the
        conversation that the agent's runs share. `tools` are functions that the agent can call in this turn.
        `approve` or `answer` resumes a turn that waits.
        """
        from harness.messages.event import Event, check_event_id
        from harness.messages.memory_policy import MemoryPolicy

        key = new_id("c") if conversation is None else conversation
        event = Event.said(
            new_id("evt") if event_id is None else check_event_id(event_id),
            None if is_shared else key,
            text,
            memory_policy=MemoryPolicy.of(memory_policy),
            on_busy=on_busy,
        )
        dispatcher = self._with(tools)
        return self._loop.run(dispatcher.run(self._agent(agent), event, emit))

    def context(
        self,
        agent: AgentRecord | str | None = None,
        conversation: str | None = None,
        *,
        tools: Sequence[CustomTool | Callable[..., Any]] = (),
    ) -> ManualLoop:
        """Return a loop that the caller drives: the caller asks the provider, the rest is as in any turn. Use
        it as a context manager.

            with harness.context("helper", "c1") as context:
                context.record("What do you know of me?")
                while context.is_open:
                    asked = {"system": context.system, "tools": context.tools}
                    context.record(client.messages.create(messages=context.messages, **asked, …))
        """
        from harness.messages.event import Event
        from harness.turns.manual_loop import ManualLoop

        record = self._agent(agent)
        key = new_id("c") if conversation is None else conversation

        def begin(items: tuple[EventItem, ...], model: Model) -> UnderWay[Outcome]:
            own = partial(self.house.models.own, model, self.rooms.principal)
            dispatcher = replace(self._with(tools), callers_model=own)
            return self._loop.start(dispatcher.run(record, Event(new_id("evt"), key, items)))

        name = record.config.model or self.settings.model
        return ManualLoop(name, self.house.notation, begin)

    def pending(self, conversation: Conversation) -> tuple[PendingCall, ...]:
        """Return the pending calls: those that need approval, and those that the client must run."""
        return self.rooms.conversations.pending(conversation)

    def answer(
        self,
        conversation: Conversation,
        *answers: Answer,
        event_id: str | None = None,
        tools: Sequence[CustomTool | Callable[..., Any]] = (),
        emit: Emit = silent,
    ) -> Outcome:
        """Answer pending calls, and wait for the outcome of the turn. The turn resumes when no call is
        pending any more.

        Raises: NotFound; Conflict for a call that is not pending.
        """
        from harness.messages.event import Event, check_event_id

        own_id = check_event_id(event_id or new_id("evt"))
        event = Event(own_id, conversation.key, answers, has_reserved_key=True)
        agent = self.agents.get(conversation.agent_id)
        return self._loop.run(self._with(tools).run(agent, event, emit))

    def approve(
        self,
        conversation: Conversation,
        call_id: str | None = None,
        *,
        is_allowed: bool = True,
        reason: str | None = None,
        tools: Sequence[CustomTool | Callable[..., Any]] = (),
        emit: Emit = silent,
    ) -> Outcome:
        """Approve a pending call, or deny it; without `call_id` all calls that need approval.

        Raises: NotFound when no such call is pending.
        """
        from harness.messages.event import Approval

        ids = [one.id for one in self.pending(conversation) if one.asked.waits_for == "approval"]
        ids = ids if call_id is None else [call_id]
        if not ids:
            from harness.transcripts.approval import nothing_waits

            raise nothing_waits(None)
        approvals = [Approval(call_id=one, is_allowed=is_allowed, reason=reason) for one in ids]
        return self.answer(conversation, *approvals, tools=tools, emit=emit)

    def cancel(self, conversation: Conversation) -> bool:
        """Cancel the turn that runs or waits in a conversation, in any process. Return False when there is
        none."""
        return self._loop.run(self.rooms.dispatcher.cancel(conversation))

    def preview(
        self,
        agent: AgentRecord | str | None = None,
        *,
        conversation: str | None = None,
        message: str | None = None,
        memory_policy: MemoryPolicy | PolicyKeys | None = None,
    ) -> PromptRequest:
        """Return the prompt and the request that the agent's next turn would send if `message` were sent now.

        Without `conversation`, or with a key that is not used yet, this is a first turn.
        """
        from harness.messages.memory_policy import MemoryPolicy
        from harness.turns.preview import preview

        return preview(
            self.rooms.prompt_dependencies,
            self._agent(agent),
            conversation=conversation,
            message=message,
            policy=MemoryPolicy.of(memory_policy),
        )

    def explain(self, conversation: Conversation) -> Explanation:
        """Return the prompts that the model saw in each turn, and the revision of each memory that came in
        with the turn."""
        from harness.turns.explanation import explain

        return explain(conversation, self.agents, self.conversations)

    def demo_notice(self, agent: AgentRecord) -> str | None:
        """Return a sentence for people if the demo model answers for this agent."""
        return self.house.models.demo_notice(agent.config.model)

    def confinement(self) -> Confinement:
        """Return the confinement of commands on this machine: if agents get bash, and if not, why not."""
        return self._loop.run(self.house.sandbox.check())

    def shell(self, workspace: str, command: Sequence[str], *, sandbox: str = "default") -> int:
        """Run a command, else a shell, on the caller's terminal in the sandbox that an agent gets.

        Its changes become a revision by the principal. Return the exit code.
        """
        return self._loop.run(self._in_sandbox(workspace, command, sandbox))

    async def _in_sandbox(self, reference: str, command: Sequence[str], sandbox: str) -> int:
        from harness.agents.mounts import Mount, mount_name
        from harness.runtime.async_bridge import entered
        from harness.sandboxes.port import SandboxCommand
        from harness.tools.bash import order_for

        record = self.rooms.sandboxes.get(sandbox)
        workspace = self.workspaces.get(reference)
        name, is_writable = mount_name(workspace.record.name), record.config.mode == "rw"
        mount = Mount(name, workspace, is_writable, sandbox=record)
        argv = tuple(command) or ("bash", "-i")

        def order(taken: Mapping[str, DiskUsage]) -> SandboxCommand:
            return order_for(argv, [mount], name, record.config, seconds=None, taken=taken)

        if not is_writable:
            return await self.house.sandbox.attach(order({}))
        async with entered(workspace.command(self.rooms.principal.author("api"))) as own:
            return await self.house.sandbox.attach(order({name: own.taken}))

    def usage(
        self,
        *,
        by: Dimension = "day",
        since: date | None = None,
        until: date | None = None,
        of: tuple[Spending, str] | None = None,
    ) -> UsageReport:
        """Return the usage of the account's models and its cost."""
        return self.rooms.usage.report(by=by, since=since, until=until, of=of)

    def conversation(
        self, reference: str, *, agent: AgentRecord | str | None = None
    ) -> Conversation:
        """Return a conversation by its id, or by its key with an agent (else the home's default agent).

        Raises: NotFound.
        """
        try:
            return self.conversations.get(reference)
        except NotFound:
            conversation = self.conversations.find(self._agent(agent).id, reference)
        if conversation is None:
            raise NotFound(
                "conversation", reference, remedy="`harness conversation list` lists them"
            )
        return conversation

    def compact(self, conversation: Conversation, emit: Emit = silent) -> Compacted:
        """Summarise the beginning of a conversation for the model now, however short the conversation is.

        The newest two turns stay as they are, and so does everything that is stored.

        Raises: Busy while a turn runs or waits.
        """
        return self._loop.run(self.rooms.dispatcher.compact(conversation, emit))

    def learn(
        self, conversation: Conversation, *, blocks: bool = False, dry_run: bool = False
    ) -> PassReport:
        """Read what is new in a conversation, and store the facts that will be useful again.

        With `blocks`, or if the agent's `sleep` is enabled, the user's memory blocks are rewritten too. With
        `dry_run` the model is asked, and nothing is stored.

        Raises: Busy while another process reads it.
        """
        from harness.learning.learner import PassWish

        wish = PassWish(blocks=blocks, by_hand=True, is_trial=dry_run)
        return self._loop.run(self.rooms.learning.read(conversation, wish))

    def tell_learning(self) -> None:
        """Note that a person was told of learning in the background, so that the status says it once."""
        records = self.rooms.learning_services.records
        with suppress(Failure):  # a home that cannot be written: it is said again
            if not records.is_told():
                records.tell()

    def export_conversation(self, conversation: Conversation) -> Iterator[str]:
        """Return the conversation as JSON lines, each with its line end."""
        import json

        from harness.conversations.export import exported

        conversations = self.conversations
        transcript, entries = (
            conversations.transcript(conversation),
            conversations.carried(conversation),
        )
        lines = exported(conversation, transcript, entries)
        return (json.dumps(line, ensure_ascii=False) + "\n" for line in lines)

    def import_conversation(
        self,
        lines: Iterable[str],
        *,
        agent: AgentRecord | str | None = None,
        key: str | None = None,
    ) -> Conversation:
        """Create a conversation of this agent from the lines of `export_conversation`.

        It keeps its key, unless the caller names another.

        Raises: AlreadyExists, Refused.
        """
        from harness.conversations.export import imported
        from harness.messages.event import check_key

        was, sessions, entries = imported(lines)
        under = check_key(was.get("key", "") if key is None else key, "key")
        return self.conversations.add(self._agent(agent).id, under, sessions, entries)

    def fork_conversation(
        self, conversation: Conversation, key: str, *, at: int | None = None
    ) -> Conversation:
        """Create a conversation that begins with the entries of this one, up to number `at` or all."""
        from harness.messages.event import check_key

        return self.conversations.fork(conversation, check_key(key, "key"), at)

    def run_jobs(self, on_job: OnJob | None = None) -> Drained:
        """Run all due jobs now. `on_job` receives each one."""
        from harness.jobs.runner import unheard

        return self._loop.run(self.house.runner.drain(on_job or unheard))

    def close(self) -> None:
        if is_built(self, "_loop"):
            self._loop.close()
        if self.rooms.registry_sync is not None:
            with suppress(Failure):
                self.rooms.registry_sync.publish_pending()
        if is_built(self.rooms, "workspaces"):
            with suppress(Failure):  # any failure: the next close enqueues the job again
                self._enqueue_packing()
        self.house.close()

    def _enqueue_packing(self) -> None:
        """Enqueue the packing of histories that are due for it."""
        for workspace_id in self.workspaces.untidy():
            from harness.bootstrap.services.history_jobs import tidying

            self.jobs.enqueue(tidying(self.rooms.principal, workspace_id, self.house.clock))

    def __enter__(self) -> Harness:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _with(self, tools: Sequence[CustomTool | Callable[..., Any]]) -> Dispatcher:
        """Return the dispatcher, with the caller's own tools."""
        dispatcher = self.rooms.dispatcher
        if not tools:
            return dispatcher
        from harness.tools.custom import custom_tools

        own = custom_tools(tools, (tool.name for tool in dispatcher.tools))
        return replace(dispatcher, callers_tools=own)

    def _agent(self, agent: AgentRecord | str | None) -> AgentRecord:
        if agent is None or isinstance(agent, str):
            return self.agents.get(self.settings.default_agent if agent is None else agent)
        return agent
