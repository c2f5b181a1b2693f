"""Leases: who may run a conversation, so that its effects happen once and in order.

A lease is two items. The *fence* says who holds it, and its counter is the **generation**: it grows at
each acquisition and each release and is never reused. Every write that the lease protects carries a
`Check` of the fence, so a holder that was paused past its end can write nothing: the store refuses,
however convinced the holder is. The *pulse* beside it only proves life, and may be renewed while
writes are in flight without disturbing them.

No clock is compared between machines. A waiter takes a lease over when it has seen the same pulse for
a whole lease time on its own monotonic clock, or at once when the holder was a process of this very
machine that is certainly dead.
"""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.clock import Clock
from workspaces.errors import Busy, Conflict, LeaseLost
from workspaces.expect import ABSENT, ANY
from workspaces.process import is_dead, this_process
from workspaces.records import Check, Counter, Item, Key, Put, RecordStore

LEASE_S = 60.0
RENEW_S = 20.0
STOP_EARLY_S = 5.0
"""A holder that could not renew stops itself this long before others may take over."""


@dataclass(frozen=True, slots=True)
class Lease:
    key: str
    generation: Counter

    @property
    def guard(self) -> Check:
        """Put this into every batch that only the holder may write."""
        return Check(_fence(self.key), self.generation)


class Leases:
    """What one process knows of leases. Threads may share it."""

    def __init__(self, records: RecordStore, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._process = this_process()
        self._seen: dict[str, tuple[object, float]] = {}

    def acquire(self, key: str) -> Lease:
        """Busy, naming the holder, while someone else is alive with it."""
        fence = self._records.get(_fence(key))
        if (
            fence is not None
            and fence.value["holder"] is not None
            and not self._is_over(key, fence)
        ):
            raise Busy("the conversation", holder=f"process {_pid(fence.value['holder'])}")
        expect = fence.counter if fence else ABSENT
        try:
            (generation, _) = self._records.write(
                Put(_fence(key), {"holder": self._process}, expect=expect),
                Put(_pulse(key), {"holder": self._process}, expect=ANY),
            )
        except Conflict:
            raise Busy("the conversation", holder="a process that was faster") from None
        self._seen.pop(key, None)
        return Lease(key, generation)

    def renew(self, lease: Lease) -> None:
        """LeaseLost when it is not ours any more."""
        try:
            self._records.write(
                lease.guard, Put(_pulse(lease.key), {"holder": self._process}, expect=ANY)
            )
        except Conflict as error:
            raise LeaseLost(lease.key) from error

    def release(self, lease: Lease) -> None:
        """Let go. By someone who is not the holder any more: nothing happens."""
        try:
            self._records.write(Put(_fence(lease.key), {"holder": None}, expect=lease.generation))
        except Conflict:
            return

    def _is_over(self, key: str, fence: Item) -> bool:
        if is_dead(fence.value["holder"]):
            return True
        pulse = self._records.get(_pulse(key))
        sign = (fence.counter, pulse.counter if pulse else None)
        now = self._clock.monotonic()
        seen, since = self._seen.get(key, (None, now))
        if seen != sign:
            since = now
            self._seen[key] = (sign, now)
        return now - since >= LEASE_S


def _fence(key: str) -> Key:
    return Key(key, "fence")


def _pulse(key: str) -> Key:
    return Key(key, "pulse")


def _pid(process: str) -> str:
    return process.split("/")[-2] if process.count("/") >= 2 else "elsewhere"
