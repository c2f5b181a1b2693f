"""Retry a call of a blob store after a short outage of the store.

Reads, scans and writes that expect nothing are simply repeated. A conditional write is repeated as well,
because its condition protects it. But from then on `Conflict` may be the effect of the call itself. An
earlier attempt may have succeeded, and only its answer was lost. So the wrapper reads the current state
and compares. Success is the state that the caller asked for: the same bytes after a write, no blob after a
delete. It does not matter which writer produced that state.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from workspaces.clock import Clock, SystemClock
from workspaces.errors import Conflict, NotFound, Unavailable
from workspaces.storage.blobs import NO_META, Blob, BlobName, BlobStore, Expect, Meta, Stat, Token

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
