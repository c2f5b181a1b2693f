"""Jobs: work that is due later and is done once, by any process.

A job has an id, a kind, a payload for the kind, and a time when it is due. Enqueuing the same id again moves
the time instead of adding a job, so missed ticks collapse into one. Beside the job lies its *claim*, which
only the process that runs the job writes: the process, the number of attempts, and the last error. So
enqueuing never disturbs a running job, and a running job never hides that it was enqueued again: the end of a
run expects the job as it was when the run began.

    jobs         <id>         {kind, due, payload}; without `due` it is done, and expires a day later
    jobs-claims  <id>         {process, mark, attempts, error, aside}
    jobs-due     <due>:<id>   a hint where to look; a stale hint is harmless, and is removed when it is found

A runner that dies leaves its claim. Another runner takes over as with leases: at once when the process is
certainly dead, otherwise when no heartbeat came for a lease time. So a job may be *started* twice, and every
kind must tolerate that through guards on its own effects. A failed job is retried after a growing pause. A
job that failed too often is set aside: people see it, and it is not retried automatically. A job that needs a
resource which is in use or out of reach has not failed. It stores the reason and waits as long as that takes.

Counters start anew with a new item, and a runner that slept must not mistake a new job for its old one. So a
finished job stays for a day.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from workspaces.clock import Clock
from workspaces.conditions import ABSENT, ANY
from workspaces.coordination.lease import TERMS, LeaseTimings
from workspaces.coordination.liveness import Liveness
from workspaces.errors import Conflict, LeaseLost, NotFound
from workspaces.localfs.process import is_dead, this_process
from workspaces.storage.records import (
    Check,
    Condition,
    Counter,
    Delete,
    Item,
    JsonObject,
    Key,
    Put,
    RecordChange,
    RecordStore,
    with_prefix,
)
from workspaces.timestamp import Stamp, moment_of, stamp_of

ATTEMPTS_MAX = 8
"""The most attempts. With the pauses between them they take about four hours, longer than most provider
outages."""
PAUSE_S = 60.0
"""Seconds after the first failure; they double with each further one."""
PAUSE_S_MAX = 3600.0
PAUSES_S = tuple(min(PAUSE_S * 2**number, PAUSE_S_MAX) for number in range(ATTEMPTS_MAX - 1))
DONE_S = 24 * 3600.0
ERROR_CHARACTERS_MAX = 500
PAGE = 100


@dataclass(frozen=True, slots=True)
class Job:
    """Work that is due at a time."""

    id: str
    kind: str
    due: datetime
    payload: JsonObject = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job that this process runs."""

    job: Job
    attempt: int
    """The number of this attempt, from 1."""
    wanted: Counter
    """The counter of the job when the run began."""
    claim: Counter


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as people see it."""

    job: Job
    attempts: int
    error: str | None
    process: str | None
    is_aside: bool

    def as_json(self) -> JsonObject:
        return {
            "id": self.job.id,
            "kind": self.job.kind,
            "due": stamp_of(self.job.due),
            "payload": self.job.payload,
            "attempts": self.attempts,
            "error": self.error,
            "runner": self.process,
            "setAside": self.is_aside,
        }


class Jobs:
    """The jobs of a home, as one process uses them. Threads may share it."""

    def __init__(
        self,
        records: RecordStore,
        clock: Clock,
        *,
        terms: LeaseTimings = TERMS,
        process: str | None = None,
    ) -> None:
        self.terms = terms
        self._records = records
        self._clock = clock
        self._process = process or this_process()
        self._liveness = Liveness(clock)

    # enqueue

    def enqueue(self, job: Job, *, at_the_latest: bool = False) -> datetime:
        """Enqueue a job durably, and return when it is due. The same id again moves that time.

        With `at_the_latest`, a job that is due earlier already stays so.
        """
        job, before = self._wanted(job, at_the_latest=at_the_latest)
        self._records.write(*_stored(job, before=before))
        return job.due

    def wanted(self, job: Job, *, at_the_latest: bool = False) -> tuple[RecordChange, ...]:
        """Return the changes that enqueue a job, to be written together with others.

        With `at_the_latest`, a job that is due earlier already stays so.
        """
        job, before = self._wanted(job, at_the_latest=at_the_latest)
        return _stored(job, before=before)

    def wanted_anew(self, job: Job) -> tuple[RecordChange, ...]:
        """Return the changes that enqueue a job, without reading it first.

        For callers that know that no other process can enqueue it for an earlier time.
        """
        return _stored(job)

    def unwanted(self, job_id: str) -> tuple[RecordChange, ...]:
        """Return the changes that end a job that turns out to be done.

        They conflict at `wish_key` when the job was enqueued again meanwhile.
        """
        item = self._records.get(wish_key(job_id))
        job = _job(item) if item else None
        return () if item is None or job is None else self._finished(job, item.counter)

    # run

    def claim(self, kinds: frozenset[str]) -> Claimed | None:
        """Claim the next due job of these kinds that no other process runs. Return None if there is none."""
        start, end = "", f"{_ms(self._clock.now()) + 1:015}"
        while page := self._records.scan("jobs-due", start=start, end=end, limit=PAGE):
            for hint in page:
                if (claimed := self._try_claim(hint, kinds)) is not None:
                    return claimed
            start = page[-1].key.sort + "\0"
        return None

    def renew(self, claimed: Claimed) -> Claimed:
        """Write a heartbeat.

        Raises: LeaseLost when another process has taken over.
        """
        job_id = claimed.job.id
        put = self._claim_put(job_id, claimed.attempt, None, claimed.claim, process=self._process)
        try:
            (counter,) = self._records.write(put)
        except Conflict as error:
            raise LeaseLost(f"job {job_id}") from error
        return Claimed(claimed.job, claimed.attempt, claimed.wanted, counter)

    def done(self, claimed: Claimed) -> None:
        """End a job that succeeded. If it was enqueued again meanwhile, it stays; if taken over, nothing
        changes."""
        self._end(claimed, self._finished(claimed.job, claimed.wanted), attempts=0)

    def again(self, claimed: Claimed, due: datetime) -> None:
        """End a job that succeeded, and enqueue it again for `due`."""
        self._end(claimed, _moved(claimed, due), attempts=0)

    def later(self, claimed: Claimed, due: datetime, reason: str | None = None) -> None:
        """End a run without counting an attempt: a resource that the job needs is in use, or out of reach."""
        self._end(claimed, _moved(claimed, due), attempts=claimed.attempt - 1, error=reason)

    def failed(self, claimed: Claimed, error: str, pauses_s: Sequence[float] = PAUSES_S) -> None:
        """End a failed run. The job is retried after a pause, or set aside when the pauses are used up."""
        attempt, job = claimed.attempt, claimed.job
        if attempt > len(pauses_s):
            changes: tuple[RecordChange, ...] = (Delete(_hint(job)),)
        else:
            pause = timedelta(seconds=pauses_s[attempt - 1])
            changes = _moved(claimed, self._clock.now() + pause)
        self._end(claimed, changes, attempts=attempt, error=error)

    # list

    def list(self) -> list[JobView]:
        """Return all jobs that are not done, the earliest due first."""
        claims = {
            item.key.sort: item.value for item in with_prefix(self._records, "jobs-claims", "")
        }
        listed: list[JobView] = []
        for item in with_prefix(self._records, "jobs", ""):
            if (job := _job(item)) is not None:
                claim = claims.get(job.id, {})
                listed.append(
                    JobView(
                        job,
                        claim.get("attempts", 0),
                        claim.get("error"),
                        claim.get("process"),
                        claim.get("aside", False),
                    )
                )
        return sorted(listed, key=lambda one: (one.job.due, one.job.id))

    def find(self, job_id: str) -> Job | None:
        """Return a job that is not done, or None."""
        return self._current(job_id)

    def retry(self, job_id: str) -> None:
        """Make a job due now, as if it had never been tried.

        Raises: NotFound.
        """
        previous = self._required(job_id)
        job = replace(previous, due=self._clock.now())
        self._records.write(*_stored(job, before=previous), *self._cleared(job_id))

    def remove(self, job_id: str) -> None:
        """Delete a job. A process that runs it brings the run to its end.

        Raises: NotFound.
        """
        previous = self._required(job_id)
        self._records.write(*self._finished(previous, ANY), *self._cleared(job_id))

    def _wanted(self, job: Job, *, at_the_latest: bool) -> tuple[Job, Job | None]:
        """Return the job to store, and the one that is stored."""
        before = self._current(job.id)
        if at_the_latest and before is not None:
            job = replace(job, due=min(job.due, before.due))
        return job, before

    def _cleared(self, job_id: str) -> tuple[RecordChange, ...]:
        """Return the changes that clear the failures of a job, unless a process runs it."""
        claim = self._records.get(_claim_key(job_id))
        if claim is None or claim.value["process"] is not None:
            return ()
        return (self._claim_put(job_id, 0, None, claim.counter),)

    def _try_claim(self, hint: Item, kinds: frozenset[str]) -> Claimed | None:
        """Claim the job that a hint names. Return None if it is not due, or another process runs it."""
        job_id = hint.key.sort.partition(":")[2]
        item = self._records.get(wish_key(job_id))
        job = _job(item) if item else None
        if item is None or job is None or _hint(job) != hint.key:
            with suppress(Conflict):  # another process writes the hint anew
                self._records.write(Delete(hint.key, expect=hint.counter))
            return None
        if job.kind not in kinds:
            return None
        looked_at = self._clock.monotonic()
        claim = self._records.get(_claim_key(job_id))
        if claim is not None and not self._is_free(claim, looked_at):
            return None
        attempts: int = claim.value["attempts"] if claim else 0
        expect = claim.counter if claim else ABSENT
        if attempts >= ATTEMPTS_MAX:  # every runner of this job died
            error = f"the process that ran it died, {attempts} times"
            lost = Claimed(job, attempts, item.counter, claim.counter if claim else 0)
            self.failed(lost, error)
            return None
        put = self._claim_put(job_id, attempts + 1, None, expect, process=self._process)
        try:
            (counter,) = self._records.write(Check(item.key, item.counter), put)
        except Conflict:
            return None
        self._liveness.forget(job_id)
        return Claimed(job, attempts + 1, item.counter, counter)

    def _is_free(self, claim: Item, looked_at: float) -> bool:
        value = claim.value
        if value.get("aside"):
            return False
        process = value.get("process")
        return (
            process is None
            or is_dead(process)
            or self._liveness.lasts(
                claim.key.sort,
                value.get("mark", ""),
                looked_at=looked_at,
                seconds=self.terms.lease_s,
            )
        )

    def _end(
        self,
        claimed: Claimed,
        changes: tuple[RecordChange, ...],
        *,
        attempts: int,
        error: str | None = None,
    ) -> None:
        """Release the claim and change the job. If the job was enqueued anew, it stays as it is."""
        job_id = claimed.job.id
        free = self._claim_put(job_id, attempts, error, claimed.claim)
        for also in (changes, ()):
            try:
                self._records.write(free, *also)
            except Conflict as conflict:
                if conflict.name == str(free.key):
                    return
                continue
            return

    def _claim_put(
        self,
        job_id: str,
        attempts: int,
        error: str | None,
        expect: Condition,
        *,
        process: str | None = None,
    ) -> Put:
        is_aside = process is None and attempts >= ATTEMPTS_MAX
        expires_at = None
        if process is None and attempts == 0:
            expires_at = self._clock.now().timestamp() + DONE_S
        value = {
            "process": process,
            "mark": secrets.token_hex(8),  # counters start anew when a claim has expired
            "attempts": attempts,
            **({"error": error[:ERROR_CHARACTERS_MAX]} if error else {}),
            **({"aside": True} if is_aside else {}),
        }
        return Put(_claim_key(job_id), value, expect, expires_at)

    def _finished(self, job: Job, expect: Condition) -> tuple[RecordChange, ...]:
        expires_at = self._clock.now().timestamp() + DONE_S
        mark = Put(wish_key(job.id), {"kind": job.kind, "payload": {}}, expect, expires_at)
        return (mark, Delete(_hint(job)))

    def _current(self, job_id: str) -> Job | None:
        item = self._records.get(wish_key(job_id))
        return _job(item) if item else None

    def _required(self, job_id: str) -> Job:
        previous = self._current(job_id)
        if previous is None:
            raise NotFound("job", job_id, remedy="`harness jobs` lists them")
        return previous


def wish_key(job_id: str) -> Key:
    return Key("jobs", job_id)


def _claim_key(job_id: str) -> Key:
    return Key("jobs-claims", job_id)


def _hint(job: Job) -> Key:
    return Key("jobs-due", f"{_ms(job.due):015}:{job.id}")


def _stored(
    job: Job, expect: Condition = ANY, *, before: Job | None = None
) -> tuple[RecordChange, ...]:
    """Return the changes that store a job, in place of the one `before`."""
    value = {"kind": job.kind, "due": stamp_of(job.due), "payload": job.payload}
    stale = () if before is None or _hint(before) == _hint(job) else (Delete(_hint(before)),)
    return (Put(wish_key(job.id), value, expect), Put(_hint(job), {}, expect=ANY), *stale)


def _moved(claimed: Claimed, due: datetime) -> tuple[RecordChange, ...]:
    return _stored(replace(claimed.job, due=due), claimed.wanted, before=claimed.job)


def _job(item: Item) -> Job | None:
    """Parse a stored job; return None for a job that is done."""
    value = item.value
    if "due" not in value:
        return None
    return Job(item.key.sort, value["kind"], moment_of(Stamp(value["due"])), value["payload"])


def _ms(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() * 1000)
