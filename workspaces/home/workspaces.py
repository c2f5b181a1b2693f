"""The workspaces of one account: their records, opening them, and private workspaces.

The memory of one agent, one user, or one user with one agent is in a *private* workspace. It is a workspace
like every other, with an id that no caller can create (`agent:…`, `user:…`, `user:…:agent:…`). It is
created when it is first needed, and lists leave it out unless the caller asks for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from workspaces.accounts.principal import Principal
from workspaces.accounts.record_catalog import Catalog, RecordKind
from workspaces.accounts.stored_items import partition_of
from workspaces.accounts.stored_workspace import is_private
from workspaces.clock import Clock
from workspaces.coordination.writer_lock import WriterLock
from workspaces.durability import Durable
from workspaces.errors import (
    AlreadyExists,
    Conflict,
    Deleted,
    Failure,
    Forbidden,
    NotFound,
    Refused,
    Unavailable,
)
from workspaces.forgetting.gate import ForbiddenTexts
from workspaces.history.history import History
from workspaces.home.cards import Cards
from workspaces.home.disposal import Disposal
from workspaces.home.layout import Home
from workspaces.home.opening import open_tree
from workspaces.home.unreachable import SET_PLACE, Unreachable, UnreachableFiles
from workspaces.ids import AgentId, Namespace, UserId, WorkspaceId, namespace, new_id
from workspaces.storage.blobs import Stat
from workspaces.storage.records import RecordStore
from workspaces.timestamp import stamp_of
from workspaces.workspace.protection import Protection
from workspaces.workspace.workspace import Workspace
from workspaces.workspace_record import WorkspaceRecord

if TYPE_CHECKING:
    from workspaces.remote.bucket import SharedBucket
    from workspaces.remote.registry import Registry, StoredEntry
    from workspaces.remote.remote_workspace import RemoteWorkspace
    from workspaces.search.embeddings import Embedder
    from workspaces.sync.engine import Sync

WORKSPACES = RecordKind("workspace", "ws", WorkspaceRecord)

Template = Callable[[str], Mapping[str, bytes]]
"""Returns the first files of a workspace that is made from the template of this name."""


class Workspaces:
    def __init__(
        self,
        principal: Principal,
        home: Home,
        records: RecordStore,
        clock: Clock,
        template: Template,
        *,
        embedder: Embedder | None = None,
        place: SharedBucket | None = None,
        are_records_shared: bool = False,
        revised: Callable[[WorkspaceRecord], None] = lambda _: None,
        is_over: Callable[[WorkspaceId], bool] | None = None,
        cards: Cards | None = None,
        protection: Protection | None = None,
        forbidden: ForbiddenTexts | None = None,
    ) -> None:
        """Store the dependencies.

        `embedder` adds recall by meaning. `place` is the bucket in which new workspaces are shared with other
        machines; None means that all are local. `revised` is called after every revision that this machine
        makes. `is_over` returns True if the local copy of a workspace belongs to a
        deleted epoch, according to the bucket. By default that is so if the bucket has a tombstone. `cards`
        keeps a card for each record; without it none is written. `forbidden` says what may not be written.
        """
        self._cards = cards
        self._principal = principal
        self._home = home
        self._clock = clock
        self._template = template
        partition = partition_of(principal.account_id)
        self._embedder = embedder
        self._place = place
        self._are_records_shared = are_records_shared
        self._revised = revised
        self._protection = protection
        self._forbidden = forbidden
        self._is_over = is_over or self._is_entombed
        self._catalog = Catalog(
            WORKSPACES,
            partition,
            records,
            clock,
            check=self._check_config,
            may_change=principal.may_configure,
        )
        self._private_catalog = Catalog(
            WORKSPACES, partition, records, clock, check=self._check_config
        )
        self.disposal = Disposal(
            principal.account_id,
            home,
            self._catalog,
            clock,
            open_workspace=self.open,
            release=self._release,
        )
        self._syncs: dict[WorkspaceId, Sync] = {}
        self._open: dict[WorkspaceId, Workspace] = {}
        self._remote: dict[WorkspaceId, RemoteWorkspace] = {}
        self._open_lock = threading.Lock()

    def create(
        self,
        name: str,
        *,
        template: str = "default",
        description: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Workspace:
        """Create a workspace. The record is written last, so a workspace that can be found is complete."""
        files = self._template(template)
        full_config = self._with_storage(config or {})
        fields = {"name": name, "description": description or "", "config": full_config}
        self._catalog.check_new(fields)
        workspace_id = WorkspaceId(new_id("ws"))
        self._make_storage(workspace_id)
        record = self._catalog.add(fields, record_id=workspace_id)
        self._note_card(record)
        workspace = self.open(record)
        workspace.plant(files, by=self._principal.author("api"))
        return workspace

    def open_or_create(
        self,
        name: str,
        *,
        template: str = "default",
        description: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Workspace:
        """Return the workspace with this name. Create it if there is none; else it stays as it is."""
        try:
            return self.get(name)
        except NotFound:
            pass
        try:
            return self.create(name, template=template, description=description, config=config)
        except AlreadyExists:  # another process was faster
            return self.get(name)

    def get(self, reference: str) -> Workspace:
        """Return the workspace with this id or name.

        Raises: NotFound.
        """
        return self.open(self._catalog.get(reference))

    def record(self, reference: str) -> WorkspaceRecord:
        """Return the record of the workspace with this id or name, without opening the workspace."""
        return self._catalog.get(reference)

    def remote(self, record: WorkspaceRecord) -> RemoteWorkspace:
        """Return a shared workspace for reading in S3. Nothing is created or copied on this machine."""
        with self._open_lock:
            workspace = self._remote.get(record.id)
            if workspace is None or workspace.record != record:
                workspace = self._remote[record.id] = self._new_remote(record)
            return workspace

    def reach(self, reference: str) -> Workspace:
        """Return a workspace that the principal itself may read and write.

        Raises: NotFound for a private workspace of another user. Forbidden if a user's key names a shared
        workspace: it reaches those only through an agent.
        """
        workspace = self.get(reference)
        user_id = self._principal.user_id
        if is_of_another_user(workspace.record.id, user_id):
            raise NotFound("workspace", reference)
        if not self._principal.may_configure and not is_private_to(workspace.record.id, user_id):
            raise Forbidden("access shared workspace files directly")
        return workspace

    def list(self, *, private: bool = False) -> list[WorkspaceRecord]:
        return [record for record in self._catalog.list() if private or not is_private(record.id)]

    def private(self, workspace_id: WorkspaceId, *, create: bool) -> Workspace | None:
        """Return a private workspace. Without `create`, return None if it does not exist yet."""
        try:
            return self.open(self._catalog.get(workspace_id, by=()))
        except NotFound:
            if not create:
                return None
        try:
            self._make_storage(workspace_id)
            fields = {"name": workspace_id, "config": self._with_storage({})}
            self._note_card(self._private_catalog.add(fields, record_id=workspace_id))
        except AlreadyExists:
            pass  # another process created it at the same time
        return self.get(workspace_id)

    def sync(self, reference: str) -> Sync:
        """Return the sync of a shared workspace with S3.

        Raises: Refused for a workspace that is not stored in S3.
        """
        workspace = self.get(reference)
        sync = self._syncs.get(workspace.record.id)
        if sync is not None:
            return sync
        if not workspace.record.is_shared:
            rule = "is stored only on this machine"
            remedy = "create it with --storage s3, or set config.storage.provider"
            raise Refused("workspace", workspace.record.name, rule, remedy=remedy)
        raise _no_bucket()

    def patch(self, reference: str, patch: Mapping[str, Any]) -> WorkspaceRecord:
        record = self._catalog.patch(reference, patch)
        self._note_card(record)
        self._close(record.id)
        return record

    def adopt(
        self, fields: Mapping[str, Any], *, instead_of: Mapping[str, Any] | None
    ) -> WorkspaceRecord:
        """Store the record of a shared workspace that another machine has published. See `Catalog.adopt`."""
        before = None if instead_of is None else _stored_in_s3(instead_of)
        record = self._catalog.adopt(_stored_in_s3(fields), instead_of=before)
        self._note_card(record)
        self._close(record.id)
        return record

    def restore_record(self, record: WorkspaceRecord) -> None:
        """Store a lost record again, for files that are still here.

        Raises: AlreadyExists if another workspace has its name. Refused if its storage cannot be used.
        """
        self._catalog.adopt(record.as_json(), instead_of=None)

    def create_around(self, name: str, bring: Callable[[Namespace], None]) -> WorkspaceRecord:
        """Create a workspace whose files are here already. `bring` moves them to its namespace."""
        fields = {"name": name, "config": self._with_storage({})}
        self._catalog.check_new(fields)
        workspace_id = WorkspaceId(new_id("ws"))
        bring(self._namespace(workspace_id))
        self._make_storage(workspace_id)
        record = self._catalog.add(fields, record_id=workspace_id)
        self._note_card(record)
        return record

    def write_missing_cards(self) -> None:
        """Write the cards of workspaces that have none.

        Raises: Unavailable if the disk does not take them.
        """
        for record in self._catalog.list():
            if self._cards is not None and not self._cards.has(self._namespace(record.id)):
                self._cards.write(record)

    def delete(self, reference: str) -> Path:
        """Delete a workspace. Its record is deleted; its files and history move to the trash of this home.

        Return their directory in the trash.

        A shared workspace is deleted for every machine. Its tombstone is written to the bucket before
        anything is done on this machine. Its objects in the bucket are deleted last. If that is interrupted,
        the next machine that syncs continues.

        Raises: Unavailable if the tombstone cannot be written. Forbidden without the right. NotFound.
        """
        if not self._principal.may_configure:
            raise Forbidden("delete workspaces")
        record = self._catalog.get(reference)
        tombstone = self._write_tombstone(record) if record.is_shared else None
        trashed = self.disposal.of_record(record, "here")
        if tombstone is not None:
            with suppress(Failure):  # the next machine that syncs continues
                self.sweep(tombstone)
        return trashed.place

    def sweep(self, stored: StoredEntry) -> None:
        """Delete the objects of a deleted workspace from the bucket, and mark its tombstone as swept."""
        from workspaces.remote.registry import Tombstone, swept

        tombstone = stored.entry
        if self._place is None or not isinstance(tombstone, Tombstone):
            return
        self._place.sweep(self._namespace(WorkspaceId(tombstone.id)))
        if not tombstone.is_swept:
            with suppress(Conflict):  # another machine has already marked it
                self._registry().write("workspace", swept(tombstone), expect=stored.token)

    def untidy(self) -> list[WorkspaceId]:
        """Return the workspaces that this process has opened and whose history is due for packing."""
        with self._open_lock:
            workspaces = list(self._open.values())
        return [workspace.record.id for workspace in workspaces if workspace.history.needs_packing]

    def tidy(self, workspace_id: WorkspaceId) -> None:
        """Pack the history of a workspace, if that is due.

        Raises: NotFound, WorkspaceBusy.
        """
        workspace = self.get(workspace_id)
        if workspace.history.needs_packing:
            workspace.tidy()

    def flush(self, workspace_id: WorkspaceId) -> bool:
        """Push files and history that are only on this machine to S3. Return True if S3 now has all of them.

        Raises: NotFound, Unavailable.
        """
        report = self.sync(workspace_id).push_dirty()
        if report.unfollowed is not None:
            raise report.unfollowed
        return report.durable == Durable(files="s3", history="s3")

    def open(self, record: WorkspaceRecord) -> Workspace:
        with self._open_lock:
            workspace = self._open.get(record.id)
            if workspace is None or workspace.record != record:
                workspace = self._open[record.id] = self._new_workspace(record)
            return workspace

    def _note_card(self, record: WorkspaceRecord) -> None:
        if self._cards is not None:
            self._cards.note(record)

    def _write_tombstone(self, record: WorkspaceRecord) -> StoredEntry:
        """Write the tombstone of a workspace to the bucket and return it."""
        now = stamp_of(self._clock.now())
        try:
            return self._registry().write_tombstone("workspace", record.id, record.name, now)
        except Unavailable as error:
            raise Unavailable(error.what, error.reason, remedy=_DELETED_EVERYWHERE) from error

    def _namespace(self, workspace_id: WorkspaceId) -> Namespace:
        return namespace(self._principal.account_id, workspace_id)

    def _registry(self) -> Registry:
        if self._place is None:
            raise _no_bucket()
        return self._place.registry(self._principal.account_id)

    def _release(self, workspace_id: WorkspaceId) -> None:
        """Close a workspace and drop its caches, so that no later call reads or writes it."""
        with self._open_lock:
            workspace = self._open.get(workspace_id)
        if workspace is not None:
            workspace.file_origins.close()
            workspace.origins.close()
            workspace.recall.close()
        self._close(workspace_id)

    def _close(self, workspace_id: WorkspaceId) -> None:
        with self._open_lock:
            self._open.pop(workspace_id, None)
            self._remote.pop(workspace_id, None)
            sync = self._syncs.pop(workspace_id, None)
        if sync is not None:
            sync.close()

    def _with_storage(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config with its storage: S3 if the home has a bucket and the config names none."""
        if self._place is None or "storage" in config:
            return dict(config)
        return {**config, "storage": {"provider": "s3"}}

    def _make_storage(self, workspace_id: WorkspaceId) -> None:
        name = self._namespace(workspace_id)
        self._home.prepare_namespace(name)
        with WriterLock(self._home.lock(name)).hold("a creation"):
            if not self._home.history(name).exists():
                History.create(self._home.history(name), self._clock)

    def has_copy(self, record: WorkspaceRecord) -> bool:
        """Return True if this machine has a copy of the workspace.

        Opening a shared workspace without a copy creates its directories, which the next sync fills.
        """
        return self._had_copy(self._namespace(record.id))

    def _had_copy(self, name: Namespace) -> bool:
        """Return True if this machine has the history, or has synced it and lost it."""
        return self._home.history(name).exists() or self._home.sync(name).exists()

    def _new_workspace(self, record: WorkspaceRecord) -> Workspace:
        name = self._namespace(record.id)
        if record.is_shared and not self._had_copy(name):
            self._make_storage(record.id)  # another machine created it: the first sync fetches it
        if not self._home.tree(name).is_dir():
            raise self._missing_files(record, name)
        workspace = open_tree(
            record,
            name,
            self._home,
            self._principal,
            self._clock,
            embedder=self._embedder,
            protection=self._protection,
            forbidden=self._forbidden,
        )
        workspace.edits.on_revision = lambda: self._revised(record)
        if record.is_shared:
            if self._place is None:
                workspace.share(Unreachable(), are_records_shared=self._are_records_shared)
            else:
                sync = self._syncs[record.id] = self._new_sync(workspace, self._place)
                workspace.share(sync, are_records_shared=self._are_records_shared)
        return workspace

    def _missing_files(self, record: WorkspaceRecord, name: Namespace) -> Unavailable:
        """Return the error for a workspace whose directory is missing.

        Raises: NotFound if the workspace was deleted in this moment.
        """
        self._catalog.get(record.id)
        tree, remedy = self._home.tree(name), "put it back, or mount its file system"
        if record.is_shared:
            baseline = self._home.sync(name)
            steps = f"to fetch its files from S3 again, create it, remove {baseline}, and sync"
        else:
            restore = f"`harness restore {record.name} PATH --revision R`"
            steps = (
                f"its history still exists: create the directory, then run {restore} for each file "
                "(`harness log` lists the revisions)"
            )
        return Unavailable(
            f"files of {record.name}", f"{tree} is missing", remedy=f"{remedy}; {steps}"
        )

    def _new_remote(self, record: WorkspaceRecord) -> RemoteWorkspace:
        from workspaces.remote.remote_workspace import RemoteWorkspace

        name, quota = self._namespace(record.id), record.config.quota
        if self._place is None:
            return RemoteWorkspace(record, name, UnreachableFiles())
        blobs = self._place.store.below(name, bytes_max=quota.file_bytes, names_max=quota.files)
        return RemoteWorkspace(record, name, blobs)

    def _new_sync(self, workspace: Workspace, place: SharedBucket) -> Sync:
        from workspaces.sync.baseline import Baseline
        from workspaces.sync.engine import Sync
        from workspaces.sync.outbox import Outbox
        from workspaces.sync.replication import Replication

        name, workspace_id = workspace.namespace, workspace.record.id
        baseline = Baseline(self._home.sync(name))
        lock = WriterLock(self._home.sync_lock(name))

        def check() -> None:
            """Check the server's support of conditions, once a day: servers rarely stop supporting them."""
            today = f"{place.store.address()} {self._clock.now():%Y-%m-%d}"
            if baseline.fact("checked") != today:
                place.check()
                baseline.note("checked", today)

        def listed(expected: int, asked: Callable[[], None]) -> Iterator[Stat]:
            """List the files in the bucket. If files are missing, check if the workspace was deleted.

            A deletion writes its tombstone before it removes files, so the tombstone is read after the list.
            """
            stats = list(place.walk(name, asked))
            if not stats or len(stats) < expected:
                check_life()
            return iter(stats)

        def check_life() -> None:
            if self._is_over(workspace_id):
                raise Deleted("workspace", workspace.record.name)

        return Sync(
            workspace,
            place.files(name),
            baseline,
            place=place.store.address,
            check=check,
            listing=listed,
            alone=lambda: lock.hold("sync"),
            outbox=Outbox(self._home.outbox(name)),
            erase_past=partial(place.erase_past, name),
            replication=Replication(
                workspace.history,
                place.history(name),
                baseline,
                now=lambda: self._clock.now().timestamp(),
                check_life=check_life,
            ),
        )

    def _is_entombed(self, workspace_id: WorkspaceId) -> bool:
        from workspaces.remote.registry import Tombstone

        stored = self._registry().read("workspace", workspace_id)
        return stored is not None and isinstance(stored.entry, Tombstone)

    def _check_config(self, record: WorkspaceRecord, before: WorkspaceRecord | None) -> None:
        """Raise Refused for a quota above its maximum, and for a storage that cannot be used in this home.

        Files are never silently stored somewhere else.
        """
        record.config.quota.check_change(before.config.quota if before else None)
        provider = record.config.storage.provider
        if provider == "s3" and self._place is None:
            raise _no_bucket()
        if provider == "local" and self._are_records_shared:
            rule = (
                "cannot be used: other machines share the records but could not reach local files"
            )
            raise Refused("config.storage.provider", provider, rule, remedy=SET_PLACE)


def _no_bucket() -> Refused:
    rule = "cannot be used: this home has no S3 location"
    return Refused("config.storage.provider", "s3", rule, remedy=SET_PLACE)


_DELETED_EVERYWHERE = (
    "the deletion must be published to all machines: try again when S3 is reachable. To remove it only "
    "from this machine, run `harness workspace set W --storage local` first"
)


def shared_json(record: WorkspaceRecord) -> dict[str, Any]:
    """Return the record as it is published to other machines: without its storage, which they know."""
    fields = record.as_json()
    config = {name: value for name, value in fields.get("config", {}).items() if name != "storage"}
    return {**fields, "config": config}


def _stored_in_s3(fields: Mapping[str, Any]) -> dict[str, Any]:
    config = fields.get("config", {})
    if not isinstance(config, Mapping):
        raise Refused("config", config, "must be an object")
    return {
        **fields,
        "config": {**cast("Mapping[str, Any]", config), "storage": {"provider": "s3"}},
    }


def is_of_another_user(workspace_id: WorkspaceId, user_id: UserId) -> bool:
    return workspace_id.startswith("user:") and workspace_id.split(":")[1] != user_id


def private_to_agent(agent_id: AgentId) -> WorkspaceId:
    return WorkspaceId(f"agent:{agent_id}")


def private_to_user(user_id: UserId) -> WorkspaceId:
    return WorkspaceId(f"user:{user_id}")


def private_to_both(user_id: UserId, agent_id: AgentId) -> WorkspaceId:
    return WorkspaceId(f"user:{user_id}:agent:{agent_id}")


def is_private_to(workspace_id: WorkspaceId, owner_id: AgentId | UserId) -> bool:
    """Return True if this workspace is deleted together with this agent or user."""
    return is_private(workspace_id) and owner_id in workspace_id.split(":")
