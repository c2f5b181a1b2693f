"""Jobs: things due later, done once, whoever does them.

A job is what is wanted: an id, a kind, what the kind needs to know, and when it is due. To want the same
id again moves it instead of adding another: ticks that were missed collapse into one. Beside it lies the
job's *claim*, written only by whoever runs it: who is at it, how often it was tried, what went wrong.
So wanting a job never disturbs the one who is at it, and being at it never hides that it was wanted
again: ending a job expects the job as it was when it was begun.

    jobs         <id>         {kind, due, payload}; without `due` it is done, and expires a day later
    jobs-claims  <id>         {process, mark, attempts, error, aside}
    jobs-due     <due>:<id>   a hint where to look: stale ones are harmless, and go when they are met

A runner that dies leaves its claim. Another one follows it as with leases: at once when the process is
certainly dead, else after a lease time of silence. A job may therefore be *begun* twice: every kind
must bear that, by what guards its own effects. A job that failed is tried again after a growing pause;
one that failed too often is set aside, where people see it, and is not tried again by itself. One that
cannot be done yet, because what it needs is in use or out of reach, has not failed: it says why it waits,
and waits as long as it takes.

Counters begin anew with a new item, and a runner that slept must not mistake a new job for its old one:
that is why what is done stays for a day.
"""

from __future__ import annotations

import secrets
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
"""With the pauses between them about four hours: longer than a provider's bad afternoon."""
PAUSE_S = 60.0
"""After the first failure; it doubles with each."""
PAUSE_S_MAX = 3600.0
DONE_S = 24 * 3600.0
ERROR_CHARACTERS_MAX = 500
PAGE = 100


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    kind: str
    due: datetime
    payload: JsonObject = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job that this process is at."""

    job: Job
    attempt: int
    """1 for the first."""
    wanted: Counter
    """The counter of the job as it was begun."""
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
    """What one process knows of jobs. Threads may share it."""

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
        self._silence = Liveness(clock)

    # wanting

    def enqueue(self, job: Job, *, at_the_latest: bool = False) -> datetime:
        """Wanted from now on, durably; the same id again moves the time it is due. Returns when that is."""
        found = self._wish(job.id)
        due = _due_of(job, found, at_the_latest=at_the_latest)
        self._records.write(*_wanted(job, due, found))
        return due

    def wanted(self, job: Job, *, at_the_latest: bool = False) -> tuple[RecordChange, ...]:
        """The changes that enqueue a job, to be written with others. `at_the_latest`: one that is
        due earlier already stays so."""
        found = self._wish(job.id)
        return _wanted(job, _due_of(job, found, at_the_latest=at_the_latest), found)

    def wanted_anew(self, job: Job) -> tuple[RecordChange, ...]:
        """The same, for whoever knows that nothing else can want it earlier; no look is needed then."""
        return _wished(job)

    def unwanted(self, job_id: str) -> tuple[RecordChange, ...]:
        """The changes that end a job which turns out to be done. They conflict at `wish_key` when
        it was wanted again meanwhile."""
        item = self._records.get(wish_key(job_id))
        job = _job(item) if item else None
        return () if item is None or job is None else self._over(job, item.counter)

    # running

    def claim(self, kinds: frozenset[str]) -> Claimed | None:
        """The right to run the next job of these kinds that is due and that nobody is at."""
        start, end = "", f"{_ms(self._clock.now()) + 1:015}"
        while page := self._records.scan("jobs-due", start=start, end=end, limit=PAGE):
            for hint in page:
                if (claimed := self._claimed(hint, kinds)) is not None:
                    return claimed
            start = page[-1].key.sort + "\0"
        return None

    def renew(self, claimed: Claimed) -> Claimed:
        """A sign of life. LeaseLost when somebody has taken over."""
        job_id = claimed.job.id
        put = self._claim_put(job_id, claimed.attempt, None, claimed.claim, process=self._process)
        try:
            (counter,) = self._records.write(put)
        except Conflict as error:
            raise LeaseLost(f"job {job_id}") from error
        return Claimed(claimed.job, claimed.attempt, claimed.wanted, counter)

    def done(self, claimed: Claimed) -> None:
        """Ended well. Wanted again meanwhile, it stays; taken over meanwhile, nothing happens."""
        self._end(claimed, self._over(claimed.job, claimed.wanted), attempts=0)

    def again(self, claimed: Claimed, due: datetime) -> None:
        """Ended well, and due again then."""
        self._end(claimed, _moved(claimed, due), attempts=0)

    def later(self, claimed: Claimed, due: datetime, why: str | None = None) -> None:
        """Not tried at all, in the end: what it needs is in use, or out of reach."""
        self._end(claimed, _moved(claimed, due), attempts=claimed.attempt - 1, error=why)

    def failed(self, claimed: Claimed, error: str) -> None:
        """To be tried again after a pause; set aside when it was tried too often."""
        attempt, job = claimed.attempt, claimed.job
        if attempt >= ATTEMPTS_MAX:
            changes: tuple[RecordChange, ...] = (Delete(_hint(job)),)
        else:
            pause = min(PAUSE_S * 2 ** (attempt - 1), PAUSE_S_MAX)
            changes = _moved(claimed, self._clock.now() + timedelta(seconds=pause))
        self._end(claimed, changes, attempts=attempt, error=error)

    # looking

    def list(self) -> list[JobView]:
        """All that are not done, those due first first."""
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

    def retry(self, job_id: str) -> None:
        """Due now, as if it had never been tried. NotFound."""
        found = self._required(job_id)
        job = Job(job_id, found.kind, self._clock.now(), found.payload)
        stale = () if _hint(found) == _hint(job) else (Delete(_hint(found)),)
        self._records.write(*_wished(job), *stale, *self._forgiven(job_id))

    def remove(self, job_id: str) -> None:
        """Not wanted any more. NotFound. Whoever is at it brings it to its end."""
        found = self._required(job_id)
        self._records.write(*self._over(found, ANY), *self._forgiven(job_id))

    def _forgiven(self, job_id: str) -> tuple[RecordChange, ...]:
        """What its failures left behind, unless somebody is at it."""
        claim = self._records.get(_claim_key(job_id))
        if claim is None or claim.value["process"] is not None:
            return ()
        return (self._claim_put(job_id, 0, None, claim.counter),)

    def _claimed(self, hint: Item, kinds: frozenset[str]) -> Claimed | None:
        """None when this is not to be run now, or not by us."""
        job_id = hint.key.sort.partition(":")[2]
        item = self._records.get(wish_key(job_id))
        job = _job(item) if item else None
        if item is None or job is None or _hint(job) != hint.key:
            with suppress(Conflict):  # somebody puts it there anew
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
        if attempts >= ATTEMPTS_MAX:  # its runners died, each time
            told = f"whoever ran it ended in the middle, {attempts} times"
            lost = Claimed(job, attempts, item.counter, claim.counter if claim else 0)
            self.failed(lost, told)
            return None
        put = self._claim_put(job_id, attempts + 1, None, expect, process=self._process)
        try:
            (counter,) = self._records.write(Check(item.key, item.counter), put)
        except Conflict:
            return None
        self._silence.forget(job_id)
        return Claimed(job, attempts + 1, item.counter, counter)

    def _is_free(self, claim: Item, looked_at: float) -> bool:
        value = claim.value
        if value.get("aside"):
            return False
        process = value.get("process")
        return (
            process is None
            or is_dead(process)
            or self._silence.lasts(
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
        """Let go of the claim and change the job, unless it was wanted anew: then it stays so."""
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
            "mark": secrets.token_hex(8),  # counters begin anew when a claim has expired
            "attempts": attempts,
            **({"error": error[:ERROR_CHARACTERS_MAX]} if error else {}),
            **({"aside": True} if is_aside else {}),
        }
        return Put(_claim_key(job_id), value, expect, expires_at)

    def _over(self, job: Job, expect: Condition) -> tuple[RecordChange, ...]:
        expires_at = self._clock.now().timestamp() + DONE_S
        mark = Put(wish_key(job.id), {"kind": job.kind, "payload": {}}, expect, expires_at)
        return (mark, Delete(_hint(job)))

    def _wish(self, job_id: str) -> Job | None:
        item = self._records.get(wish_key(job_id))
        return _job(item) if item else None

    def _required(self, job_id: str) -> Job:
        found = self._wish(job_id)
        if found is None:
            raise NotFound("job", job_id, remedy="`harness jobs` lists them")
        return found


def wish_key(job_id: str) -> Key:
    return Key("jobs", job_id)


def _claim_key(job_id: str) -> Key:
    return Key("jobs-claims", job_id)


def _hint(job: Job) -> Key:
    return Key("jobs-due", f"{_ms(job.due):015}:{job.id}")


def _due_of(job: Job, found: Job | None, *, at_the_latest: bool) -> datetime:
    return min(job.due, found.due) if at_the_latest and found is not None else job.due


def _wanted(job: Job, due: datetime, found: Job | None) -> tuple[RecordChange, ...]:
    """`found`: as it was wanted before."""
    stale = () if found is None or found.due == due else (Delete(_hint(found)),)
    return (*_wished(replace(job, due=due)), *stale)


def _wished(job: Job) -> tuple[RecordChange, ...]:
    value = {"kind": job.kind, "due": stamp_of(job.due), "payload": job.payload}
    return (Put(wish_key(job.id), value, expect=ANY), Put(_hint(job), {}, expect=ANY))


def _moved(claimed: Claimed, due: datetime) -> tuple[RecordChange, ...]:
    job = claimed.job
    value = {"kind": job.kind, "due": stamp_of(due), "payload": job.payload}
    moved = Job(job.id, job.kind, due, job.payload)
    changes = (Put(wish_key(job.id), value, claimed.wanted), Put(_hint(moved), {}, expect=ANY))
    return changes if _hint(moved) == _hint(job) else (*changes, Delete(_hint(job)))


def _job(item: Item) -> Job | None:
    """None for one that is done."""
    value = item.value
    if "due" not in value:
        return None
    return Job(item.key.sort, value["kind"], moment_of(Stamp(value["due"])), value["payload"])


def _ms(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() * 1000)
