"""Both ports, patiently: what is unavailable for a moment is asked again.

Reads, scans and writes that expect nothing are simply repeated. A conditional write is repeated as well,
because its condition protects it, but from then on `Conflict` may be its own effect: an earlier attempt
may have happened, and only its answer was lost. So what is there is read back and compared.

- A blob with the bytes that were to be written, or none where one was to be deleted, is success: it is
  the state that was asked for, whoever brought it about.
- A record tells more, because its counter grows by one with each change: see `_trace`. Where that does
  not tell either, the first `Unavailable` stands, never a `Conflict` that might not be one.

So a batch that meets a guard that moved, after an answer got lost, may end in `Unavailable` although it was
never written: knowing less is no licence to claim more.

Two writers that put the *same* value on top of the same counter cannot be told apart here. Whoever
counts or competes through this wrapper therefore puts something of its own into the value, as leases and
claims do with their holder.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from workspaces.clock import Clock, SystemClock
from workspaces.conditions import ANY, Wildcard
from workspaces.errors import Conflict, NotFound, Unavailable
from workspaces.storage.blobs import NO_META, Blob, BlobName, BlobStore, Expect, Meta, Stat, Token
from workspaces.storage.records import (
    SCAN_ITEMS_MAX,
    Check,
    Counter,
    Delete,
    Item,
    Key,
    Put,
    RecordChange,
    RecordStore,
    encoded,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retries:
    """Five tries wait 0.75 s at most, all together: long enough for a throttle or a restart of a
    proxy, short enough for a person."""

    tries_max: int = 5
    pause_s: float = 0.05
    """Doubles with every try; what is waited is a random part of it."""
    pause_s_max: float = 2.0
    within_s: float = 30.0
    """No try begins later than this after the first."""


class RetryingBlobs:
    def __init__(
        self,
        store: BlobStore,
        retries: Retries | None = None,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._begin = _patience(retries, clock, sleep)

    def read(self, name: BlobName) -> Blob:
        return _repeated(lambda: self._store.read(name), self._begin())

    def read_if_changed(self, name: BlobName, since: Token) -> Blob | None:
        return _repeated(lambda: self._store.read_if_changed(name, since), self._begin())

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        patience = self._begin()
        try:
            return _repeated(
                lambda: self._store.write(name, data, expect=expect, meta=meta), patience
            )
        except Conflict:
            if patience.lost is None:
                raise
            there = self._there(name)
            if there is None or there.data != data:
                raise
            return there.token

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        patience = self._begin()
        try:
            _repeated(lambda: self._store.delete(name, expect=expect), patience)
        except Conflict:
            if patience.lost is None or self._there(name) is not None:
                raise

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        """Goes on after the last name that came, so that nothing comes twice."""
        patience = self._begin()
        last = ""
        while True:
            try:
                for stat in self._store.scan(prefix):
                    if stat.name > last:
                        yield stat
                        last = stat.name
                return
            except Unavailable as error:
                patience.after(error)

    def _there(self, name: BlobName) -> Blob | None:
        try:
            return self.read(name)
        except NotFound:
            return None


class RetryingRecords:
    def __init__(
        self,
        store: RecordStore,
        retries: Retries | None = None,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._begin = _patience(retries, clock, sleep)

    def get(self, key: Key) -> Item | None:
        return _repeated(lambda: self._store.get(key), self._begin())

    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        patience = self._begin()
        try:
            return _repeated(lambda: self._store.write(*changes), patience)
        except Conflict:
            if patience.lost is None:
                raise
            there = {change.key: self.get(change.key) for change in changes}
            match _trace(changes, there):
                case Trace.NONE:
                    raise
                case Trace.UNKNOWN:
                    raise patience.lost from patience.lost.__cause__
                case Trace.WRITTEN:
                    puts = (change.key for change in changes if isinstance(change, Put))
                    return tuple(item.counter for key in puts if (item := there[key]) is not None)

    def scan(
        self,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        backwards: bool = False,
        limit: int = SCAN_ITEMS_MAX,
    ) -> list[Item]:
        return _repeated(
            lambda: self._store.scan(
                partition, start=start, end=end, backwards=backwards, limit=limit
            ),
            self._begin(),
        )

    def close(self) -> None:
        self._store.close()


class Trace(Enum):
    """What is known of a batch whose answer was lost."""

    WRITTEN = auto()
    NONE = auto()
    UNKNOWN = auto()


def _trace(changes: Sequence[RecordChange], there: Mapping[Key, Item | None]) -> Trace:
    """A batch happens whole or not at all, so one change that tells is enough."""
    told = {_trace_of(change, there[change.key]) for change in changes}
    if Trace.NONE in told:
        return Trace.NONE
    puts = [change for change in changes if isinstance(change, Put)]
    if Trace.WRITTEN in told and all(there[put.key] is not None for put in puts):
        return Trace.WRITTEN
    return Trace.UNKNOWN


def _trace_of(change: RecordChange, item: Item | None) -> Trace:
    counter = item.counter if item else 0
    if change.expect is ANY or isinstance(change, Check):
        return Trace.UNKNOWN  # any state fits it, with and without the batch
    before = 0 if isinstance(change.expect, Wildcard) else change.expect
    if counter == before:
        return Trace.NONE  # nobody was here
    if isinstance(change, Delete) or item is None or counter > before + 1:
        return Trace.UNKNOWN  # gone, by whomever, or others wrote on top
    if counter < before:
        return Trace.UNKNOWN  # deleted and made anew
    return Trace.WRITTEN if _is_the_effect(change, item) else Trace.NONE  # one change: whose?


def _is_the_effect(put: Put, item: Item) -> bool:
    return (item.value, item.expires_at) == (json.loads(encoded(put)), put.expires_at)


class _Patience:
    """One call's: how often it has failed, and whether to go on."""

    def __init__(self, retries: Retries, clock: Clock, sleep: Callable[[float], None]) -> None:
        self.lost: Unavailable | None = None
        self._retries = retries
        self._clock = clock
        self._sleep = sleep
        self._failed = 0
        self._give_up_at = clock.monotonic() + retries.within_s

    def after(self, error: Unavailable) -> None:
        self.lost = self.lost or error
        self._failed += 1
        longest = self._retries.pause_s * 2 ** (self._failed - 1)
        pause = min(longest, self._retries.pause_s_max) * random.random()  # noqa: S311 - no secret
        if self._failed >= self._retries.tries_max:
            raise error
        if self._clock.monotonic() + pause > self._give_up_at:
            raise error
        self._sleep(pause)


def _patience(
    retries: Retries | None, clock: Clock | None, sleep: Callable[[float], None]
) -> Callable[[], _Patience]:
    retries, clock = retries or Retries(), clock or SystemClock()
    return lambda: _Patience(retries, clock, sleep)


def _repeated(call: Callable[[], T], patience: _Patience) -> T:
    while True:
        try:
            return call()
        except Unavailable as error:
            patience.after(error)
