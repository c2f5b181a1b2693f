"""Leases: who may run a conversation, so that its effects happen once and in order.

A lease is two items. The *fence* says who holds it, and its counter is the **generation**: it grows at
each acquisition and each release and is never reused. Every write that the lease protects carries a
`Recheck` of the fence, so a holder that was paused past its end can write nothing: the store refuses,
however convinced the holder is. The *pulse* beside it only proves life, and may be renewed while
writes are in flight without disturbing them.

No clock is compared between machines. A waiter takes a lease over when it has seen the same pulse for
a whole lease time on its own monotonic clock, or at once when the holder was a process of this very
machine that is certainly dead. The takeover itself expects the pulse that was seen: a holder that gave a
sign of life at the last moment keeps its lease.

To take a lease is a *bid*: changes that may be written together with others, in one batch. The fence moves
with every holder, so a bid that wins proves as well that nobody wrote under the lease since it was made: what
was read after it still stands. Where the answer
to a bid or a release got lost, the lease may be held by nobody in the name of a living process. Each bid
has a mark of its own, so whoever made it recognises it later, and may follow it at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from workspaces.clock import Clock
from workspaces.conditions import ABSENT, ANY
from workspaces.coordination.liveness import Liveness
from workspaces.errors import Busy, Conflict, LeaseLost, Unavailable
from workspaces.localfs.process import is_dead, this_process
from workspaces.storage.records import Check, Counter, Item, Key, Put, RecordStore


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """How long what lasts. The defaults outlast a stalled disk and a garbage collection, and follow a
    machine that vanished within two minutes."""

    lease_s: float = 60.0
    """A holder that gave no sign of life for so long may be followed."""
    renew_s: float = 20.0
    stop_early_s: float = 5.0
    """A holder that could not renew stops itself this long before others may take over."""


TERMS = LeaseTimings()

NEVER: Counter = 0
"""The generation of no lease: counters begin with 1."""


@dataclass(frozen=True, slots=True)
class Lease:
    key: str
    generation: Counter
    mark: str = ""
    """Of the bid that won it."""

    @property
    def guard(self) -> Check:
        """Put this first into every batch that only the holder may write."""
        return Check(_fence(self.key), self.generation)

    def is_lost_by(self, conflict: Conflict) -> bool:
        """Whether a guarded batch was refused by the guard itself."""
        return conflict.name == str(_fence(self.key))


@dataclass(frozen=True, slots=True)
class Bid:
    """What takes a lease when it is written, alone or in one batch with other changes."""

    key: str
    mark: str
    changes: tuple[Put | Check, ...]

    @property
    def unwon(self) -> Lease:
        """For what is prepared before: under this lease nothing can be written."""
        return Lease(self.key, NEVER, self.mark)

    def won(self, counters: Sequence[Counter]) -> Lease:
        """The lease, given the counters of a batch that began with the changes."""
        return Lease(self.key, counters[0], self.mark)


class Leases:
    """What one process knows of leases. Threads may share it."""

    def __init__(
        self,
        records: RecordStore,
        clock: Clock,
        *,
        terms: LeaseTimings = TERMS,
        process: str | None = None,
    ) -> None:
        """`process` is the name of the one who holds: by default this very process."""
        self.terms = terms
        self._records = records
        self._clock = clock
        self._process = process or this_process()
        self._silence = Liveness(clock)
        self._lost: set[str] = set()
        """The marks of bids and leases of ours that nobody has any more."""
        self._let_go: set[tuple[str, Counter]] = set()
        """Keys and generations of leases that were let go of in a batch, until they are released."""

    def bid(self, key: str) -> Bid:
        """Busy, naming the holder, while someone else is alive with it."""
        fence = self._records.get(_fence(key))
        if fence is None or fence.value["holder"] is None:
            return self._bid(key, fence)
        looked_at = self._clock.monotonic()
        pulse = self._records.get(_pulse(key))
        sign = (fence.counter, pulse.counter if pulse else None)
        lease_s = self.terms.lease_s
        if (
            fence.value.get("mark") in self._lost
            or is_dead(fence.value["holder"])
            or self._silence.lasts(key, sign, looked_at=looked_at, seconds=lease_s)
        ):
            return self._bid(key, fence, Check(_pulse(key), pulse.counter if pulse else ABSENT))
        raise Busy("the conversation", holder="someone else", process=_pid(fence.value["holder"]))

    def acquire(self, key: str) -> Lease:
        """Busy, naming the holder, while someone else is alive with it."""
        bid = self.bid(key)
        try:
            lease = bid.won(self._records.write(*bid.changes))
        except Conflict:
            raise Busy("the conversation", holder="a process that was faster") from None
        except Unavailable:
            self.lose(bid)
            raise
        self._silence.forget(key)
        return lease

    def lose(self, bid: Bid) -> None:
        """It is not known whether it won; nobody will use it."""
        self._lost.add(bid.mark)

    def renew(self, lease: Lease) -> None:
        """LeaseLost when it is not ours any more; one that we have let go of needs no sign of life."""
        if self.has_let_go(lease):
            return
        try:
            self._records.write(
                lease.guard, Put(_pulse(lease.key), {"holder": self._process}, expect=ANY)
            )
        except Conflict as error:
            raise LeaseLost(lease.key) from error

    def check(self, lease: Lease) -> None:
        """LeaseLost when it is not ours any more: for what goes where no guard can stand beside it."""
        fence = self._records.get(_fence(lease.key))
        if fence is None or fence.counter != lease.generation:
            raise LeaseLost(lease.key)

    def releasing(self, lease: Lease) -> Put:
        """What lets go, to be written with the last of what the lease protects, in place of its guard."""
        return Put(_fence(lease.key), {"holder": None}, expect=lease.generation)

    def let_go(self, lease: Lease) -> None:
        """It was written."""
        self._let_go.add((lease.key, lease.generation))

    def has_let_go(self, lease: Lease) -> bool:
        return (lease.key, lease.generation) in self._let_go

    def release(self, lease: Lease) -> None:
        """Let go. By someone who is not the holder any more: nothing happens."""
        if self.has_let_go(lease):
            self._let_go.discard((lease.key, lease.generation))
            return
        try:
            self._records.write(self.releasing(lease))
        except Conflict:
            return
        except Unavailable:
            self._lost.add(lease.mark)
            raise

    @contextmanager
    def held(self, key: str) -> Generator[Lease]:
        """For what is done well within a lease time. Busy."""
        lease = self.acquire(key)
        try:
            yield lease
        finally:
            self.release(lease)

    def _bid(self, key: str, fence: Item | None, *still_silent: Check) -> Bid:
        mark = secrets.token_hex(8)
        held = {"holder": self._process, "mark": mark}
        put = Put(_fence(key), held, expect=fence.counter if fence else ABSENT)
        return Bid(key, mark, (put, *still_silent))


def _fence(key: str) -> Key:
    return Key(key, "fence")


def _pulse(key: str) -> Key:
    return Key(key, "pulse")


def _pid(process: str) -> str:
    return process.split("/")[-2] if process.count("/") >= 2 else "elsewhere"
