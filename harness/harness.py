"""The harness as Python sees it: one object for one home.

with Harness.open("~/.harness") as harness:
    print(harness.run("Remember that I like short answers.").reply)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.agents.catalog import AgentCatalog
from harness.agents.mounts import Mount, mount_name
from harness.agents.record import AgentRecord
from harness.billing.ledger import Dimension, Spending, UsageReport
from harness.bootstrap.composition import Application, PrincipalServices, wire
from harness.bootstrap.first_start import create_defaults
from harness.bootstrap.job_kinds import tidying
from harness.conversations.conversation import Conversation, Conversations
from harness.conversations.export import exported, imported
from harness.jobs.job import Jobs
from harness.jobs.runner import Drained, OnJob, unheard
from harness.messages.event import Answer, Approval, Event, EventItem, OnBusy, check_key
from harness.messages.pending_call import PendingCall
from harness.messages.progress import Emit, silent
from harness.models.port import Model
from harness.prompts.compaction import Compacted
from harness.prompts.prompt_request import PromptRequest
from harness.runtime.async_bridge import LoopThread, UnderWay, entered
from harness.runtime.settings import Settings, read_settings
from harness.sandboxes.port import Confinement, Sandbox, SandboxCommand
from harness.sync.record_deletion import RecordDeletion
from harness.sync.registry_sync import RegistrySync
from harness.tools.bash import order_for
from harness.tools.custom import CustomTool, custom_tools
from harness.transcripts.approval import nothing_waits
from harness.transcripts.outcome import Outcome
from harness.turns.dispatcher import Dispatcher
from harness.turns.explanation import Explanation, explain
from harness.turns.manual_loop import ManualLoop
from harness.turns.preview import preview
from workspaces.accounts.account import Principal
from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound
from workspaces.home.workspaces import Workspaces
from workspaces.ids import new_id
from workspaces.localfs.permissions import DiskUsage
from workspaces.search.embeddings import Embedder


class Harness:
    """Use it as a context manager, or call `close`. Threads may share it."""

    def __init__(self, house: Application, principal: Principal) -> None:
        self.house = house
        self.rooms: PrincipalServices = house.rooms(principal)
        self._loop = LoopThread()

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
    ) -> Harness:
        """A home, made when it is not there yet; without a name the one that the environment names.

        It acts as the owner of the home's default account, or of the one that is named. `embedder`: any
        callable from texts to vectors; recall then finds by meaning too. `tools`: functions that every
        agent can call, plain ones or made with `@tool`.
        """
        settings = read_settings(None if home is None else Path(home))
        house = wire(
            settings, model=model, clock=clock, embedder=embedder, sandbox=sandbox, tools=tools
        )
        try:
            owner = house.owner()
            create_defaults(house.rooms(owner))
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
    def deletion(self) -> RecordDeletion:
        """Deleting records, with what belongs to them."""
        return self.rooms.deletion

    @property
    def following(self) -> RegistrySync | None:
        """How the account's records become the same on all machines; None where nothing is shared."""
        return self.rooms.registry_sync

    @property
    def conversations(self) -> Conversations:
        return self.rooms.conversations

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
        on_busy: OnBusy | None = None,
        tools: Sequence[CustomTool | Callable[..., Any]] = (),
        emit: Emit = silent,
    ) -> Outcome:
        """Say something to an agent and wait for what comes of it.

        Without `agent` the home's default one; without `conversation` a new one. `on_busy`: what becomes
        of it when the conversation is in use, else as the agent is configured. `tools`: functions that it
        can call in this turn. A turn that waits is gone on with by `approve` or `answer`.
        """
        event = Event.said(
            new_id("evt") if event_id is None else event_id,
            new_id("c") if conversation is None else conversation,
            text,
            on_busy=on_busy,
        )
        ingress = self._with(tools)
        return self._loop.run(ingress.run(self._agent(agent), event, emit))

    def context(
        self,
        agent: AgentRecord | str | None = None,
        conversation: str | None = None,
        *,
        tools: Sequence[CustomTool | Callable[..., Any]] = (),
    ) -> ManualLoop:
        """A loop of one's own: you ask the provider, the rest is as in any turn. Use it as a context
        manager.

            with harness.context("helper", "c1") as context:
                context.record("What do you know of me?")
                while context.is_open:
                    asked = {"system": context.system, "tools": context.tools}
                    context.record(client.messages.create(messages=context.messages, **asked, …))
        """
        record = self._agent(agent)
        key = new_id("c") if conversation is None else conversation

        def begin(items: tuple[EventItem, ...], model: Model) -> UnderWay[Outcome]:
            own = partial(self.house.own_model, model, self.rooms.principal)
            ingress = replace(self._with(tools), callers_model=own)
            return self._loop.start(ingress.run(record, Event(new_id("evt"), key, items)))

        name = record.config.model or self.settings.model
        return ManualLoop(name, self.house.notation, begin)

    def pending(self, conversation: Conversation) -> tuple[PendingCall, ...]:
        """The calls that wait in it, for somebody who allows them or for the client who makes them."""
        return self.rooms.dispatcher.pending(conversation)

    def answer(
        self,
        conversation: Conversation,
        *answers: Answer,
        event_id: str | None = None,
        tools: Sequence[CustomTool | Callable[..., Any]] = (),
        emit: Emit = silent,
    ) -> Outcome:
        """Answer calls that wait, and wait for what comes of the turn: it goes on when none waits any
        more. NotFound, Conflict for a call that does not."""
        event = Event(event_id or new_id("evt"), conversation.key, answers)
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
        """Allow a call that waits, or deny it; without `call_id` all that wait for that. NotFound."""
        ids = [one.id for one in self.pending(conversation) if one.asked.waits_for == "approval"]
        ids = ids if call_id is None else [call_id]
        if not ids:
            raise nothing_waits(None)
        approvals = [Approval(call_id=one, is_allowed=is_allowed, reason=reason) for one in ids]
        return self.answer(conversation, *approvals, tools=tools, emit=emit)

    def cancel(self, conversation: Conversation) -> bool:
        """End the turn that runs or waits in it, whoever runs it. False when there is none."""
        return self._loop.run(self.rooms.dispatcher.cancel(conversation))

    def preview(
        self,
        agent: AgentRecord | str | None = None,
        *,
        conversation: str | None = None,
        message: str | None = None,
    ) -> PromptRequest:
        """What the agent's next turn would send if `message` were said now: part by part, and the
        request. Without `conversation`, or with a key that is not used yet, of a first turn."""
        return preview(
            self.rooms.dispatcher, self._agent(agent), conversation=conversation, message=message
        )

    def explain(self, conversation: Conversation) -> Explanation:
        """What its turns were shown, and which revision of which memory came in with which."""
        return explain(conversation, self.agents, self.conversations)

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
        """What the account's models have used up, and what it cost."""
        return self.rooms.usage.report(by=by, since=since, until=until, of=of)

    def conversation(
        self, reference: str, *, agent: AgentRecord | str | None = None
    ) -> Conversation:
        """By its id, or by its key with an agent (else the home's default one). NotFound."""
        try:
            return self.conversations.get(reference)
        except NotFound:
            found = self.conversations.find(self._agent(agent).id, reference)
        if found is None:
            raise NotFound(
                "conversation", reference, remedy="`harness conversation list` lists them"
            )
        return found

    def compact(self, conversation: Conversation, emit: Emit = silent) -> Compacted:
        """Summarise its beginning for the model now, however short it is: the newest two turns stay as they
        are, and so does everything that is stored. Busy while a turn runs or waits."""
        return self._loop.run(self.rooms.dispatcher.compact(conversation, emit))

    def export_conversation(self, conversation: Conversation) -> Iterator[str]:
        """JSON lines, each with its end."""
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
        """What `export_conversation` gave, as a new conversation of this agent, under the key that it
        had unless another is named. AlreadyExists, Refused."""
        was, sessions, entries = imported(lines)
        under = check_key(was.get("key", "") if key is None else key, "key")
        return self.conversations.add(self._agent(agent).id, under, sessions, entries)

    def fork_conversation(
        self, conversation: Conversation, key: str, *, at: int | None = None
    ) -> Conversation:
        """A new conversation that begins with the entries of this one, up to number `at` or all."""
        return self.conversations.fork(conversation, check_key(key, "key"), at)

    def run_jobs(self, told: OnJob = unheard) -> Drained:
        """Everything that is due, now; `told` hears of each."""
        return self._loop.run(self.house.runner.drain(told))

    def close(self) -> None:
        self._loop.close()
        if self.rooms.registry_sync is not None:
            with suppress(Failure):
                self.rooms.registry_sync.publish_pending()
        with suppress(Failure):  # whatever stands in the way, the next one to close wants it too
            for workspace_id in self.workspaces.untidy():
                self.jobs.enqueue(tidying(self.rooms.principal, workspace_id, self.house.clock))
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

    def _with(self, tools: Sequence[CustomTool | Callable[..., Any]]) -> Dispatcher:
        """Where events go in, with tools of the caller's own."""
        ingress = self.rooms.dispatcher
        if not tools:
            return ingress
        own = custom_tools(tools, (tool.name for tool in ingress.tools))
        return replace(ingress, callers_tools=own)

    def _agent(self, agent: AgentRecord | str | None) -> AgentRecord:
        if isinstance(agent, AgentRecord):
            return agent
        return self.agents.get(self.settings.default_agent if agent is None else agent)
