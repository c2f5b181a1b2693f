"""Start, list, cancel and bring to their end the runs of an account.

A run is durable before anything happens: its record, its place behind the agent's other runs, and a job that
looks after it are one batch. Whoever asks for a run may bring it to its end (`work_off`); otherwise a process
that runs jobs does. Several processes may do so at once: a run is one event, and its turn happens once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Literal

from harness.agents.catalog import AgentCatalog
from harness.agents.record import PROMPT_CHARACTERS_MAX, AgentRecord
from harness.messages.event import SHARED_KEY
from harness.messages.marking import MarkText, unmarked
from harness.messages.pending_call import PendingCall
from harness.runs.active_memory import ActiveMemories, MemoryView
from harness.runs.chain_record import Chain, step_prompt
from harness.runs.decisions import Decisions, ReExaminationOrder, decision_in, review_in
from harness.runs.run import Run, RunError, RunSource, StopRequest, refused
from harness.runs.run_records import LOOK_AFTER_S, RunRecords
from harness.runtime.async_bridge import run_in_thread
from harness.turns.dispatcher import Dispatcher
from workspaces.accounts.principal import Principal
from workspaces.clock import Clock
from workspaces.errors import (
    AgentRunning,
    Busy,
    Conflict,
    Failure,
    Forbidden,
    LeaseLost,
    NotFound,
    Refused,
    TooMany,
    Unavailable,
)
from workspaces.ids import AgentId, ChainId, RunId, new_id
from workspaces.storage.contention import until_written
from workspaces.storage.records import JsonObject, RecordChange
from workspaces.timestamp import moment_of, stamp_of

WAITING_RUNS_MAX = 100
"""Runs that may wait behind the active run of an agent."""

WAIT_LOOK_S = 5.0
"""Seconds between two looks at a run that waits for a person or a client."""

WAIT_MAX = timedelta(hours=24)
"""The longest time that a run waits for an approval or for a client's answer."""

OnActive = Literal["queue", "reject"]
"""What happens to a new run while the agent runs: it waits, or it is refused."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run, with the calls that it waits for at the moment."""

    run: Run
    waiting: tuple[PendingCall, ...] = ()
    conviction: JsonObject | None = None
    """The newest valid re-examination of its decision."""

    def as_json(self) -> JsonObject:
        run = self.run
        return {
            "id": run.id,
            "agentId": run.agent_id,
            "status": run.status,
            "source": run.source,
            "prompt": run.prompt,
            "parentRunId": run.parent_id,
            "chainId": run.chain_id,
            "step": run.step,
            "conversationId": run.conversation_id,
            "turnId": run.turn_id,
            "sessionIdBefore": run.session_before,
            "sessionIdAfter": run.session_after,
            "reply": run.reply,
            "result": result_json(run),
            "outcome": run.outcome,
            "outcomeFields": run.outcome_fields,
            "resolutionStatus": run.resolution_status,
            "conviction": self.conviction,
            "waiting": [call.as_json() for call in self.waiting],
            "error": run.error and run.error.as_json(),
            "usage": run.usage and run.usage.as_json(),
            "createdAt": run.created_at,
            "startedAt": run.started_at,
            "finishedAt": run.finished_at,
        }


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one account, for its owner. Threads may share it."""

    principal: Principal
    records: RunRecords
    memories: ActiveMemories
    agents: AgentCatalog
    dispatcher: Dispatcher
    decisions: Decisions
    clock: Clock
    mark: MarkText = unmarked
    """Applied to prompts and tasks before they are stored."""

    def re_examine(self, run_id: str, *, is_attended: bool = True) -> Run:
        """Start a run that examines a run's decision again, in a conversation of its own.

        The decision of a chain is examined by the whole chain: the run is its last one, and does the steps
        before it first. Only the last one is told of the decision.

        Raises: NotFound; Refused if there is no decision that may be examined; AgentRunning.
        """
        self.check_right()
        order = self.decisions.re_examination_of(run_id)
        record = self.agents.get(order.parent.agent_id)
        facts: JsonObject = {"parent_id": order.parent.id, "review": order.terms}
        also: tuple[RecordChange, ...] = ()
        chain = self._chain_again(order)
        if chain is not None:
            last = len(chain.agents) - 1
            facts |= {"id": chain.run_id(last), "chain_id": chain.id, "step": last}
            also = (self.records.chains.put(chain),)
        run = self._new(record, order.prompt, "re_examine", facts)
        self._add(record, run, "reject", LOOK_AFTER_S if is_attended else 0.0, also)
        return run

    def re_examinations(self, run_id: str) -> list[RunView]:
        """Return the re-examinations of a run, oldest first.

        Raises: NotFound.
        """
        self.check_right()
        return [self.view(run) for run in self.records.children(self.decisions.run(run_id).id)]

    def start(
        self,
        agent: str,
        prompt: str | None = None,
        *,
        on_busy: OnActive = "reject",
        source: RunSource = "on_demand",
        facts: Mapping[str, Any] | None = None,
        is_attended: bool = True,
    ) -> Run:
        """Start a run of an agent with this prompt, else with the agent's `defaultPrompt`.

        `facts` are further fields of the record. With `is_attended`, the caller brings the run to its end.

        Raises: Refused without any prompt; AgentRunning while the agent runs, unless the run may wait;
        TooMany when too many runs wait.
        """
        self.check_right()
        record = self.agents.get(agent)
        run = self._new(record, _prompt(record, prompt), source, facts or {})
        self._add(record, run, on_busy, LOOK_AFTER_S if is_attended else 0.0)
        return run

    def get(self, run_id: str) -> RunView:
        """Return a run.

        Raises: NotFound.
        """
        self.check_right()
        return self.view(self.decisions.run(run_id))

    def check_right(self) -> None:
        """Check that the caller is the account's owner, as whom all runs act.

        Raises: Forbidden for a user's key; Refused for an account key that names another user.
        """
        if not self.principal.may_configure:
            raise Forbidden("start or see runs")
        if self.principal.user_id != self.principal.owner.id:
            rule = "cannot be used here: runs act as the account's owner"
            raise Refused("X-Harness-User", None, rule, remedy="leave the header out")

    def list(self, agent: str, *, behind: str = "", limit: int | None = None) -> list[RunView]:
        """Return the runs of an agent, newest first; only those behind a `place` in this list."""
        self.check_right()
        self.decisions.adopt(self.agents.get(agent).id)
        found = self.records.newest_first(self.agents.get(agent).id, behind)
        return [self.view(run) for run in islice(found, limit)]

    def view(self, run: Run) -> RunView:
        """Return a run with the calls that it waits for, and the newest look at its decision."""
        if run.parent_id is not None and self.records.find(run.parent_id) is None:
            run = replace(run, parent_id=None)  # the parent was deleted
        if run.result is not None:
            return RunView(run, conviction=self.decisions.conviction(run))
        if run.status != "running" or run.conversation_id is None or run.waiting_since is None:
            return RunView(run)
        try:
            conversation = self.dispatcher.conversations.get(run.conversation_id)
            paused = self.dispatcher.conversations.queue(conversation).paused()
        except NotFound:
            return RunView(run)
        if paused is None or paused.turn_id != run.turn_id:
            return RunView(run)
        return RunView(run, self.dispatcher.conversations.pending(conversation))

    def memory(self, agent: str) -> MemoryView:
        """Return the state of an agent's active memory."""
        self.check_right()
        return self.memories.view(self.agents.get(agent))

    def memory_summary(self) -> dict[AgentId, MemoryView]:
        """Return the state of every agent's active memory."""
        self.check_right()
        return {agent.id: self.memories.view(agent) for agent in self.agents.list()}

    def set_memory(self, agent: str, *, is_enabled: bool) -> MemoryView:
        """Turn active memory on or off. Turning it on starts afresh."""
        record = self.agents.patch(agent, {"config": {"activeMemory": is_enabled}})
        return self.memories.view(record)

    def reset_memory(self, agent: str) -> MemoryView:
        """Let the next turn of the shared session start afresh. Chat messages stay visible."""
        self.check_right()
        return self.memories.reset(self.agents.get(agent))

    async def cancel(self, run_id: str) -> bool:
        """Cancel a run, wherever it is. Return False if it has ended.

        Raises: NotFound; Busy while its turn changes from running to waiting or back.
        """
        await run_in_thread(self.check_right)
        return await self._stop(run_id, "cancel")

    async def work_off(self, agent_id: AgentId) -> datetime | None:
        """Bring the runs of an agent to their end, one after the other, until none is left.

        Return when to look again if one of them waits for an answer.
        """
        while (active := await run_in_thread(self.records.active, agent_id)).runs:
            again = await self.finish(active.runs[0])
            if again is not None:
                return again
        return None

    async def finish(self, run_id: str) -> datetime | None:
        """Bring a run to its end, and return None. Return when to look again if it waits for an answer.

        Raises: Busy, LeaseLost or Unavailable when the run cannot go on now.
        """
        run = await run_in_thread(self._next_up, run_id)
        if run is None:
            return None
        try:
            if run.stop is not None:
                await self.dispatcher.cancel_event(run.agent_id, run.event_id)
            await run_in_thread(self._check_conversation, run)
            if run.leads_chain:
                again = await self._do_earlier_steps(run)
                run = await run_in_thread(self.records.get, run_id)
                if again is not None or run.is_final:
                    return again
            agent = await run_in_thread(self.agents.get, run.agent_id)
            queued = await self.dispatcher.enqueue(agent, run.event)
            outcome = await self.dispatcher.wait(replace(queued, is_new=False))
        except (Busy, LeaseLost, Unavailable):
            raise
        except TooMany as failure:  # the shared conversation is full of messages
            raise Busy("the conversation", holder="waiting messages") from failure
        except Failure as failure:
            error = RunError(failure.code, str(failure))
            await run_in_thread(self._give_up, run_id, error, is_gone=failure.code == NotFound.code)
            return None
        except Exception as unexpected:  # noqa: BLE001 - it becomes the run's error
            error = RunError("broken", f"{type(unexpected).__name__}: {unexpected}")
            await run_in_thread(self._give_up, run_id, error)
            return None
        return await self._waited(run_id) if outcome.status == "waiting" else None

    async def wait(self, run_id: str) -> RunView:
        """Bring a run to its end, behind those before it, and return it.

        A run that waits for an answer, or behind a run that does, is returned as it is.
        """
        while True:
            view = await run_in_thread(self.get, run_id)
            if view.run.is_final or view.waiting:
                return view
            if await self.work_off(view.run.agent_id) is not None:
                return await run_in_thread(self.get, run_id)
            await asyncio.sleep(0)

    def add_skipped(self, run: Run, error: RunError) -> None:
        """Record a tick at which nothing ran. A second call for the same run changes nothing."""
        now = stamp_of(self.clock.now())
        skipped = replace(run, status="skipped", error=error, finished_at=now)
        with suppress(Conflict):
            self.records.records.write(*self.records.recorded(skipped))

    @until_written("runs")
    def add_scheduled(self, run: Run) -> bool:
        """Add a run if its agent is idle, once. Return False if the agent runs."""
        if self.records.find(run.id) is not None:
            return True
        active = self.records.active(run.agent_id)
        if active.runs:
            return False
        self.records.records.write(*self.records.created(run, active, wait_s=0.0))
        return True

    def new(
        self, agent: AgentRecord, prompt: str, source: RunSource, run_id: RunId | None = None
    ) -> Run:
        """Return a run that is not stored yet."""
        return self._new(agent, prompt, source, {} if run_id is None else {"id": run_id})

    def _new(
        self, agent: AgentRecord, prompt: str, source: RunSource, facts: Mapping[str, Any]
    ) -> Run:
        run = Run(
            id=RunId(new_id("run")),
            agent_id=agent.id,
            status="queued",
            source=source,
            prompt=self.mark(prompt),
            created_at=stamp_of(self.clock.now()),
        )
        return replace(run, **facts)

    def _chain_again(self, order: ReExaminationOrder) -> Chain | None:
        """Return a new chain of the agents that led to a decision, or None if there was one agent alone.

        Raises: NotFound if one of them was deleted.
        """
        if order.chain is None:
            return None
        agents = tuple(self.agents.get(one).id for one in order.chain["agents"])
        return Chain(
            ChainId(new_id("chain")),
            agents,
            order.chain["task"],
            "running",
            stamp_of(self.clock.now()),
            re_examines=order.parent.id,
        )

    async def _do_earlier_steps(self, last: Run) -> datetime | None:
        """Do the steps of a chain before its last run, and tell that run their outputs.

        Return when to look again if one waits for an answer. The last run fails if one of them does.
        """
        chain = await run_in_thread(self.records.chains.find, last.chain_id or "")
        if chain is None:
            raise NotFound("chain", str(last.chain_id))
        earlier: list[tuple[str, str]] = []
        for number in range(len(chain.agents) - 1):
            step = await run_in_thread(self._step, chain, earlier)
            while not step.is_final:
                active = await run_in_thread(self.records.active, step.agent_id)
                again = await self.finish(active.runs[0]) if active.runs else None
                if again is not None:
                    return again
                await asyncio.sleep(0)
                step = await run_in_thread(self.records.get, step.id)
            if step.status != "succeeded":
                error = RunError("chain_failed", f"step {number + 1} of the chain: {step.status}")
                await run_in_thread(self._give_up, last.id, error)
                return None
            agent = await run_in_thread(self.agents.get, step.agent_id)
            earlier.append((agent.name, step.reply or ""))
        review = last.review or {}
        prompt = f"{step_prompt(chain.task, len(chain.agents), earlier)}\n\n{review['prompt']}"
        await run_in_thread(self._changed, last.id, lambda run: _with_prompt(run, prompt))
        return None

    def _step(self, chain: Chain, earlier: Sequence[tuple[str, str]]) -> Run:
        """Return the run of the step behind these, begun if it was not. It looks afresh, with no memory of
        other runs."""
        number = len(earlier)
        run_id = chain.run_id(number)
        found = self.records.find(run_id)
        if found is not None:
            return found
        agent = self.agents.get(chain.agents[number])
        prompt = step_prompt(chain.task, len(chain.agents), earlier)
        facts = {"id": run_id, "chain_id": chain.id, "step": number}
        run = self._new(agent, prompt, "chain", facts)
        self._add(agent, replace(run, conversation_key=run.own_key), "queue", LOOK_AFTER_S)
        return self.records.get(run_id)

    @until_written("runs")
    def _add(
        self,
        agent: AgentRecord,
        run: Run,
        on_busy: OnActive,
        wait_s: float,
        also: tuple[RecordChange, ...] = (),
    ) -> None:
        """Store a new run behind the agent's active runs.

        A step of a chain that is done again goes ahead of a last run that waits for such steps: otherwise two
        of them could wait for each other.
        """
        active = self.records.active(agent.id)
        if active.runs and on_busy == "reject":
            raise AgentRunning(agent.name, active.runs[0])
        if len(active.runs) > WAITING_RUNS_MAX:
            actual = len(active.runs)
            limit = "runs that wait for the agent"
            raise TooMany(limit, maximum=WAITING_RUNS_MAX, actual=actual, unit="runs")
        leading = None
        if run.conversation_key is not None:
            found = (self.records.find(one) for one in active.runs)
            leading = next((one.id for one in found if one is not None and one.leads_chain), None)
        changes = self.records.created(run, active, wait_s=wait_s, ahead_of=leading)
        try:
            self.records.records.write(*changes, *also)
        except Conflict:
            # it may have been this caller's own run, as another process has it
            if not self.records.has(run.id):
                raise

    def _next_up(self, run_id: str) -> Run | None:
        """Return the run if it is the agent's turn to do it now, with its conversation chosen."""

        def placed(run: Run) -> Run | None:
            if run.conversation_key is not None:
                return None
            is_shared = run.source != "re_examine" and self.memories.state(run.agent_id).is_enabled
            return replace(run, conversation_key=SHARED_KEY if is_shared else run.own_key)

        run = self.records.find(run_id)
        if run is None or run.is_final:
            return None
        if self.records.active(run.agent_id).runs[:1] != (run.id,):
            return None  # its job is enqueued when its place is free
        return self._changed(run_id, placed)

    async def _stop(self, run_id: str, why: StopRequest) -> bool:
        def asked(run: Run) -> Run | None:
            return None if run.is_final or run.stop is not None else replace(run, stop=why)

        run = await run_in_thread(self._changed, run_id, asked)
        if run.is_final:
            return False
        await self._stop_steps(run, why)
        if (
            run.conversation_key is not None
        ):  # the run has left the queue: its event may be anywhere
            with suppress(NotFound):
                await self.dispatcher.cancel_event(run.agent_id, run.event_id)
        run = await run_in_thread(self.records.get, run_id)
        if not run.is_final and run.turn_id is None:
            error = RunError("cancelled", "the run was cancelled")
            await run_in_thread(self._give_up, run_id, error)
        return True

    async def _stop_steps(self, last: Run, why: StopRequest) -> None:
        """Stop the steps that the last run of a chain does first."""
        chain = None
        if last.leads_chain:
            chain = await run_in_thread(self.records.chains.find, last.chain_id or "")
        for number in range(len(chain.agents) - 1 if chain else 0):
            step = chain and await run_in_thread(self.records.find, chain.run_id(number))
            if step and not step.is_final:
                await self._stop(step.id, why)

    async def _waited(self, run_id: str) -> datetime | None:
        """Return when to look again at a run that waits. One that waited too long is stopped."""
        run = await run_in_thread(self.records.get, run_id)
        now = self.clock.now()
        if run.is_final:
            return None
        if run.waiting_since is not None and now - moment_of(run.waiting_since) > WAIT_MAX:
            await self._stop(run_id, "time")
            return None
        return now + timedelta(seconds=WAIT_LOOK_S)

    def _check_conversation(self, run: Run) -> None:
        """Raise NotFound if the run's turn began in a conversation that is deleted."""
        if run.conversation_id is not None:
            self.dispatcher.conversations.get(run.conversation_id)

    @until_written("runs")
    def _give_up(self, run_id: str, error: RunError, *, is_gone: bool = False) -> None:
        """End a run whose turn did not begin, or whose conversation `is_gone`.

        Raises: Busy if its turn runs: then the run ends with its turn.
        """
        run = self.records.find(run_id)
        if run is None or run.is_final:
            return
        if run.turn_id is not None and not is_gone:
            raise Busy("the run", holder="its turn")
        over = refused(run, error, stamp_of(self.clock.now()))
        self.records.records.write(self.records.put(over), *self.records.left(over))

    @until_written("runs")
    def _changed(self, run_id: str, change: Callable[[Run], Run | None]) -> Run:
        """Apply a change to a run, and return the run. None as the change leaves it as it is."""
        run = self.records.get(run_id)
        changed = change(run)
        if changed is None:
            return run
        self.records.records.write(self.records.put(changed))
        return self.records.get(run_id)


def result_json(run: Run) -> JsonObject | None:
    """Return the result of a run as it is shown: a decision, or the review of an earlier one."""
    decision = decision_in(run)
    if decision is not None:
        return decision.as_json()
    review = review_in(run)
    if review is None:
        return None
    line = f"{review['conviction_score']} · {review['suggested_action']} · {review['notes']}"
    return {"type": "re-examination", "data": review, "line": line}


def _with_prompt(run: Run, prompt: str) -> Run | None:
    """Return the run with this prompt, or None if nothing is to change."""
    return None if run.is_final or run.prompt == prompt else replace(run, prompt=prompt)


def _prompt(agent: AgentRecord, prompt: str | None) -> str:
    """Return the prompt of a run.

    Raises: Refused if there is none, if it is blank, or if it is too long.
    """
    text = agent.config.default_prompt if prompt is None else prompt
    if text is None:
        remedy = "give a prompt, or set config.defaultPrompt of the agent"
        raise Refused("prompt", None, "is required: the agent has no default prompt", remedy=remedy)
    if not text.strip():
        raise Refused("prompt", text, "is empty", message="the prompt is empty")
    if len(text) > PROMPT_CHARACTERS_MAX:
        raise Refused("prompt", text, f"is over {PROMPT_CHARACTERS_MAX:,} characters")
    return text
