"""The workspaces of one account: their records, and opening them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from workspaces.account import Principal
from workspaces.catalog import Catalog, Family
from workspaces.clock import Clock
from workspaces.configuration import WorkspaceRecord
from workspaces.history import History
from workspaces.home import Home
from workspaces.ids import WorkspaceId, namespace, new_id
from workspaces.records import RecordStore
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
        self._catalog = Catalog(WORKSPACES, principal.account_id, records, clock)
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

    def list(self) -> list[WorkspaceRecord]:
        return self._catalog.list()

    def patch(self, reference: str, patch: Mapping[str, Any]) -> WorkspaceRecord:
        record = self._catalog.patch(reference, patch)
        with self._open_lock:
            self._open.pop(record.id, None)
        return record

    def open(self, record: WorkspaceRecord) -> Workspace:
        with self._open_lock:
            workspace = self._open.get(record.id)
            if workspace is None or workspace.record != record:
                workspace = self._open[record.id] = self._opened(record)
            return workspace

    def _make_storage(self, workspace_id: WorkspaceId) -> None:
        name = namespace(self._principal.account_id, workspace_id)
        self._home.prepare_namespace(name)
        History.create(self._home.history(name), self._clock)

    def _opened(self, record: WorkspaceRecord) -> Workspace:
        name = namespace(self._principal.account_id, record.id)
        return Workspace(
            record,
            name,
            root=self._home.tree(name),
            blobs=FileBlobs(
                self._home.tree(name),
                self._home.staging(name),
                bytes_max=record.config.quota.file_bytes,
            ),
            history=History(self._home.history(name), self._clock),
            lock=WriterLock(self._home.lock(name)),
            person=self._principal.author("edit"),
            clock=self._clock,
        )
