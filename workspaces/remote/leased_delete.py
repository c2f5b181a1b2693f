"""Delete conditionally in a store without conditional deletes: compare, then delete, while holding a
lease.

Some servers honour `If-Match` on PUT and not on DELETE. There the comparison and the deletion are two
requests, and another machine's deletion must not happen in between. A lease object, taken with a
conditional write, prevents that. It does not prevent another machine's write in those milliseconds. The
bytes of that write are then in that machine's history, but gone from both sides. Only a store that
honours the condition avoids this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress

from workspaces.conditions import ABSENT, ANY, is_met
from workspaces.errors import Conflict, Failure, NotFound, Unavailable
from workspaces.ids import new_id
from workspaces.storage.blobs import NO_META, Blob, BlobName, BlobStore, Expect, Meta, Stat, Token

LEASE_S = 10.0
"""Seconds after which an unchanged lease counts as abandoned, measured on this machine's clock. Two
requests take less."""

WAIT_S = 30.0
PAUSE_S = 0.2


class LeasedDelete:
    """A store that compares before each conditional deletion, if `is_needed` returns True."""

    def __init__(
        self,
        store: BlobStore,
        leases: BlobStore,
        lease: BlobName,
        *,
        is_needed: Callable[[], bool],
    ) -> None:
        """Wrap a store. `leases` must be another store, because a lease in `store` would look like a
        user's file."""
        self._store = store
        self._leases = leases
        self._lease = lease
        self._is_needed = is_needed

    def read(self, name: BlobName) -> Blob:
        return self._store.read(name)

    def read_if_changed(self, name: BlobName, since: Token) -> Blob | None:
        return self._store.read_if_changed(name, since)

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        return self._store.write(name, data, expect=expect, meta=meta)

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        return self._store.scan(prefix)

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        if expect is ANY or not self._is_needed():
            self._store.delete(name, expect=expect)
            return
        with self._hold_lease():
            try:
                there = self._store.read(name).token
            except NotFound:
                there = None
            if not is_met(expect, there):
                raise Conflict("file", name, expected=expect, actual=there)
            self._store.delete(name, expect=ANY)

    @contextmanager
    def _hold_lease(self) -> Generator[None]:
        self._acquire()
        try:
            yield
        finally:
            with suppress(Failure):  # an undeleted lease expires
                self._leases.delete(self._lease, expect=ANY)

    def _acquire(self) -> None:
        lease_id = new_id("lease").encode()
        started_at = time.monotonic()
        seen: Token | None = None
        seen_at = started_at
        while time.monotonic() - started_at < WAIT_S:
            now = time.monotonic()
            expect = seen if seen is not None and now - seen_at >= LEASE_S else ABSENT
            with suppress(Conflict):
                self._leases.write(self._lease, lease_id, expect=expect)
                return
            with suppress(NotFound):
                there = self._leases.read(self._lease).token
                if there != seen:
                    seen, seen_at = there, now
            time.sleep(PAUSE_S)
        raise Unavailable("a deletion in S3", "other machines keep deleting", remedy="sync again")
