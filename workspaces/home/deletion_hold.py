"""Hold off deletions while a backup reads the home.

A backup copies the records first, and then what they refer to: large values, trees, histories. A deletion in
between would leave a reference without its target. So a backup holds one lock file exclusively, and every
deletion of such a target holds it shared for as long as it takes. A deletion never waits for a backup. It
is refused as Busy; a job is then put off, and a person tries again.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from workspaces.coordination.writer_lock import open_lock_file, try_lock
from workspaces.errors import Busy
from workspaces.home.layout import Home
from workspaces.storage.blobs import NO_META, Blob, BlobName, BlobStore, Expect, Meta, Stat, Token

WAIT_FOR_DELETIONS_S = 60.0
"""Seconds that a backup waits for running deletions. The largest conversation is erased in less."""

_PAUSE_S_MAX = 0.05


@contextmanager
def hold_off_deletions(home: Home, *, wait_s: float = WAIT_FOR_DELETIONS_S) -> Generator[None]:
    """Keep other processes from deleting in this home during the block.

    Raises: Busy if another backup of the home runs, or a deletion does not end in time.
    """
    with open_lock_file(home.backup_lock) as fd:
        if not try_lock(fd, time.monotonic() + wait_s, _PAUSE_S_MAX):
            raise Busy(f"home {home.root}", holder="another backup or a deletion")
        yield


@contextmanager
def deleting(home: Home) -> Generator[None]:
    """Delete something in this block to which records may refer.

    Raises: Busy while a backup runs.
    """
    with open_lock_file(home.backup_lock) as fd:
        if not try_lock(fd, time.monotonic(), _PAUSE_S_MAX, fcntl.LOCK_SH):
            raise Busy(f"home {home.root}", holder="a backup")
        yield


class HeldOffBlobs:
    """A blob store of a home in which nothing is deleted while a backup runs."""

    def __init__(self, inner: BlobStore, home: Home) -> None:
        self._inner = inner
        self._home = home

    def read(self, name: BlobName) -> Blob:
        return self._inner.read(name)

    def read_if_changed(self, name: BlobName, since: Token) -> Blob | None:
        return self._inner.read_if_changed(name, since)

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        return self._inner.write(name, data, expect=expect, meta=meta)

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        """Delete the blob.

        Raises: Busy while a backup runs. Conflict if `expect` does not hold.
        """
        with deleting(self._home):
            self._inner.delete(name, expect=expect)

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        return self._inner.scan(prefix)
