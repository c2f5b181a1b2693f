"""The workspaces of one account: their records, opening them, and what is private.

What belongs to one agent, one user, or one user with one agent lives in a *private* workspace. It is
a workspace like every other, under an id that nobody can create (`agent:…`, `user:…`,
`user:…:agent:…`), made when it is first needed, and left out of lists unless it is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from workspaces.accounts.account import Principal
from workspaces.accounts.record_catalog import Catalog, RecordKind, partition_of
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
from workspaces.history.history import History
from workspaces.history.line_origins import LineOrigins
from workspaces.home.disposal import Disposal
from workspaces.home.layout import Home
from workspaces.home.trash import TrashEntry, Why
from workspaces.ids import AgentId, Namespace, UserId, WorkspaceId, namespace, new_id
from workspaces.localfs.safe_open import as_failure
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.remote.bucket import SharedBucket
from workspaces.remote.registry import Registry, StoredEntry, Tombstone, swept
from workspaces.remote.remote_workspace import RemoteWorkspace
from workspaces.search.embeddings import Embedder
from workspaces.search.recall import Recall
from workspaces.storage.blobs import Blob, Stat
from workspaces.storage.records import RecordStore
from workspaces.sync.baseline import Baseline
from workspaces.sync.engine import Sync
from workspaces.sync.outbox import Outbox
from workspaces.sync.replication import Replication
from workspaces.timestamp import stamp_of
from workspaces.tree.directory import FileBlobs
from workspaces.workspace.workspace import Workspace
from workspaces.workspace_record import WorkspaceRecord

WORKSPACES = RecordKind("workspace", "ws", WorkspaceRecord)

Template = Callable[[str], Mapping[str, bytes]]
"""The first files of a workspace made from the template of this name."""


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
        revised: Callable[[WorkspaceId], None] = lambda _: None,
        is_over: Callable[[WorkspaceId], bool] | None = None,
    ) -> None:
        """`embedder`: for recall by meaning too. `place`: where new workspaces are shared with other
        machines; None: all are local. `revised` hears of every revision that is made here in a workspace
        that is shared. `is_over`: whether what is here of a workspace belongs to a life that is over, by what
        the place says now; None: when there is a tombstone."""
        self._principal = principal
        self._home = home
        self._clock = clock
        self._template = template
        partition = partition_of(principal.account_id)
        self._embedder = embedder
        self._place = place
        self._are_records_shared = are_records_shared
        self._revised = revised
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
        self._burial = Disposal(
            principal.account_id,
            home,
            self._catalog,
            clock,
            opened=self.open,
            let_go=self._let_go,
        )
        self._syncs: dict[WorkspaceId, Sync] = {}
        self._open: dict[WorkspaceId, Workspace] = {}
        self._distant: dict[WorkspaceId, RemoteWorkspace] = {}
        self._open_lock = threading.Lock()

    def create(
        self,
        name: str,
        *,
        template: str = "default",
        description: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Workspace:
        """The record comes last: a workspace that can be found is complete."""
        files = self._template(template)
        stated = self._placed(config or {})
        fields = {"name": name, "description": description or "", "config": stated}
        self._catalog.check_new(fields)
        workspace_id = WorkspaceId(new_id("ws"))
        self._make_storage(workspace_id)
        record = self._catalog.create(fields, record_id=workspace_id)
        workspace = self.open(record)
        workspace.plant(files, by=self._principal.author("api"))
        return workspace

    def get(self, reference: str) -> Workspace:
        """By id or name."""
        return self.open(self._catalog.get(reference))

    def record(self, reference: str) -> WorkspaceRecord:
        """By id or name, without opening it."""
        return self._catalog.get(reference)

    def distant(self, record: WorkspaceRecord) -> RemoteWorkspace:
        """One that is kept in S3, to be read there: nothing is made or brought here."""
        with self._open_lock:
            found = self._distant.get(record.id)
            if found is None or found.record != record:
                found = self._distant[record.id] = self._seen_from_afar(record)
            return found

    def reach(self, reference: str) -> Workspace:
        """What the principal itself may read and write. What is private to another user does not
        exist for it; a user's key reaches no shared workspace but through an agent."""
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
        """A private workspace; without `create` None when nothing was ever kept there."""
        try:
            return self.open(self._catalog.get(workspace_id, by=()))
        except NotFound:
            if not create:
                return None
        try:
            self._make_storage(workspace_id)
            fields = {"name": workspace_id, "config": self._placed({})}
            self._private_catalog.create(fields, record_id=workspace_id)
        except AlreadyExists:
            pass  # somebody needed it in the same instant
        return self.get(workspace_id)

    def sync(self, reference: str) -> Sync:
        """What keeps a workspace and S3 the same. Refused for one that is not kept there."""
        workspace = self.get(reference)
        found = self._syncs.get(workspace.record.id)
        if found is not None:
            return found
        if not workspace.record.is_shared:
            rule = "is kept on this machine alone"
            remedy = "say --storage s3 when you make one, or set config.storage.provider"
            raise Refused("workspace", workspace.record.name, rule, remedy=remedy)
        raise _no_place()

    def patch(self, reference: str, patch: Mapping[str, Any]) -> WorkspaceRecord:
        record = self._catalog.patch(reference, patch)
        self._close(record.id)
        return record

    def adopt(
        self, told: Mapping[str, Any], *, instead_of: Mapping[str, Any] | None
    ) -> WorkspaceRecord:
        """A shared workspace as another machine tells of it. See `Catalog.adopt`."""
        before = None if instead_of is None else _kept_there(instead_of)
        record = self._catalog.adopt(_kept_there(told), instead_of=before)
        self._close(record.id)
        return record

    def delete(self, reference: str) -> Path:
        """Delete a workspace: its record goes, its files and history are moved to the trash of this
        home. Returns where they lie.

        One that is shared is deleted for every machine, and that is said in the place before anything is
        done here: Unavailable when it cannot be said. What of it lies in the place then goes last, and
        if that is interrupted, whoever syncs next goes on with it."""
        if not self._principal.may_configure:
            raise Forbidden("delete workspaces")
        record = self._catalog.get(reference)
        tombstone = self._entombed(record) if record.is_shared else None
        buried = self._burial.of_record(record, "here")
        if tombstone is not None:
            with suppress(Failure):
                self.sweep(tombstone)
        return buried.place

    def bury(self, workspace_id: WorkspaceId, *, why: Why, name: str = "") -> TrashEntry | None:
        """What is here of a life that is over goes to the trash. See `Disposal.of`."""
        return self._burial.of(workspace_id, why=why, name=name)

    def sweep(self, seen: StoredEntry) -> None:
        """Remove from the place what was deleted, and say that it is done."""
        tombstone = seen.entry
        if self._place is None or not isinstance(tombstone, Tombstone):
            return
        self._place.sweep(self._namespace(WorkspaceId(tombstone.id)))
        if not tombstone.is_swept:
            with suppress(Conflict):  # somebody else has said it
                self._roster().write("workspace", swept(tombstone), expect=seen.token)

    def untidy(self) -> list[WorkspaceId]:
        """Of those that were opened here, the ones whose history is due for packing."""
        with self._open_lock:
            opened = list(self._open.values())
        return [workspace.record.id for workspace in opened if workspace.needs_packing]

    def tidy(self, workspace_id: WorkspaceId) -> None:
        """Housekeeping of a history, where it is due. NotFound, WorkspaceBusy."""
        workspace = self.get(workspace_id)
        if workspace.needs_packing:
            workspace.tidy()

    def flush(self, workspace_id: WorkspaceId) -> bool:
        """Files and history to S3, where something is only here; whether all of it is there now. NotFound,
        Unavailable."""
        report = self.sync(workspace_id).push_dirty()
        if report.unfollowed is not None:
            raise report.unfollowed
        return report.durable == Durable(files=True, history=True)

    def open(self, record: WorkspaceRecord) -> Workspace:
        with self._open_lock:
            workspace = self._open.get(record.id)
            if workspace is None or workspace.record != record:
                workspace = self._open[record.id] = self._opened(record)
            return workspace

    def _entombed(self, record: WorkspaceRecord) -> StoredEntry:
        """The tombstone of a workspace, as it stands in the place from now on."""
        now = stamp_of(self._clock.now())
        try:
            return self._roster().entomb("workspace", record.id, record.name, now)
        except Unavailable as error:
            raise Unavailable(error.what, error.reason, remedy=_DELETED_EVERYWHERE) from error

    def _namespace(self, workspace_id: WorkspaceId) -> Namespace:
        return namespace(self._principal.account_id, workspace_id)

    def _roster(self) -> Registry:
        if self._place is None:
            raise _no_place()
        return self._place.roster(self._principal.account_id)

    def _let_go(self, workspace_id: WorkspaceId) -> None:
        """Nobody reads or writes it any more, nor what is known by heart of it."""
        with self._open_lock:
            opened = self._open.get(workspace_id)
        if opened is not None:
            opened.origins.forget()
            opened.recall.forget()
        self._close(workspace_id)

    def _close(self, workspace_id: WorkspaceId) -> None:
        with self._open_lock:
            self._open.pop(workspace_id, None)
            self._distant.pop(workspace_id, None)
            sync = self._syncs.pop(workspace_id, None)
        if sync is not None:
            sync.close()

    def _placed(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A new workspace is shared where the home is set to that, unless it says otherwise."""
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
        """Whether anything of it lies on this machine. To open one that is shared makes a place for it, which
        the next sync fills."""
        return self._was_here(self._namespace(record.id))

    def _was_here(self, name: Namespace) -> bool:
        """Whether its history is here, or was lost, since it was synced from here."""
        return self._home.history(name).exists() or self._home.sync(name).exists()

    def _opened(self, record: WorkspaceRecord) -> Workspace:
        name = self._namespace(record.id)
        if record.is_shared and not self._was_here(name):
            self._make_storage(record.id)  # another machine has made it: the first sync brings it
        if not self._home.tree(name).is_dir():
            raise self._lost_files(record, name)
        try:
            self._home.hand_over(name)
        except OSError as error:
            raise as_failure(error, str(self._home.tree(name))) from error
        history = History(self._home.history(name), self._clock)
        blobs = FileBlobs(
            self._home.tree(name),
            self._home.staging(name),
            bytes_max=record.config.quota.file_bytes,
        )
        origins = LineOrigins(self._home.search(name), history)
        workspace = Workspace(
            record,
            name,
            root=self._home.tree(name),
            blobs=blobs,
            history=history,
            origins=origins,
            recall=Recall(
                self._home.search(name), blobs, history, origins, self._clock, self._embedder
            ),
            lock=WriterLock(self._home.lock(name)),
            person=self._principal.owner.author("edit"),
            clock=self._clock,
        )
        if record.is_shared:
            if self._place is None:
                workspace.share(_OutOfReach())
            else:
                sync = self._syncs[record.id] = self._synced(workspace, self._place)
                workspace.share(sync, lambda: self._revised(record.id))
        return workspace

    def _lost_files(self, record: WorkspaceRecord, name: Namespace) -> Unavailable:
        """NotFound for one that was deleted in this moment."""
        self._catalog.get(record.id)
        tree, remedy = self._home.tree(name), "put it back, or mount what it lies on"
        if record.is_shared:
            baseline = self._home.sync(name)
            anew = f"to fetch its files from S3 again, make it, remove {baseline}, and sync"
        else:
            bring = f"`harness restore {record.name} PATH --revision R`"
            anew = f"its history is here: make it, and {bring} as `harness log` names them"
        return Unavailable(
            f"files of {record.name}", f"{tree} is missing", remedy=f"{remedy}; {anew}"
        )

    def _seen_from_afar(self, record: WorkspaceRecord) -> RemoteWorkspace:
        name, quota = self._namespace(record.id), record.config.quota
        if self._place is None:
            return RemoteWorkspace(record, name, _OutOfReach())
        shelf = self._place.shelf(name, bytes_max=quota.file_bytes, names_max=quota.files)
        return RemoteWorkspace(record, name, shelf)

    def _synced(self, workspace: Workspace, place: SharedBucket) -> Sync:
        name, workspace_id = workspace.namespace, workspace.record.id
        baseline = Baseline(self._home.sync(name))
        lock = WriterLock(self._home.sync_lock(name))

        def check() -> None:
            """Once a day: a server does not often begin to lie."""
            today = f"{place.address()} {self._clock.now():%Y-%m-%d}"
            if baseline.fact("checked") != today:
                place.check()
                baseline.note("checked", today)

        def listed(known: Sequence[str], asked: Callable[[], None]) -> Iterator[Stat]:
            """Where files are gone, the whole workspace may be. A deletion is said before anything goes, so
            it is asked for after what is there was."""
            found = list(place.walk(name, known, asked))
            if not found or len(found) < len(known):
                check_life()
            return iter(found)

        def check_life() -> None:
            if self._is_over(workspace_id):
                raise Deleted("workspace", workspace.record.name)

        return Sync(
            workspace,
            place.files(name),
            baseline,
            place=place.address,
            check=check,
            listing=listed,
            alone=lambda: lock.hold("sync"),
            outbox=Outbox(self._home.outbox(name)),
            replication=Replication(
                workspace.history,
                place.history(name),
                baseline,
                now=lambda: self._clock.now().timestamp(),
                check_life=check_life,
            ),
        )

    def _is_entombed(self, workspace_id: WorkspaceId) -> bool:
        there = self._roster().read("workspace", workspace_id)
        return there is not None and isinstance(there.entry, Tombstone)

    def _check_config(self, record: WorkspaceRecord, before: WorkspaceRecord | None) -> None:
        """Refuse a quota past its maximum, and a place that is not to be had: files are never silently
        kept somewhere else."""
        record.config.quota.check_change(before.config.quota if before else None)
        provider = record.config.storage.provider
        if provider == "s3" and self._place is None:
            raise _no_place()
        if provider == "local" and self._are_records_shared:
            rule = (
                "cannot be used: the records are shared with other machines, and its files were not"
            )
            raise Refused("config.storage.provider", provider, rule, remedy=SET_PLACE)


SET_PLACE = "set HARNESS_S3=s3://bucket/prefix, or `s3:` in harness.yaml"


def _no_place() -> Refused:
    rule = "cannot be used: this home has no S3 location"
    return Refused("config.storage.provider", "s3", rule, remedy=SET_PLACE)


_DELETED_EVERYWHERE = (
    "it is deleted for all machines, so they must be told: try again when S3 can be reached. To remove "
    "it from this machine alone, say `harness workspace set W --storage local` first"
)


def told(record: WorkspaceRecord) -> dict[str, Any]:
    """What other machines are told of a shared workspace: all but where it is kept, which they know."""
    stated = record.as_json()
    config = {name: value for name, value in stated.get("config", {}).items() if name != "storage"}
    return {**stated, "config": config}


def _kept_there(told_of: Mapping[str, Any]) -> dict[str, Any]:
    config = told_of.get("config", {})
    if not isinstance(config, Mapping):
        raise Refused("config", config, "must be an object")
    return {
        **told_of,
        "config": {**cast("Mapping[str, Any]", config), "storage": {"provider": "s3"}},
    }


class _OutOfReach:
    """Of a workspace that is shared, opened in a home that does not say where: its files can be read and
    edited, and nothing can be decided about them."""

    def decide(self, path: WorkspacePath, data: bytes | None) -> Callable[[], None]:
        del path, data
        raise _unreachable()

    def refresh(self, path: WorkspacePath) -> None:
        del path
        raise _unreachable()

    def problems(self) -> list[Problem]:
        return []

    def read(self, name: str) -> Blob:
        del name
        raise _unreachable()

    def walk(self, prefix: str = "") -> Iterator[Stat]:
        del prefix
        raise _unreachable()


def _unreachable() -> Unavailable:
    return Unavailable("S3", "this home has no S3 location", remedy=SET_PLACE)


def is_of_another_user(workspace_id: WorkspaceId, user_id: UserId) -> bool:
    return workspace_id.startswith("user:") and workspace_id.split(":")[1] != user_id


def private_to_agent(agent_id: AgentId) -> WorkspaceId:
    return WorkspaceId(f"agent:{agent_id}")


def private_to_user(user_id: UserId) -> WorkspaceId:
    return WorkspaceId(f"user:{user_id}")


def private_to_both(user_id: UserId, agent_id: AgentId) -> WorkspaceId:
    return WorkspaceId(f"user:{user_id}:agent:{agent_id}")


def is_private(workspace_id: WorkspaceId) -> bool:
    return ":" in workspace_id


def is_private_to(workspace_id: WorkspaceId, owner_id: AgentId | UserId) -> bool:
    """Whether it goes when this agent or user goes."""
    return is_private(workspace_id) and owner_id in workspace_id.split(":")
