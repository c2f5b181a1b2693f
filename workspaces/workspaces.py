"""The workspaces of one account: their records, opening them, and what is private.

What belongs to one agent, one user, or one user with one agent lives in a *private* workspace. It is
a workspace like every other, under an id that nobody can create (`agent:…`, `user:…`,
`user:…:agent:…`), made when it is first needed, and left out of lists unless it is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workspaces.account import Principal
from workspaces.beneath import as_failure
from workspaces.catalog import Catalog, Family
from workspaces.clock import Clock
from workspaces.configuration import WorkspaceRecord
from workspaces.errors import AlreadyExists, NotFound, Refused
from workspaces.history.history import History
from workspaces.history.origins import Origins
from workspaces.home import Home
from workspaces.ids import AgentId, UserId, WorkspaceId, namespace, new_id
from workspaces.records import RecordStore
from workspaces.stamp import stamp_of
from workspaces.stores.files import FileBlobs
from workspaces.workspace import Workspace
from workspaces.writer import WriterLock

WORKSPACES = Family("workspace", "ws", WorkspaceRecord)

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
    ) -> None:
        self._principal = principal
        self._home = home
        self._clock = clock
        self._template = template
        self._catalog = Catalog(
            WORKSPACES, principal.account_id, records, clock, check=_check_storage
        )
        self._open: dict[WorkspaceId, Workspace] = {}
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
        fields = {"name": name, "description": description or "", "config": dict(config or {})}
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

    def list(self, *, private: bool = False) -> list[WorkspaceRecord]:
        return [record for record in self._catalog.list() if private or not is_private(record.id)]

    def private(self, workspace_id: WorkspaceId, *, create: bool) -> Workspace | None:
        """A private workspace; without `create` None when nothing was ever kept there."""
        try:
            return self.get(workspace_id)
        except NotFound:
            if not create:
                return None
        try:
            self._make_storage(workspace_id)
            self._catalog.create({"name": workspace_id}, record_id=workspace_id)
        except AlreadyExists:
            pass  # somebody needed it in the same instant
        return self.get(workspace_id)

    def patch(self, reference: str, patch: Mapping[str, Any]) -> WorkspaceRecord:
        record = self._catalog.patch(reference, patch)
        with self._open_lock:
            self._open.pop(record.id, None)
        return record

    def delete(self, reference: str) -> Path:
        """Delete a workspace: its record goes, its files and history are moved to the trash of this
        home. Returns where they lie."""
        workspace = self.get(reference)
        record, name = workspace.record, workspace.namespace
        place = self._home.trash(name, stamp_of(self._clock.now()))
        with WriterLock(self._home.lock(name)).hold("a deletion"):
            self._catalog.delete(record.id)
            try:
                place.mkdir(mode=0o700)
                self._home.tree(name).rename(place / "files")
                self._home.history(name).rename(place / "history.git")
                workspace.origins.forget()
            except OSError as error:
                raise as_failure(error, str(place)) from error
        with self._open_lock:
            self._open.pop(record.id, None)
        return place

    def tidy(self) -> None:
        """Housekeeping of the histories that were opened here, where it is due."""
        with self._open_lock:
            opened = list(self._open.values())
        for workspace in opened:
            if workspace.needs_packing:
                workspace.tidy()

    def open(self, record: WorkspaceRecord) -> Workspace:
        with self._open_lock:
            workspace = self._open.get(record.id)
            if workspace is None or workspace.record != record:
                workspace = self._open[record.id] = self._opened(record)
            return workspace

    def _make_storage(self, workspace_id: WorkspaceId) -> None:
        name = namespace(self._principal.account_id, workspace_id)
        self._home.prepare_namespace(name)
        with WriterLock(self._home.lock(name)).hold("a creation"):
            if not self._home.history(name).exists():
                History.create(self._home.history(name), self._clock)

    def _opened(self, record: WorkspaceRecord) -> Workspace:
        name = namespace(self._principal.account_id, record.id)
        try:
            self._home.hand_over(name)
        except OSError as error:
            raise as_failure(error, str(self._home.tree(name))) from error
        history = History(self._home.history(name), self._clock)
        return Workspace(
            record,
            name,
            root=self._home.tree(name),
            blobs=FileBlobs(
                self._home.tree(name),
                self._home.staging(name),
                bytes_max=record.config.quota.file_bytes,
            ),
            history=history,
            origins=Origins(self._home.search(name), history),
            lock=WriterLock(self._home.lock(name)),
            person=self._principal.author("edit"),
            clock=self._clock,
        )


def _check_storage(record: WorkspaceRecord) -> None:
    """Kept where it was asked to be kept, or refused: never silently somewhere else."""
    if record.config.storage.provider != "local":
        rule = "cannot be used: this home has no S3 location"
        remedy = "leave it out, or say local: workspaces in S3 come with a later version"
        raise Refused(
            "config.storage.provider", record.config.storage.provider, rule, remedy=remedy
        )


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
