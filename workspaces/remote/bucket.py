"""The shared bucket: a prefix in S3 where machines share their workspaces, each below its own namespace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from workspaces.conditions import ANY
from workspaces.errors import NotFound, Refused
from workspaces.forgetting.rule_records import RuleRecords
from workspaces.ids import AccountId, Namespace
from workspaces.ids import namespace as namespace_of
from workspaces.remote.leased_delete import LeasedDelete
from workspaces.remote.machine_notes import MachineNotes
from workspaces.remote.registry import (
    ENTRY_BYTES_MAX,
    InvalidEntry,
    Registry,
    StoredEntry,
    Tombstone,
    accounts_in,
)
from workspaces.remote.registry import PREFIX as RECORDS_PREFIX
from workspaces.remote.rule_exchange import RuleExchange
from workspaces.remote.s3_capabilities import Capabilities, probe
from workspaces.remote.tick_claim import TickClaims
from workspaces.storage.blobs import BlobStore, ErasedPast, PastData, Stat
from workspaces.storage.retrying import Retries, RetryingBlobs

LEASE_PREFIX = ".lease/"
ENTRIES = ".entries"
HISTORY = ".history"
NEVER_WRITTEN = ".ready"
PACK_SUFFIX = ".bundle"

SWEEP_THREADS = 32
"""Parallel deletions, as many as requests of a sync. Ten thousand files at 50 ms each take 16 s."""

RETRIES = Retries(tries_max=2)
"""Retries of a write whose answer was lost: one more try, to find out whether the write happened. The
store itself repeats requests that certainly had no effect. A longer outage is reported, and the files
stay here until it ends."""


class ObjectCensus(NamedTuple):
    """Numbers of objects of one workspace in the bucket."""

    objects: int
    """Those that are one of the files."""
    packs: int
    versions: int
    """Past versions of these files, and of the history."""


class PastNames(NamedTuple):
    """Names of which past versions hold a text."""

    files: frozenset[str]
    packs: frozenset[str]


class Prefix(BlobStore, Protocol):
    """A store that can give access to a part of itself."""

    def walk(self, prefix: str = "", *, asked: Callable[[], None] = lambda: None) -> Iterator[Stat]:
        """Yield every object, under a valid name or not. `asked` is called before each request."""
        ...

    def erase_past(self, is_erased: Callable[[str], bool]) -> ErasedPast:
        """Delete for good the past versions of some names, and the marks of deletions."""
        ...

    def past_names(self) -> Iterator[str]:
        """Yield the name of every past version."""
        ...

    def past_data(self) -> Iterator[PastData]:
        """Yield the past versions of all names, with their bytes."""
        ...

    def below(
        self, part: str, *, bytes_max: int | None = None, names_max: int | None = None
    ) -> Prefix:
        """Return the part of the store below a prefix.

        `bytes_max` limits one object that is read, `names_max` one listing.

        Raises: OverLimit, on a later read or listing, beyond these limits.
        """
        ...

    def address(self) -> str:
        """Return the real address: equal on all machines that reach this store, and different for
        another store."""
        ...

    def close(self) -> None: ...


class SharedBucket:
    """The bucket that the machines of an account share. Threads may share it. It sends no request before
    it must."""

    def __init__(self, location: str, store: Prefix) -> None:
        self.location = location
        self.store = store
        self._capabilities: Capabilities | None = None
        self._lock = threading.Lock()

    def files(self, namespace: Namespace) -> BlobStore:
        """Return the store with the files of one workspace."""
        return LeasedDelete(
            RetryingBlobs(self.store.below(namespace), RETRIES),
            self.store,
            LEASE_PREFIX + namespace,
            is_needed=lambda: not self.capabilities().conditional_delete,
        )

    def history(self, namespace: Namespace) -> BlobStore:
        """Return the store with the head and the packs of one workspace's history."""
        return RetryingBlobs(self.store.below(f"{HISTORY}/{namespace}"), RETRIES)

    def entries(self) -> BlobStore:
        """Return the store for values too large for a record, where the records are shared too."""
        return RetryingBlobs(self.store.below(ENTRIES), RETRIES)

    def walk(self, namespace: Namespace, asked: Callable[[], None]) -> Iterator[Stat]:
        return self.store.below(namespace).walk(asked=asked)

    def sweep(self, namespace: Namespace) -> None:
        """Delete all files and the history of a deleted workspace. May be repeated."""
        for part in (namespace, f"{HISTORY}/{namespace}"):
            below = RetryingBlobs(self.store.below(part), RETRIES)
            remove = partial(below.delete, expect=ANY)
            with ThreadPoolExecutor(SWEEP_THREADS) as pool:
                list(pool.map(remove, [stat.name for stat in below.scan()]))

    def erase_past(self, namespace: Namespace, paths: Collection[str]) -> ErasedPast:
        """Delete for good what the store still holds of earlier versions of some files, and of all that the
        history no longer names. May be repeated."""
        files = self.store.below(namespace).erase_past(lambda name: name in paths)
        past = self.store.below(f"{HISTORY}/{namespace}").erase_past(lambda _: True)
        return ErasedPast(files.versions + past.versions, (*files.refused, *past.refused))

    def ended_workspaces(self, account_id: AccountId) -> dict[Namespace, str]:
        """Return the workspaces of an account that were deleted, also if they were made again: namespace →
        name. A bucket may keep past versions of what they held."""
        registry = self.registry(account_id)
        keys = [key for key in registry.look().tokens if key[0] == "workspace"]
        entries = (
            one.entry for one in registry.read_all(keys).values() if isinstance(one, StoredEntry)
        )
        ended: dict[Namespace, str] = {}
        for entry in entries:
            if isinstance(entry, Tombstone):
                ended[namespace_of(account_id, entry.id)] = entry.name
            elif entry.epoch > 0:
                ended[namespace_of(account_id, entry.id)] = str(entry.record.get("name", entry.id))
        return ended

    def find_past(self, namespace: Namespace, is_held: Callable[[bytes], bool]) -> PastNames:
        """Return the files and the packs of a workspace of which a past version holds a text. This reads all
        past versions."""
        files, history = self.store.below(namespace), self.store.below(f"{HISTORY}/{namespace}")
        return PastNames(
            frozenset(one.name for one in files.past_data() if _holds(one, is_held)),
            frozenset(one.name for one in history.past_data() if _holds(one, is_held)),
        )

    def deleted_values(self) -> Iterator[PastData]:
        """Yield what the bucket still holds of large values that were deleted, of all accounts. Nobody can
        read them, and no record says whose they were."""
        values = self.store.below(ENTRIES)
        present = {stat.name for stat in values.walk()}
        for past in values.past_data():
            if past.name not in present:
                yield past._replace(name=f"{ENTRIES}/{past.name}")

    def erase_deleted_values(self, is_held: Callable[[bytes], bool]) -> ErasedPast:
        """Delete for good what the bucket still holds of deleted large values with a text."""
        names = {
            one.name.removeprefix(f"{ENTRIES}/")
            for one in self.deleted_values()
            if _holds(one, is_held)
        }
        return self.store.below(ENTRIES).erase_past(lambda name: name in names)

    def erase_past_of_account(self, account_id: AccountId, owners: Collection[str]) -> ErasedPast:
        """Delete for good what the store still holds of earlier states of an account's records, and of the
        large values below some ids. May be repeated."""
        records = self.store.below(f"{RECORDS_PREFIX}/{account_id}").erase_past(lambda _: True)
        values = self.store.below(ENTRIES)
        large = values.erase_past(lambda name: name.partition("/")[0] in owners)
        return ErasedPast(records.versions + large.versions, (*records.refused, *large.refused))

    def census(self, namespace: Namespace, paths: Collection[str]) -> ObjectCensus:
        """Count the objects that hold some files or the history of a workspace, without reading them."""
        files, history = self.store.below(namespace), self.store.below(f"{HISTORY}/{namespace}")
        return ObjectCensus(
            objects=sum(1 for stat in files.walk() if stat.name in paths),
            packs=sum(1 for stat in history.walk() if stat.name.endswith(PACK_SUFFIX)),
            versions=sum(1 for name in files.past_names() if name in paths)
            + sum(1 for _ in history.past_names()),
        )

    def held(
        self, account_id: AccountId, namespaces: Collection[Namespace], owners: Iterable[str]
    ) -> Iterator[PastData]:
        """Yield every object of an account, and every past version of one, with its bytes."""
        for part in (
            *namespaces,
            *(f"{HISTORY}/{namespace}" for namespace in namespaces),
            *(f"{ENTRIES}/{owner}" for owner in owners),
            f"{RECORDS_PREFIX}/{account_id}",
        ):
            below = self.store.below(part)
            for stat in below.walk():
                with suppress(
                    NotFound, Refused
                ):  # deleted meanwhile, or under a name that is no path
                    yield PastData(f"{part}/{stat.name}", "", below.read(stat.name).data)
            for past in below.past_data():
                yield past._replace(name=f"{part}/{past.name}")

    def registry(self, account_id: AccountId) -> Registry:
        """Return the registry of an account's records, which its machines share."""
        below = self.store.below(f"{RECORDS_PREFIX}/{account_id}", bytes_max=ENTRY_BYTES_MAX)
        return Registry(account_id, RetryingBlobs(below, RETRIES), below.walk)

    def ticks(self, account_id: AccountId) -> TickClaims:
        """Return the claims of an account's scheduled ticks, which its machines share."""
        below = self.store.below(f"{RECORDS_PREFIX}/{account_id}", bytes_max=ENTRY_BYTES_MAX)
        return TickClaims(RetryingBlobs(below, RETRIES))

    def rules(self, account_id: AccountId, records: RuleRecords) -> RuleExchange:
        """Return the exchange of what is forbidden between the machines of an account."""
        below = self.store.below(f"{RECORDS_PREFIX}/{account_id}", bytes_max=ENTRY_BYTES_MAX)
        return RuleExchange(RetryingBlobs(below, RETRIES), records)

    def machine_notes(self, account_id: AccountId) -> MachineNotes:
        """Return the notes of an account's machines."""
        below = self.store.below(f"{RECORDS_PREFIX}/{account_id}", bytes_max=ENTRY_BYTES_MAX)
        return MachineNotes(RetryingBlobs(below, RETRIES))

    def accounts(self) -> tuple[list[AccountId], list[InvalidEntry]]:
        """Return the accounts in this bucket, and the objects in their place that have no valid account
        id."""
        return accounts_in(self.store.below(RECORDS_PREFIX).walk())

    def ask(self) -> None:
        """Check that the store answers, by reading a name that no program writes.

        Raises: Unavailable if the store does not answer a read.
        """
        with suppress(NotFound):
            self.store.read(NEVER_WRITTEN)

    def check(self) -> None:
        """Check that the store keeps its conditions.

        Raises: Refused if two machines would overwrite each other's changes.
        """
        if not self.capabilities().conditional_put:
            raise Refused(
                "s3",
                self.location,
                "does not enforce conditional writes: machines would overwrite "
                "each other's changes",
                remedy="use a server that supports If-Match and If-None-Match, as S3 itself does",
            )

    def capabilities(self) -> Capabilities:
        """Return the capabilities of the store, probed once in each process."""
        with self._lock:
            if self._capabilities is None:
                self._capabilities = probe(self.store)
            return self._capabilities

    def close(self) -> None:
        self.store.close()


def _holds(past: PastData, is_held: Callable[[bytes], bool]) -> bool:
    return is_held(past.name.encode()) or is_held(past.data)
