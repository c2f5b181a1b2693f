"""Store runs, and the order in which the runs of an agent take place.

    runs:<account>                  <run>                    the run; its prompt and reply are large values
    agent-runs:<account>:<agent>    <created at> <run>       the list of an agent's runs
    re-examinations:<account>:<run> <created at> <run>       the runs that examined a run's decision again
    runs-active:<account>           <agent>                  {runs}: the active run, and those behind it

An agent's runs take place one after the other. The first one of `runs-active` runs. A run leaves that list in
the batch that ends it, and the same batch enqueues the job of the next one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from harness.jobs.job import Job, Jobs
from harness.runs.chain_record import ChainRecords
from harness.runs.run import Run, run_of
from harness.transcripts.large_values import LargeValues
from workspaces.accounts.principal import Principal
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import NotFound
from workspaces.ids import AgentId, ConversationId, RunId
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import (
    Condition,
    Delete,
    Item,
    Key,
    Put,
    RecordChange,
    RecordStore,
    with_prefix,
)

RUNS_AT_ONCE_MAX = 64
"""Runs that one server brings to their end at once, beside its other jobs. They mostly wait for a model."""

RUN = "run"
"""Kind of the job that brings a run to its end."""

LOOK_AFTER_S = 5.0
"""Seconds until that job runs, if the process that asked for the run brings it to its end itself."""

DELETED_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class ActiveRuns:
    """The runs of an agent that have not ended. The first one runs, the others wait."""

    runs: tuple[RunId, ...]
    counter: Condition


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The runs of one account. Threads may share it."""

    principal: Principal
    records: RecordStore
    large: BlobStore
    jobs: Jobs
    clock: Clock

    @property
    def chains(self) -> ChainRecords:
        return ChainRecords(self.principal.account_id, self.records)

    def has(self, run_id: str) -> bool:
        """Return True if there is a record of this run."""
        return self.records.get(self._key(run_id)) is not None

    def find(self, run_id: str) -> Run | None:
        if not run_id.isascii() or not 0 < len(run_id) <= RUN_ID_CHARACTERS_MAX:
            return None
        item = self.records.get(self._key(run_id))
        return None if item is None else self._run(item)

    def get(self, run_id: str) -> Run:
        """Return the run with this id.

        Raises: NotFound.
        """
        found = self.find(run_id)
        if found is None:
            raise NotFound("run", run_id)
        return found

    def newest_first(self, agent_id: AgentId, behind: str = "") -> Iterator[Run]:
        """Yield the runs of an agent, only those behind a `place` in this list."""
        end = behind or None
        partition = self._listing(agent_id)
        while page := self.records.scan(partition, end=end, backwards=True, limit=LISTED_AT_ONCE):
            for item in page:
                found = self.find(item.key.sort.partition(" ")[2])
                if found is not None:
                    yield found
            end = page[-1].key.sort

    def active(self, agent_id: AgentId) -> ActiveRuns:
        item = self.records.get(self._active_key(agent_id))
        if item is None:
            return ActiveRuns((), ABSENT)
        return ActiveRuns(tuple(item.value["runs"]), item.counter)

    def created(
        self, run: Run, active: ActiveRuns, *, wait_s: float, ahead_of: RunId | None = None
    ) -> tuple[RecordChange, ...]:
        """Return the changes that store a new run behind the active ones, or ahead of one of them.

        Its job is due in `wait_s` seconds, unless another run is before it.
        """
        place = len(active.runs) if ahead_of is None else active.runs.index(ahead_of)
        waiting = replace(active, runs=(*active.runs[:place], run.id, *active.runs[place:]))
        job = () if place else self._job(run.id, wait_s)
        child = () if run.parent_id is None else (Put(self._child_key(run), {}),)
        listed = (*self._listed(run), *child)
        return (self.put(run), *listed, self._active_put(run.agent_id, waiting), *job)

    def children(self, run_id: str) -> list[Run]:
        """Return the re-examinations of a run, oldest first."""
        items = with_prefix(self.records, self._children(run_id), "")
        found = (self.find(item.key.sort.partition(" ")[2]) for item in items)
        return [run for run in found if run is not None]

    def recorded(self, run: Run) -> tuple[RecordChange, ...]:
        """Return the changes that store a run that has ended already."""
        return (self.put(run), *self._listed(run))

    def put(self, run: Run) -> Put:
        """Return the change that stores the run in its present state."""
        put = Put(self._key(run.id), run.stored(), run.counter)
        return self._values(run.id).fitting(put, f"run-{secrets.token_hex(8)}")

    def left(self, run: Run) -> tuple[RecordChange, ...]:
        """Return the changes that take a run out of the active ones, and start the next one."""
        active = self.active(run.agent_id)
        if run.id not in active.runs:
            return ()
        rest = tuple(one for one in active.runs if one != run.id)
        next_job = self._job(rest[0], 0.0) if rest and active.runs[0] == run.id else ()
        own_job = self.jobs.unwanted(f"{RUN}:{run.id}")
        return (self._active_put(run.agent_id, replace(active, runs=rest)), *own_job, *next_job)

    def delete_of(self, agent_id: AgentId) -> int:
        """Delete all runs of an agent that is being deleted. Return their number."""
        active = self.active(agent_id)
        listed = with_prefix(self.records, self._listing(agent_id), "")
        ids = [item.key.sort.partition(" ")[2] for item in listed]
        children = [with_prefix(self.records, self._children(run_id), "") for run_id in ids]
        for run_id in ids:
            self._values(RunId(run_id)).erase()
        keys = [item.key for item in listed] + [self._key(run_id) for run_id in ids]
        keys += [item.key for items in children for item in items]
        for start in range(0, len(keys), DELETED_AT_ONCE):
            batch = keys[start : start + DELETED_AT_ONCE]
            self.records.write(*(Delete(key) for key in batch))
        for run_id in active.runs:
            self.records.write(*self.jobs.unwanted(f"{RUN}:{run_id}"))
        self.records.write(Delete(self._active_key(agent_id)))
        return len(ids)

    def _job(self, run_id: RunId, wait_s: float) -> tuple[RecordChange, ...]:
        payload = {
            "accountId": self.principal.account_id,
            "userId": self.principal.owner.id,
            "runId": run_id,
        }
        due = self.clock.now() + timedelta(seconds=wait_s)
        return self.jobs.wanted_anew(Job(f"{RUN}:{run_id}", RUN, due, payload))

    def _listed(self, run: Run) -> tuple[Put, ...]:
        return (Put(Key(self._listing(run.agent_id), run.place), {}),)

    def _run(self, item: Item) -> Run:
        values = self._values(RunId(item.key.sort))
        return run_of(item.key.sort, values.value(item.value), item.counter)

    def _values(self, run_id: RunId) -> LargeValues:
        return LargeValues(ConversationId(run_id), self.large)

    def _active_put(self, agent_id: AgentId, active: ActiveRuns) -> Put:
        return Put(self._active_key(agent_id), {"runs": list(active.runs)}, active.counter)

    def _active_key(self, agent_id: AgentId) -> Key:
        return Key(f"runs-active:{self.principal.account_id}", agent_id)

    def _key(self, run_id: str) -> Key:
        return Key(f"runs:{self.principal.account_id}", run_id)

    def _children(self, run_id: str) -> str:
        return f"re-examinations:{self.principal.account_id}:{run_id}"

    def _child_key(self, run: Run) -> Key:
        return Key(self._children(str(run.parent_id)), run.place)

    def _listing(self, agent_id: AgentId) -> str:
        return f"agent-runs:{self.principal.account_id}:{agent_id}"


LISTED_AT_ONCE = 100

RUN_ID_CHARACTERS_MAX = 64
"""Ids are opaque, and none that the system made is longer."""
