"""Adapters of both ports in memory: for tests, and as the shortest definition of the ports."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator

from workspaces.clock import Clock, SystemClock
from workspaces.conditions import is_met
from workspaces.errors import Conflict, NotFound
from workspaces.storage.blobs import (
    NO_META,
    Blob,
    BlobName,
    Expect,
    Meta,
    Stat,
    Token,
    check_meta,
    check_name,
)
from workspaces.storage.records import (
    SCAN_ITEMS_MAX,
    Counter,
    Delete,
    Item,
    Key,
    Put,
    RecordChange,
    check_batch,
    encoded_batch,
)


class MemoryBlobs:
    def __init__(self, token_of: Callable[[bytes], Token] | None = None) -> None:
        """Create an empty store. `token_of` gives equal bytes equal tokens, as S3 does; else each is new."""
        self._blobs: dict[BlobName, Blob] = {}
        self._tokens = itertools.count(1)
        self._token_of = token_of or self._new_token
        self._lock = threading.Lock()

    def read(self, name: BlobName) -> Blob:
        try:
            return self._blobs[check_name(name)]
        except KeyError:
            raise NotFound("file", name) from None

    def read_if_changed(self, name: BlobName, since: Token) -> Blob | None:
        blob = self.read(name)
        return None if blob.token == since else blob

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        checked_meta = dict(check_meta(meta))
        with self._lock:
            self._check(check_name(name), expect)
            token = self._token_of(data)
            self._blobs[name] = Blob(name, bytes(data), token, checked_meta)
            return token

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        with self._lock:
            self._check(check_name(name), expect)
            self._blobs.pop(name, None)

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        with self._lock:
            blobs = [blob for name, blob in self._blobs.items() if name.startswith(prefix)]
        for blob in sorted(blobs, key=lambda blob: blob.name):
            yield Stat(blob.name, len(blob.data), blob.token)

    def _new_token(self, data: bytes) -> Token:
        del data
        return Token(f"t{next(self._tokens)}")

    def _check(self, name: BlobName, expect: Expect) -> None:
        current = self._blobs.get(name)
        token = current.token if current else None
        if not is_met(expect, token):
            raise Conflict("file", name, expected=expect, actual=token)


class MemoryRecords:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._items: dict[Key, tuple[str, Counter, float | None]] = {}
        self._lock = threading.Lock()

    def get(self, key: Key) -> Item | None:
        entry = self._items.get(key)
        if entry is None:
            return None
        text, counter, expires_at = entry
        if expires_at is not None and expires_at <= self._clock.now().timestamp():
            return None
        return Item(key, json.loads(text), counter, expires_at)

    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        check_batch(changes)
        texts = encoded_batch(changes)
        with self._lock:
            counters: list[Counter] = []
            for change in changes:
                current = self.get(change.key)
                counter = current.counter if current else None
                if not is_met(change.expect, counter):
                    raise Conflict(
                        "record", str(change.key), expected=change.expect, actual=counter
                    )
                if isinstance(change, Put):
                    counters.append((counter or 0) + 1)
            new_counters = iter(counters)
            for change, text in zip(changes, texts, strict=True):
                if isinstance(change, Put):
                    self._items[change.key] = (text, next(new_counters), change.expires_at)
                elif isinstance(change, Delete):
                    self._items.pop(change.key, None)
        return tuple(counters)

    def scan(
        self,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        backwards: bool = False,
        limit: int = SCAN_ITEMS_MAX,
    ) -> list[Item]:
        with self._lock:
            keys = sorted(
                (key for key in self._items if key.partition == partition),
                key=lambda key: key.sort,
                reverse=backwards,
            )
            in_range = (
                key for key in keys if start <= key.sort and (end is None or key.sort < end)
            )
            items = (item for key in in_range if (item := self.get(key)) is not None)
            return list(itertools.islice(items, min(limit, SCAN_ITEMS_MAX)))

    def close(self) -> None:
        pass
