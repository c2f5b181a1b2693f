"""Wrappers of both ports that inject faults, to test how callers handle them.

A fault comes before the effect (nothing happened) or after it (it happened, and the answer was lost). The
caller gets `Unavailable` in both cases and cannot tell them apart, as on a real network. A plan assigns
faults to calls. It is any iterator, or one drawn from a seed; then every error contains the seed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TypeVar

from workspaces.errors import Unavailable
from workspaces.storage.blobs import NO_META, Blob, BlobName, BlobStore, Expect, Meta, Stat, Token
from workspaces.storage.records import SCAN_ITEMS_MAX, Counter, Item, Key, RecordChange, RecordStore

T = TypeVar("T")


class StoreFault(Enum):
    NONE = "none"
    BEFORE = "before the effect"
    AFTER = "after the effect"


def seeded(seed: int, *, before: float = 0.1, after: float = 0.1) -> Iterator[StoreFault]:
    """Yield faults without end. `before` and `after` are the fractions of calls with such a fault."""
    generator = random.Random(seed)  # noqa: S311 - repeatable, not secret
    while True:
        number = generator.random()
        if number < before:
            yield StoreFault.BEFORE
        else:
            yield StoreFault.AFTER if number < before + after else StoreFault.NONE


class FaultyBlobs:
    """A blob store with planned faults; there are none after the plan has ended.

    Its errors contain `plan_name`.
    """

    def __init__(self, store: BlobStore, plan: Iterator[StoreFault], plan_name: str = "") -> None:
        self._store = store
        self._plan = _Plan(plan, plan_name)

    def read(self, name: BlobName) -> Blob:
        return self._plan.run(lambda: self._store.read(name))

    def read_if_changed(self, name: BlobName, since: Token) -> Blob | None:
        return self._plan.run(lambda: self._store.read_if_changed(name, since))

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        return self._plan.run(lambda: self._store.write(name, data, expect=expect, meta=meta))

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        return self._plan.run(lambda: self._store.delete(name, expect=expect))

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        """Yield the entries of the scan. A fault may come before or after each of them."""
        for stat in self._plan.run(lambda: self._store.scan(prefix)):
            yield self._plan.run(lambda stat=stat: stat)


class FaultyRecords:
    def __init__(self, store: RecordStore, plan: Iterator[StoreFault], plan_name: str = "") -> None:
        self._store = store
        self._plan = _Plan(plan, plan_name)

    def get(self, key: Key) -> Item | None:
        return self._plan.run(lambda: self._store.get(key))

    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        return self._plan.run(lambda: self._store.write(*changes))

    def scan(
        self,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        backwards: bool = False,
        limit: int = SCAN_ITEMS_MAX,
    ) -> list[Item]:
        return self._plan.run(
            lambda: self._store.scan(
                partition, start=start, end=end, backwards=backwards, limit=limit
            )
        )

    def close(self) -> None:
        self._store.close()


class _Plan:
    def __init__(self, plan: Iterator[StoreFault], name: str) -> None:
        self._plan = plan
        self._name = name
        self._lock = threading.Lock()

    def run(self, call: Callable[[], T]) -> T:
        with self._lock:
            fault = next(self._plan, StoreFault.NONE)
        if fault is StoreFault.BEFORE:
            raise self._unavailable(fault)
        answer = call()
        if fault is StoreFault.AFTER:
            raise self._unavailable(fault)
        return answer

    def _unavailable(self, fault: StoreFault) -> Unavailable:
        return Unavailable("faulty store", f"a planned fault {fault.value} {self._name}".rstrip())
