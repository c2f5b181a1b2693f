"""The archives of one user: conversations that the user's facts cite.

An archive is one record for each conversation of a provider, and the blobs of its snapshots. A citation is a
record for each fact that cites it: which snapshot, and the groundings in full. For other users an archive
does not exist.

    archives:<account>:<user> / <archive id>        provider, uuid, title, project, snapshots
    archive-citations:<archive id> / <fact id>      workspace, key, snapshot, groundings, metadata
    <archive id>/<hash>-<random>.zst                a snapshot, in the store of large values

A snapshot is written before the record that names it, under a name that is never used twice. The record
changes with every citation, so whoever drops a snapshot has seen all citations. A deletion marks the record
first: an interrupted one is finished by the next call that meets it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

from harness.memorize.archive.snapshot import ArchiveSnapshot, read_snapshot
from harness.memorize.local.local_message import LocalConversation, LocalMessage
from harness.transcripts.large_values import LargeValues
from workspaces.accounts.principal import Principal
from workspaces.clock import Clock
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict, NotFound, OverLimit
from workspaces.ids import ID_HEX_DIGITS, AccountId, ConversationId, UserId, WorkspaceId
from workspaces.storage.blobs import BlobStore
from workspaces.storage.contention import until_written
from workspaces.storage.records import (
    Condition,
    Delete,
    Item,
    JsonObject,
    Key,
    Put,
    RecordStore,
    with_prefix,
)
from workspaces.timestamp import Stamp, stamp_of

SNAPSHOTS_MAX = 200
"""Snapshots of one conversation that facts may cite: what fits into a record."""

UNWRITTEN_MAX = timedelta(hours=1)
"""Age from which a citation without its fact is dropped. A younger one may precede its fact."""

DELETED_AT_ONCE = 100

_ID = re.compile(rf"arc_[0-9a-f]{{{ID_HEX_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class KeptSnapshot:
    """A snapshot of an archive, by its hash."""

    hash: str
    name: str
    messages: int
    size: int
    """Its compressed bytes."""
    at: Stamp


@dataclass(frozen=True, slots=True)
class ArchivedConversation:
    id: str
    about: LocalConversation
    snapshots: tuple[KeptSnapshot, ...]
    """The oldest first. The last one is the conversation as it is known."""
    created_at: Stamp
    updated_at: Stamp
    counter: Condition = field(default=ABSENT, compare=False)

    def find(self, snapshot: str) -> KeptSnapshot | None:
        return next((one for one in self.snapshots if one.hash == snapshot), None)

    def as_json(self) -> dict[str, Any]:
        newest = self.snapshots[-1]
        return {
            "id": self.id,
            "conversation_id": self.about.id,
            "provider": self.about.provider,
            "title": self.about.title,
            "project": self.about.project,
            "parent": self.about.parent,
            "messages": newest.messages,
            "snapshot": newest.hash,
            "snapshots": [
                {"hash": one.hash, "messages": one.messages, "bytes": one.size, "at": one.at}
                for one in self.snapshots
            ],
            "created_at": self.created_at,
            "updated_at": self.updated_at,
        }


@dataclass(frozen=True, slots=True)
class Citation:
    """What a fact cites of a conversation."""

    fact_id: str
    workspace_id: WorkspaceId
    key: str
    snapshot: str
    groundings: tuple[JsonObject, ...]
    metadata: JsonObject
    at: Stamp


class Archives:
    """The archives of one principal."""

    def __init__(
        self, principal: Principal, records: RecordStore, large: BlobStore, clock: Clock
    ) -> None:
        self._account_id, self._user_id = principal.account_id, principal.user_id
        self._partition = _partition(principal.account_id, principal.user_id)
        self._records = records
        self._large = large
        self._clock = clock

    def list(self) -> list[ArchivedConversation]:
        """Return the archives, those that changed last first."""
        found = [_archive(item) for item in with_prefix(self._records, self._partition, "arc_")]
        alive = [one for one in found if one is not None]
        return sorted(alive, key=_by_update, reverse=True)

    def get(self, reference: str) -> ArchivedConversation:
        """Return the archive with this id, or of the conversation with this id.

        Raises: NotFound, also for the archive of another user; Conflict if conversations of several providers
        have this id.
        """
        if _ID.fullmatch(reference) is not None:
            item = self._records.get(Key(self._partition, reference))
            found = [_archive(item)] if item is not None else []
        else:
            found = [one for one in self.list() if one.about.id == reference]
        alive = [one for one in found if one is not None]
        if not alive:
            raise NotFound("conversation", reference)
        if len(alive) > 1:
            names = [one.id for one in alive]
            raise Conflict("conversation", reference, expected="one", actual=names)
        return alive[0]

    def of(self, provider: str, uuid: str) -> ArchivedConversation | None:
        """Return the archive of a conversation, if there is one."""
        item = self._records.get(Key(self._partition, self.id_of(provider, uuid)))
        return None if item is None else _archive(item)

    def id_of(self, provider: str, uuid: str) -> str:
        whole = "\0".join([self._account_id, self._user_id, provider, uuid])
        return "arc_" + sha256(whole.encode()).hexdigest()[:ID_HEX_DIGITS]

    @until_written("the archive")
    def keep(
        self, about: LocalConversation, snapshot: ArchiveSnapshot, citation: Citation
    ) -> ArchivedConversation:
        """Store the newest snapshot of a conversation and what a fact cites of it.

        Raises: OverLimit; Unavailable.
        """
        archive_id = self.id_of(about.provider, about.id)
        before = self._alive(archive_id)
        kept = None if before is None else before.find(snapshot.hash)
        newest = kept or self._write(archive_id, snapshot)
        try:
            after = self._after(archive_id, before, about, newest)
            return replace(after, counter=self._store(after, citation))
        except (OverLimit, Conflict):
            if kept is None:
                self._large.delete(newest.name, expect=ANY)
            raise

    def messages(
        self, archive: ArchivedConversation, snapshot: str | None = None
    ) -> Iterator[LocalMessage]:
        """Yield the messages of the newest snapshot, or of the one with this hash.

        Raises: NotFound if there is no such snapshot; Unavailable.
        """
        kept = archive.snapshots[-1] if snapshot is None else archive.find(snapshot)
        if kept is None:
            raise NotFound("snapshot", str(snapshot))
        yield from read_snapshot(self._large.read(kept.name).data)

    def citation(self, archive: ArchivedConversation, fact_id: str) -> Citation | None:
        item = self._records.get(Key(_citations(archive.id), fact_id))
        return None if item is None else self._citation(archive.id, item)

    def citations(self, archive: ArchivedConversation) -> Sequence[Citation]:
        items = with_prefix(self._records, _citations(archive.id), "mem_")
        return [self._citation(archive.id, item) for item in items]

    def drop(self, archive: ArchivedConversation, fact_id: str) -> None:
        """Forget what a fact cites, because the fact is gone."""
        key = Key(_citations(archive.id), fact_id)
        item = self._records.get(key)
        if item is not None:
            self._records.write(Delete(key))
            self._values(archive.id).forget(item.value)

    def prune(self, archive_id: str, exists: Callable[[Citation], bool]) -> None:
        """Delete the snapshots that no fact cites, except the newest. `exists` says if a fact is there.

        If the archive changes meanwhile, the next call does it.
        """
        archive = self._alive(archive_id)
        if archive is None or len(archive.snapshots) < 2:
            return
        newest = archive.snapshots[-1].hash
        old = [one for one in self.citations(archive) if one.snapshot != newest]
        dead = [one for one in old if self._is_old(one) and not exists(one)]
        live = {newest, *(one.snapshot for one in old if one not in dead)}
        kept = tuple(one for one in archive.snapshots if one.hash in live)
        gone = [one for one in archive.snapshots if one.hash not in live]
        if not gone:
            return
        try:
            self._records.write(_put(self._partition, replace(archive, snapshots=kept)))
        except Conflict:
            return
        for one in gone:
            self._large.delete(one.name, expect=ANY)
        for one in dead:
            self.drop(archive, one.fact_id)

    def delete(self, reference: str) -> ArchivedConversation:
        """Delete an archive. Facts that cite it stay, and have no proof from then on.

        Raises: NotFound.
        """
        if _ID.fullmatch(reference) is not None:
            self._alive(reference)  # an interrupted deletion is finished
        archive = self.get(reference)
        self._erase(Key(self._partition, archive.id))
        return archive

    def delete_of(self, user_id: UserId) -> int:
        """Delete all archives of a user who is being deleted. Return their number."""
        partition = _partition(self._account_id, user_id)
        items = with_prefix(self._records, partition, "arc_")
        for item in items:
            self._erase(item.key)
        return len(items)

    def _alive(self, archive_id: str) -> ArchivedConversation | None:
        """Return the archive, after finishing a deletion that was interrupted."""
        key = Key(self._partition, archive_id)
        item = self._records.get(key)
        if item is None:
            return None
        archive = _archive(item)
        if archive is None:
            self._erase(key)
        return archive

    def _erase(self, key: Key) -> None:
        """Delete an archive with its parts. The record is marked first and goes last."""
        item = self._records.get(key)
        if item is None:
            return
        self._records.write(Put(key, {**item.value, "isDeleted": True}))
        self._values(key.sort).erase()
        partition = _citations(key.sort)
        while found := self._records.scan(partition, limit=DELETED_AT_ONCE):
            self._records.write(*(Delete(one.key) for one in found))
        self._records.write(Delete(key))

    def _write(self, archive_id: str, snapshot: ArchiveSnapshot) -> KeptSnapshot:
        name = f"{archive_id}/{snapshot.hash[:16]}-{secrets.token_hex(8)}.zst"
        self._large.write(name, snapshot.data, expect=ABSENT)
        now = stamp_of(self._clock.now())
        return KeptSnapshot(snapshot.hash, name, snapshot.messages, len(snapshot.data), now)

    def _after(
        self,
        archive_id: str,
        before: ArchivedConversation | None,
        about: LocalConversation,
        newest: KeptSnapshot,
    ) -> ArchivedConversation:
        now = stamp_of(self._clock.now())
        older = () if before is None else before.snapshots
        snapshots = (*(one for one in older if one.hash != newest.hash), newest)
        if len(snapshots) > SNAPSHOTS_MAX:
            what = "snapshots of one conversation"
            raise OverLimit(
                what, maximum=SNAPSHOTS_MAX, actual=len(snapshots), unit="snapshots that facts cite"
            )
        if before is None:
            return ArchivedConversation(archive_id, about, snapshots, now, now)
        return replace(before, about=about, snapshots=snapshots, updated_at=now)

    def _store(self, archive: ArchivedConversation, citation: Citation) -> Condition:
        """Write the record and the citation in one batch.

        Raises: Conflict if another caller came first.
        """
        values, key = self._values(archive.id), Key(_citations(archive.id), citation.fact_id)
        before = self._records.get(key)
        value: JsonObject = {
            "workspaceId": citation.workspace_id,
            "key": citation.key,
            "snapshot": citation.snapshot,
            "groundings": list(citation.groundings),
            "metadata": citation.metadata,
            "at": citation.at,
        }
        put = Put(key, value, ABSENT if before is None else before.counter)
        put = values.fitting(put, f"{citation.fact_id}-{secrets.token_hex(8)}")
        try:
            counter, _ = self._records.write(_put(self._partition, archive), put)
        except Conflict:
            values.forget(put.value)
            raise
        if before is not None:
            values.forget(before.value)
        return counter

    def _values(self, archive_id: str) -> LargeValues:
        return LargeValues(ConversationId(archive_id), self._large)

    def _citation(self, archive_id: str, item: Item) -> Citation:
        value = self._values(archive_id).value(item.value)
        return Citation(
            item.key.sort,
            WorkspaceId(value["workspaceId"]),
            value["key"],
            value["snapshot"],
            groundings=tuple(value["groundings"]),
            metadata=value["metadata"],
            at=Stamp(value["at"]),
        )

    def _is_old(self, citation: Citation) -> bool:
        return citation.at < stamp_of(self._clock.now() - UNWRITTEN_MAX)


def _partition(account_id: AccountId, user_id: UserId) -> str:
    return f"archives:{account_id}:{user_id}"


def _citations(archive_id: str) -> str:
    return f"archive-citations:{archive_id}"


def _put(partition: str, archive: ArchivedConversation) -> Put:
    about = archive.about
    value: JsonObject = {
        "provider": about.provider,
        "uuid": about.id,
        "title": about.title,
        "project": about.project,
        "parent": about.parent,
        "createdAt": archive.created_at,
        "updatedAt": archive.updated_at,
        "snapshots": [
            [one.hash, one.name, one.messages, one.size, one.at] for one in archive.snapshots
        ],
    }
    return Put(Key(partition, archive.id), value, expect=archive.counter)


def _archive(item: Item) -> ArchivedConversation | None:
    """Return the archive of a record; None if it is being deleted."""
    value = item.value
    if value.get("isDeleted"):
        return None
    about = LocalConversation(
        value["uuid"],
        value["provider"],
        value["title"],
        value["project"],
        Stamp(value["updatedAt"]),
        parent=value["parent"],
    )
    snapshots = tuple(KeptSnapshot(*one) for one in value["snapshots"])
    created, updated = Stamp(value["createdAt"]), Stamp(value["updatedAt"])
    return ArchivedConversation(item.key.sort, about, snapshots, created, updated, item.counter)


def _by_update(archive: ArchivedConversation) -> tuple[str, str]:
    return archive.updated_at, archive.id
