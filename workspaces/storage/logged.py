"""Wrappers of both ports that log each call: its method, its arguments, its duration and its outcome.

A line is one JSON object. It holds names, keys, sizes and counts, never contents: logs travel further
than memories may. Lines of a healthy store have the level DEBUG; lines about an unhealthy one, WARNING.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from workspaces.clock import Clock, SystemClock
from workspaces.errors import Failure, Unavailable
from workspaces.storage.blobs import NO_META, Blob, BlobName, BlobStore, Expect, Meta, Stat, Token
from workspaces.storage.records import SCAN_ITEMS_MAX, Counter, Item, Key, RecordChange, RecordStore

LogFields = dict[str, object]


class LoggedBlobs:
    """A blob store that logs its calls. Each line contains `name`, the name of this store."""

    def __init__(
        self, store: BlobStore, name: str, log: logging.Logger, *, clock: Clock | None = None
    ) -> None:
        self._store = store
        self._lines = _Lines(name, log, clock or SystemClock())

    def read(self, name: BlobName) -> Blob:
        with self._lines.call("read", name=name) as facts:
            blob = self._store.read(name)
            facts["bytes"] = len(blob.data)
            return blob

    def read_if_changed(self, name: BlobName, since: Token) -> Blob | None:
        with self._lines.call("read_if_changed", name=name) as facts:
            blob = self._store.read_if_changed(name, since)
            facts["bytes"] = None if blob is None else len(blob.data)
            return blob

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        with self._lines.call("write", name=name, bytes=len(data), expect=str(expect)):
            return self._store.write(name, data, expect=expect, meta=meta)

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        with self._lines.call("delete", name=name, expect=str(expect)):
            self._store.delete(name, expect=expect)

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        with self._lines.call("scan", prefix=prefix, found=0) as facts:
            for count, stat in enumerate(self._store.scan(prefix), start=1):
                facts["found"] = count
                yield stat


class LoggedRecords:
    def __init__(
        self, store: RecordStore, name: str, log: logging.Logger, *, clock: Clock | None = None
    ) -> None:
        self._store = store
        self._lines = _Lines(name, log, clock or SystemClock())

    def get(self, key: Key) -> Item | None:
        with self._lines.call("get", key=str(key)) as facts:
            item = self._store.get(key)
            facts["found"] = int(item is not None)
            return item

    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        names = [f"{type(change).__name__} {change.key}" for change in changes]
        with self._lines.call("write", changes=names):
            return self._store.write(*changes)

    def scan(
        self,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        backwards: bool = False,
        limit: int = SCAN_ITEMS_MAX,
    ) -> list[Item]:
        with self._lines.call("scan", partition=partition, start=start, limit=limit) as facts:
            items = self._store.scan(
                partition, start=start, end=end, backwards=backwards, limit=limit
            )
            facts["found"] = len(items)
            return items

    def close(self) -> None:
        with self._lines.call("close"):
            self._store.close()


class _Lines:
    def __init__(self, store: str, log: logging.Logger, clock: Clock) -> None:
        self._store = store
        self._log = log
        self._clock = clock

    @contextmanager
    def call(self, call: str, **facts: object) -> Generator[LogFields]:
        """Log a line when the call has ended. The caller adds facts to the yielded line on the way."""
        line: LogFields = {"store": self._store, "call": call, **facts}
        begin = self._clock.monotonic()
        level, outcome = logging.DEBUG, "ok"
        try:
            yield line
        except GeneratorExit:  # the caller did not read the scan to its end
            outcome = "left"
            raise
        except Unavailable as error:
            level, outcome = logging.WARNING, f"{error.code}: {error}"
            raise
        except Failure as error:
            outcome = error.code
            raise
        except BaseException as error:
            level, outcome = logging.WARNING, type(error).__name__
            raise
        finally:
            line["ms"] = round((self._clock.monotonic() - begin) * 1000, 3)
            line["outcome"] = outcome
            self._log.log(level, "%s", json.dumps(line))
