"""Wrappers of both ports that retry a call after a short outage of the store.

Reads, scans and writes that expect nothing are simply repeated. A conditional write is repeated as well,
because its condition protects it. But from then on `Conflict` may be the effect of the call itself. An
earlier attempt may have succeeded, and only its answer was lost. So the wrapper reads the current state
and compares.

- For a blob, success is the state that the caller asked for: the same bytes after a write, no blob after a
  delete. It does not matter which writer produced that state.
- A record tells more, because its counter grows by one with each change: see `_trace`. If that does not
  tell either, the wrapper raises the first `Unavailable`, never a `Conflict` that might not be one.

So a batch whose guard moved after a lost answer may end in `Unavailable` although it was never written.
The wrapper never claims more than it knows.

This wrapper cannot distinguish two writers that put the *same* value on top of the same counter. So a
caller that counts or competes through it makes its values unique. Leases and claims add their holder.
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
    """The limits of retrying. Five tries wait at most 0.75 s in all.

    That is long enough for throttling or a restart of a proxy, and short enough for a person.
    """

    tries_max: int = 5
    pause_s: float = 0.05
    """Longest first pause. It doubles with every try; the actual pause is a random part of it."""
    pause_s_max: float = 2.0
    within_s: float = 30.0
    """No try begins more than this many seconds after the first one."""


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
        self._begin = _attempts(retries, clock, sleep)

    def read(self, name: BlobName) -> Blob:
        return _retried(lambda: self._store.read(name), self._begin())

    def read_if_changed(self, name: BlobName, since: Token) -> Blob | None:
        return _retried(lambda: self._store.read_if_changed(name, since), self._begin())

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        attempts = self._begin()
        try:
            return _retried(
                lambda: self._store.write(name, data, expect=expect, meta=meta), attempts
            )
        except Conflict:
            if attempts.lost is None:  # no answer was lost: the conflict is real
                raise
            current = self._current(name)
            if current is None or current.data != data:  # another writer's blob
                raise
            return current.token

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        attempts = self._begin()
        try:
            _retried(lambda: self._store.delete(name, expect=expect), attempts)
        except Conflict:
            if attempts.lost is None or self._current(name) is not None:
                raise

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        """Yield the entries of the scan. A retry continues after the last name, so no name comes twice."""
        attempts = self._begin()
        last = ""
        while True:
            try:
                for stat in self._store.scan(prefix):
                    if stat.name > last:
                        yield stat
                        last = stat.name
                return
            except Unavailable as error:
                attempts.pause_after(error)

    def _current(self, name: BlobName) -> Blob | None:
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
        self._begin = _attempts(retries, clock, sleep)

    def get(self, key: Key) -> Item | None:
        return _retried(lambda: self._store.get(key), self._begin())

    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        attempts = self._begin()
        try:
            return _retried(lambda: self._store.write(*changes), attempts)
        except Conflict:
            if attempts.lost is None:  # no answer was lost: the conflict is real
                raise
            current = {change.key: self.get(change.key) for change in changes}
            match _trace(changes, current):
                case Trace.NONE:
                    raise
                case Trace.UNKNOWN:
                    raise attempts.lost from attempts.lost.__cause__
                case Trace.WRITTEN:
                    puts = (change.key for change in changes if isinstance(change, Put))
                    return tuple(item.counter for key in puts if (item := current[key]) is not None)

    def scan(
        self,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        backwards: bool = False,
        limit: int = SCAN_ITEMS_MAX,
    ) -> list[Item]:
        return _retried(
            lambda: self._store.scan(
                partition, start=start, end=end, backwards=backwards, limit=limit
            ),
            self._begin(),
        )

    def close(self) -> None:
        self._store.close()


class Trace(Enum):
    """The knowledge about a batch whose answer was lost."""

    WRITTEN = auto()
    NONE = auto()
    UNKNOWN = auto()


def _trace(changes: Sequence[RecordChange], current: Mapping[Key, Item | None]) -> Trace:
    """Return the trace of a batch. A batch happens whole or not at all, so one clear change is enough."""
    traces = {_trace_of(change, current[change.key]) for change in changes}
    if Trace.NONE in traces:
        return Trace.NONE
    puts = [change for change in changes if isinstance(change, Put)]
    if Trace.WRITTEN in traces and all(current[put.key] is not None for put in puts):
        return Trace.WRITTEN
    return Trace.UNKNOWN


def _trace_of(change: RecordChange, item: Item | None) -> Trace:
    counter = item.counter if item else 0
    if change.expect is ANY or isinstance(change, Check):
        return Trace.UNKNOWN  # every state fits, with and without the batch
    before = 0 if isinstance(change.expect, Wildcard) else change.expect
    if counter == before:
        return Trace.NONE  # unchanged since: the batch was not written
    if isinstance(change, Delete) or item is None or counter > before + 1:
        return Trace.UNKNOWN  # deleted by this or another writer, or others wrote on top
    if counter < before:
        return Trace.UNKNOWN  # deleted and created again
    # Exactly one change since: the value tells if it is ours.
    return Trace.WRITTEN if _is_the_effect(change, item) else Trace.NONE


def _is_the_effect(put: Put, item: Item) -> bool:
    return (item.value, item.expires_at) == (json.loads(encoded(put)), put.expires_at)


class _Attempts:
    """The attempts of one call: counts the failures and decides whether to retry."""

    def __init__(self, retries: Retries, clock: Clock, sleep: Callable[[float], None]) -> None:
        self.lost: Unavailable | None = None
        self._retries = retries
        self._clock = clock
        self._sleep = sleep
        self._failed = 0
        self._give_up_at = clock.monotonic() + retries.within_s

    def pause_after(self, error: Unavailable) -> None:
        """Wait before the next attempt. Raise the error if there is no next one."""
        self.lost = self.lost or error
        self._failed += 1
        longest = self._retries.pause_s * 2 ** (self._failed - 1)
        pause = min(longest, self._retries.pause_s_max) * random.random()  # noqa: S311 - no secret
        if self._failed >= self._retries.tries_max:
            raise error
        if self._clock.monotonic() + pause > self._give_up_at:
            raise error
        self._sleep(pause)


def _attempts(
    retries: Retries | None, clock: Clock | None, sleep: Callable[[float], None]
) -> Callable[[], _Attempts]:
    retries, clock = retries or Retries(), clock or SystemClock()
    return lambda: _Attempts(retries, clock, sleep)


def _retried(call: Callable[[], T], attempts: _Attempts) -> T:
    while True:
        try:
            return call()
        except Unavailable as error:
            attempts.pause_after(error)
