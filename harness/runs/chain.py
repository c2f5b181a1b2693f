"""Chains: agents that work on one task one after the other, each seeing the outputs before it.

Each step is a run of its agent, whose id follows from the chain and the place of the step. So a chain that
was interrupted goes on with the step where it stopped, and no step happens twice. The job of a chain looks
after it, as that of a run does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from typing import Literal

from harness.agents.record import PROMPT_CHARACTERS_MAX
from harness.jobs.job import Job
from harness.messages.model_request import NO_USAGE, Usage
from harness.runs.chain_record import Chain, ChainRecords, ChainStatus, step_prompt
from harness.runs.run import Run, RunStatus
from harness.runs.run_records import LOOK_AFTER_S
from harness.runs.runs import Runs
from harness.runtime.async_bridge import run_in_thread
from workspaces.errors import AgentRunning, Conflict, Failure, NotFound, Refused
from workspaces.ids import AgentId, ChainId, RunId, new_id
from workspaces.storage.contention import until_written
from workspaces.storage.records import JsonObject, RecordChange
from workspaces.timestamp import stamp_of

CHAIN = "chain"
"""Kind of the job that brings a chain to its end."""

STEPS_MAX = 20
LOOK_S = 0.2
"""Seconds between two looks of a stream at a chain."""


@dataclass(frozen=True, slots=True)
class ChainStep:
    """A step of a chain. Without a run it has not begun."""

    agent_id: AgentId
    run: Run | None

    @property
    def status(self) -> RunStatus | Literal["pending"]:
        return "pending" if self.run is None else self.run.status

    def as_json(self) -> JsonObject:
        return {
            "agentId": self.agent_id,
            "runId": self.run and self.run.id,
            "status": self.status,
            "output": self.run and self.run.reply,
        }


@dataclass(frozen=True, slots=True)
class ChainView:
    """A chain with its steps."""

    chain: Chain
    steps: tuple[ChainStep, ...]

    @property
    def output(self) -> str | None:
        """The output of the last step, when the chain has succeeded."""
        last = self.steps[-1].run
        return last.reply if self.chain.status == "succeeded" and last is not None else None

    @property
    def usage(self) -> Usage:
        used = (step.run.usage for step in self.steps if step.run and step.run.usage)
        return reduce(Usage.__add__, used, NO_USAGE)

    def as_json(self) -> JsonObject:
        return {
            "id": self.chain.id,
            "status": self.chain.status,
            "task": self.chain.task,
            "steps": [step.as_json() for step in self.steps],
            "output": self.output,
            "usage": self.usage.as_json(),
        }


def _nothing_more(chain: Chain) -> Sequence[RecordChange]:
    del chain
    return ()


@dataclass(frozen=True, slots=True)
class Chains:
    """The chains of one account, for its owner. Threads may share it."""

    runs: Runs
    ended: Callable[[Chain], Sequence[RecordChange]] = _nothing_more
    """Returns changes to write with the end of a chain that has succeeded."""

    def start(self, agents: Sequence[str], task: str, *, is_attended: bool = True) -> Chain:
        """Start a chain of these agents, in this order. With `is_attended`, the caller brings it to its end.

        Raises: NotFound for an unknown agent; Refused for none, for too many, or for a blank or long task.
        """
        self.runs.check_right()
        if not 1 <= len(agents) <= STEPS_MAX:
            raise Refused("agents", len(agents), f"must be 1 to {STEPS_MAX} agents")
        if not task.strip():
            raise Refused("task", task, "is empty", message="the task is empty")
        if len(task) > PROMPT_CHARACTERS_MAX // 4:  # it stands in the prompt of every step
            raise Refused("task", task, f"is over {PROMPT_CHARACTERS_MAX // 4:,} characters")
        ids = tuple(self.runs.agents.get(one).id for one in agents)
        now = self.runs.clock.now()
        task = self.runs.mark(task)
        chain = Chain(ChainId(new_id("chain")), ids, task, "running", stamp_of(now))
        records = self.runs.records
        payload = {
            "accountId": self.runs.principal.account_id,
            "userId": self.runs.principal.owner.id,
            "chainId": chain.id,
        }
        due = now + timedelta(seconds=LOOK_AFTER_S if is_attended else 0.0)
        job = Job(f"{CHAIN}:{chain.id}", CHAIN, due, payload)
        records.records.write(self._records.put(chain), *records.jobs.wanted_anew(job))
        return chain

    def get(self, chain_id: str) -> ChainView:
        """Return a chain with its steps.

        Raises: NotFound.
        """
        self.runs.check_right()
        chain = self._chain(chain_id)
        steps = (
            ChainStep(agent_id, self.runs.records.find(chain.run_id(number)))
            for number, agent_id in enumerate(chain.agents)
        )
        view = ChainView(chain, tuple(steps))
        return view if chain.re_examines is None else replace(view, chain=_by_last_run(view))

    async def cancel(self, chain_id: str) -> bool:
        """Cancel a chain, with the step that runs. Return False if it has ended."""
        await run_in_thread(self.runs.check_right)
        view = await run_in_thread(self.get, chain_id)
        if view.chain.is_final:
            return False
        if view.chain.re_examines is not None:  # its last run is in charge of the other steps
            return await self.runs.cancel(view.chain.run_id(len(view.steps) - 1))
        await run_in_thread(self._change, chain_id, is_stopped=True)
        for step in view.steps:
            if step.run is not None and not step.run.is_final:
                await self.runs.cancel(step.run.id)
        await run_in_thread(self._end, chain_id, "cancelled", None)
        return True

    async def finish(self, chain_id: str) -> datetime | None:
        """Do the steps of a chain until its end, and return None. Return when to look again if one waits.

        Raises: Busy, LeaseLost or Unavailable when a step cannot go on now.
        """
        try:
            view = await run_in_thread(self.get, chain_id)
        except NotFound:
            return None
        for number in range(len(view.steps)):
            view = await run_in_thread(self.get, chain_id)
            if view.chain.is_final:
                return None
            if view.chain.is_stopped:
                await run_in_thread(self._end, chain_id, "cancelled", None)
                return None
            try:
                run_id = await run_in_thread(self._begin, view, number)
            except (NotFound, Refused) as failure:  # its agent was deleted, for example
                await run_in_thread(self._end, chain_id, "failed", str(failure))
                return None
            done = await self.runs.wait(run_id)
            if not done.run.is_final:  # it waits for an answer, or a run before it does
                return self.runs.clock.now() + timedelta(seconds=LOOK_AFTER_S)
            if done.run.status != "succeeded":
                status = "cancelled" if done.run.status == "cancelled" else "failed"
                reason = f"step {number + 1}: {done.run.status}"
                await run_in_thread(self._end, chain_id, status, reason)
                return None
        await run_in_thread(self._end, chain_id, "succeeded", None)
        return None

    async def follow(self, chain_id: str, after: int = 0) -> AsyncGenerator[tuple[int, JsonObject]]:
        """Yield the number and the JSON of each step behind step `after` when it has ended."""
        told = after
        while True:
            view = await run_in_thread(self.get, chain_id)
            for number, step in enumerate(view.steps, start=1):
                if number > told and step.run is not None and step.run.is_final:
                    yield number, step.as_json()
                    told = number
            if view.chain.is_final:
                return
            await asyncio.sleep(LOOK_S)

    def _begin(self, view: ChainView, number: int) -> RunId:
        """Start the run of a step, unless it was started; return its id."""
        chain, step = view.chain, view.steps[number]
        run_id = chain.run_id(number)
        if step.run is not None:
            return run_id
        agent = self.runs.agents.get(step.agent_id)
        names = [self.runs.agents.get(agent_id).name for agent_id in chain.agents[:number]]
        replies = [one.run.reply or "" if one.run else "" for one in view.steps[:number]]
        earlier = list(zip(names, replies, strict=True))
        prompt = step_prompt(chain.task, len(chain.agents), earlier)
        facts = {"id": run_id, "chain_id": chain.id, "step": number}
        with suppress(AgentRunning, Conflict):
            self.runs.start(agent.id, prompt, on_busy="queue", source="chain", facts=facts)
        return run_id

    def _end(self, chain_id: str, status: ChainStatus, error: str | None) -> None:
        self._change(chain_id, status=status, error=error)
        with suppress(Failure):  # the job finds that the chain has ended
            self.runs.records.records.write(*self.runs.records.jobs.unwanted(f"{CHAIN}:{chain_id}"))

    @until_written("chains")
    def _change(self, chain_id: str, **fields: object) -> None:
        """Change a chain that has not ended."""
        chain = self._chain(chain_id)
        if chain.is_final:
            return
        changed: Chain = replace(chain, **fields)  # type: ignore[arg-type]
        more = self.ended(changed) if changed.status == "succeeded" else ()
        self.runs.records.records.write(self._records.put(changed), *more)

    def _chain(self, chain_id: str) -> Chain:
        found = self._records.find(chain_id)
        if found is None:
            raise NotFound("chain", chain_id)
        return found

    @property
    def _records(self) -> ChainRecords:
        return self.runs.records.chains


def _by_last_run(view: ChainView) -> Chain:
    """Return the chain of a re-examination with the status that its last run gives it."""
    last = view.steps[-1].run
    if last is None or not last.is_final:
        return view.chain
    status = _OF_LAST_RUN.get(last.status, "failed")
    return replace(view.chain, status=status, error=last.error and last.error.message)


_OF_LAST_RUN: dict[RunStatus, ChainStatus] = {"succeeded": "succeeded", "cancelled": "cancelled"}
