"""The place: a prefix in S3 where machines share their workspaces, one namespace below the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Protocol

from workspaces.conditions import ANY
from workspaces.errors import NotFound, Refused
from workspaces.ids import AccountId, Namespace
from workspaces.remote.leased_delete import LeasedDelete
from workspaces.remote.registry import ENTRY_BYTES_MAX, InvalidEntry, Registry, accounts_in
from workspaces.remote.registry import PREFIX as RECORDS_PREFIX
from workspaces.remote.remote_workspace import FileListing
from workspaces.remote.s3_capabilities import Capabilities, probe
from workspaces.storage.blobs import BlobStore, Stat
from workspaces.storage.retrying import Retries, RetryingBlobs

LEASE_PREFIX = ".lease/"
ENTRIES = ".entries"
HISTORY = ".history"
NOBODYS = ".ready"

SWEEP_THREADS = 32
"""As many as a sync has: ten thousand files at 50 ms each take 16 s."""

RETRIES = Retries(tries_max=2)
"""Of a write whose answer was lost: once more, to find out what became of it. The store itself repeats
what certainly had no effect; a longer outage is told, and the files stay here until it is over."""


class Prefix(BlobStore, Protocol):
    """A store of which a part can be had."""

    def walk(
        self,
        prefix: str = "",
        *,
        known: Sequence[str] = (),
        asked: Callable[[], None] = lambda: None,
    ) -> Iterator[Stat]:
        """Every object, under a good name or not. `known`: names that were there, ascending, by which a
        long listing may be cut. `asked` is called with each request."""
        ...

    def below(
        self, part: str, *, bytes_max: int | None = None, names_max: int | None = None
    ) -> Prefix:
        """`bytes_max`: of one object that is read. `names_max`: of one listing. OverLimit beyond."""
        ...

    def address(self) -> str:
        """Where it really is: the same for all machines that reach it, another for another store."""
        ...

    def close(self) -> None: ...


class SharedBucket:
    """Threads may share it. Nothing is asked of the store before it is needed."""

    def __init__(self, location: str, store: Prefix) -> None:
        self.location = location
        self._store = store
        self._honesty: Capabilities | None = None
        self._lock = threading.Lock()

    def files(self, namespace: Namespace) -> BlobStore:
        """The objects of one workspace."""
        return LeasedDelete(
            RetryingBlobs(self._store.below(namespace), RETRIES),
            self._store,
            LEASE_PREFIX + namespace,
            is_needed=lambda: not self.honesty().conditional_delete,
        )

    def shelf(self, namespace: Namespace, *, bytes_max: int, names_max: int) -> FileListing:
        """The objects of one workspace, to be read where they are."""
        return self._store.below(namespace, bytes_max=bytes_max, names_max=names_max)

    def history(self, namespace: Namespace) -> BlobStore:
        """The head and the packs of one workspace's history."""
        return RetryingBlobs(self._store.below(f"{HISTORY}/{namespace}"), RETRIES)

    def entries(self) -> BlobStore:
        """What is too large for a record, where the records are shared too."""
        return RetryingBlobs(self._store.below(ENTRIES), RETRIES)

    def walk(
        self, namespace: Namespace, known: Sequence[str], asked: Callable[[], None]
    ) -> Iterator[Stat]:
        return self._store.below(namespace).walk(known=known, asked=asked)

    def sweep(self, namespace: Namespace) -> None:
        """Remove everything of a workspace that is over: its files and its history. May be repeated."""
        for part in (namespace, f"{HISTORY}/{namespace}"):
            below = RetryingBlobs(self._store.below(part), RETRIES)
            remove = partial(below.delete, expect=ANY)
            with ThreadPoolExecutor(SWEEP_THREADS) as pool:
                list(pool.map(remove, [stat.name for stat in below.scan()]))

    def roster(self, account_id: AccountId) -> Registry:
        """What the machines of an account tell each other of its records."""
        below = self._store.below(f"{RECORDS_PREFIX}/{account_id}", bytes_max=ENTRY_BYTES_MAX)
        return Registry(account_id, RetryingBlobs(below, RETRIES), below.walk)

    def accounts(self) -> tuple[list[AccountId], list[InvalidEntry]]:
        """Those that somebody has told of here, and what lies there under no account's id."""
        return accounts_in(self._store.below(RECORDS_PREFIX).walk())

    def address(self) -> str:
        return self._store.address()

    def ask(self) -> None:
        """Raise Unavailable unless the store answers a read. It is asked for what nobody writes."""
        with suppress(NotFound):
            self._store.read(NOBODYS)

    def check(self) -> None:
        """Refused where two machines would overwrite each other."""
        if not self.honesty().conditional_put:
            raise Refused(
                "s3",
                self.location,
                "accepts conditions on writes and does not keep them: machines would overwrite "
                "each other's changes",
                remedy="use a server that honours If-Match and If-None-Match, as S3 itself does",
            )

    def honesty(self) -> Capabilities:
        """Found out by trying, once in a process."""
        with self._lock:
            if self._honesty is None:
                self._honesty = probe(self._store)
            return self._honesty

    def close(self) -> None:
        self._store.close()
