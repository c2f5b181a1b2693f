"""Leases: the right to run a conversation, so that its effects happen once and in order.

A lease is two items. The *fence* names the holder. Its counter is the **generation**: it grows at each
acquisition and each release, and is never reused. Every write that the lease protects carries a `Check` of
the fence. So a holder that was paused past the end of its lease can write nothing: the store refuses,
whatever the holder believes. The second item, the *pulse*, is a heartbeat. It only proves that the holder
is alive. Its renewal does not disturb writes in flight.

Clocks of different machines are never compared. A waiter takes a lease over when it has seen the same
pulse for a whole lease time on its own monotonic clock. It takes over at once if the holder was a process
of this machine that is certainly dead. The takeover itself expects the pulse that the waiter has seen. So
a holder that renewed its pulse at the last moment keeps its lease.

To acquire a lease, a caller writes a *bid*: changes that may be written together with others, in one batch.
The fence changes with every holder. So a bid that wins also proves that no process wrote under the lease
since the bid was made. Everything that the caller read after it is still current.

If the answer to a bid or a release is lost, the fence may name a living process that does not use the
lease. Each bid has its own mark. So the process that made the bid recognises it later and may take the
lease over at once.
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
    """The durations of a lease.

    With the defaults a holder survives a stalled disk and a garbage collection. Another machine replaces a
    holder that vanished within two minutes.
    """

    lease_s: float = 60.0
    """Seconds without a sign of life after which another process may take the lease over."""
    renew_s: float = 20.0
    stop_early_s: float = 5.0
    """A holder that could not renew stops itself this many seconds before others may take over."""


TERMS = LeaseTimings()


@dataclass(frozen=True, slots=True)
class Lease:
    key: str
    generation: Counter
    mark: str = ""
    """The mark of the bid that won the lease."""

    @property
    def guard(self) -> Check:
        """Return the check to put first into every batch that only the lease holder may write."""
        return Check(_fence(self.key), self.generation)

    @property
    def changes(self) -> tuple[Put | Check, ...]:
        """The changes with which every batch under this lease begins."""
        return (self.guard,)

    @property
    def writer(self) -> str:
        """A name that no other holder of the lease has."""
        return str(self.generation)

    def won(self, counters: Sequence[Counter]) -> Lease:
        """Return this lease: a batch that began with its changes was written."""
        del counters
        return self

    def is_lost_by(self, conflict: Conflict) -> bool:
        """Return True if the guard caused this conflict of a guarded batch: the lease is lost."""
        return conflict.name == str(_fence(self.key))


@dataclass(frozen=True, slots=True)
class Bid:
    """The changes that acquire a lease, written alone or in one batch with other changes."""

    key: str
    mark: str
    changes: tuple[Put | Check, ...]

    @property
    def writer(self) -> str:
        """A name that no other holder of the lease has."""
        return self.mark

    def is_lost_by(self, conflict: Conflict) -> bool:
        """Return True if another process took the lease before this bid."""
        return conflict.name in {str(change.key) for change in self.changes}

    def won(self, counters: Sequence[Counter]) -> Lease:
        """Return the lease. `counters` are those of a written batch that began with these changes."""
        return Lease(self.key, counters[0], self.mark)


class Leases:
    """The leases of one process, and its knowledge of other holders. Threads may share it."""

    def __init__(
        self,
        records: RecordStore,
        clock: Clock,
        *,
        terms: LeaseTimings = TERMS,
        process: str | None = None,
    ) -> None:
        """Store the dependencies. `process` is the holder's name in the fence; default: this process."""
        self.terms = terms
        self._records = records
        self._clock = clock
        self._process = process or this_process()
        self._liveness = Liveness(clock)
        self._lost: set[str] = set()
        """Marks of this process's bids and leases that no code uses any more."""
        self._released_in_batch: set[tuple[str, Counter]] = set()
        """Keys and generations of leases that a batch has released, until `release` is called."""

    def bid(self, key: str) -> Bid:
        """Return a bid for the lease.

        Raises: Busy, naming the holder, while another living process holds the lease.
        """
        fence = self._records.get(_fence(key))
        if fence is None or fence.value["holder"] is None:  # free
            return self._bid(key, fence)
        looked_at = self._clock.monotonic()
        pulse = self._records.get(_pulse(key))
        sign = (fence.counter, pulse.counter if pulse else None)
        lease_s = self.terms.lease_s
        if (
            fence.value.get("mark") in self._lost
            or is_dead(fence.value["holder"])
            or self._liveness.lasts(key, sign, looked_at=looked_at, seconds=lease_s)
        ):  # the holder is gone: take the lease over, unless it has renewed its pulse since
            return self._bid(key, fence, Check(_pulse(key), pulse.counter if pulse else ABSENT))
        raise Busy(
            "the conversation", holder="another operation", process=_pid(fence.value["holder"])
        )

    def acquire(self, key: str) -> Lease:
        """Acquire the lease.

        Raises: Busy, naming the holder, while another living process holds the lease. Unavailable if the
        store does not answer; then the bid may have won, and a later bid of this process may replace it.
        """
        bid = self.bid(key)
        try:
            lease = bid.won(self._records.write(*bid.changes))
        except Conflict:
            raise Busy("the conversation", holder="another process") from None
        except Unavailable:  # the answer was lost: the bid may have won
            self.lose(bid)
            raise
        self._liveness.forget(key)
        return lease

    def lose(self, bid: Bid) -> None:
        """Give up a bid with an unknown result. No code will use its lease."""
        self._lost.add(bid.mark)

    def renew(self, lease: Lease) -> None:
        """Renew the pulse. A lease that this process has released in a batch needs none.

        Raises: LeaseLost if another process holds the lease now.
        """
        if self.has_let_go(lease):
            return
        try:
            self._records.write(
                lease.guard, Put(_pulse(lease.key), {"holder": self._process}, expect=ANY)
            )
        except Conflict as error:
            raise LeaseLost(lease.key) from error

    def check(self, lease: Lease) -> None:
        """Check that this process still holds the lease. Use it for writes that cannot carry the guard.

        Raises: LeaseLost if another process holds the lease now.
        """
        fence = self._records.get(_fence(lease.key))
        if fence is None or fence.counter != lease.generation:
            raise LeaseLost(lease.key)

    def releasing(self, lease: Lease) -> Put:
        """Return the change that releases the lease.

        The caller writes it with the last write that the lease protects, in place of the guard.
        """
        return Put(_fence(lease.key), {"holder": None}, expect=lease.generation)

    def let_go(self, lease: Lease) -> None:
        """Record that the change of `releasing` was written."""
        self._released_in_batch.add((lease.key, lease.generation))

    def has_let_go(self, lease: Lease) -> bool:
        return (lease.key, lease.generation) in self._released_in_batch

    def release(self, lease: Lease) -> None:
        """Release the lease. Do nothing if this process no longer holds it.

        Raises: Unavailable if the store does not answer; a later bid of this process may take it over.
        """
        if self.has_let_go(lease):
            self._released_in_batch.discard((lease.key, lease.generation))
            return
        try:
            self._records.write(self.releasing(lease))
        except Conflict:  # another process holds it now
            return
        except Unavailable:  # the answer was lost: the lease may still be held
            self._lost.add(lease.mark)
            raise

    @contextmanager
    def held(self, key: str) -> Generator[Lease]:
        """Hold the lease during the context, which must take well under a lease time.

        Raises: Busy while another living process holds the lease.
        """
        lease = self.acquire(key)
        try:
            yield lease
        finally:
            self.release(lease)

    def _bid(self, key: str, fence: Item | None, *pulse_check: Check) -> Bid:
        mark = secrets.token_hex(8)
        value = {"holder": self._process, "mark": mark}
        put = Put(_fence(key), value, expect=fence.counter if fence else ABSENT)
        return Bid(key, mark, (put, *pulse_check))


def _fence(key: str) -> Key:
    return Key(key, "fence")


def _pulse(key: str) -> Key:
    return Key(key, "pulse")


def _pid(process: str) -> str:
    return process.split("/")[-2] if process.count("/") >= 2 else "elsewhere"
