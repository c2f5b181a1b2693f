"""Workspaces: the records. Their files and histories have routes of their own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.bootstrap.composition import PrincipalServices
from harness.web.http.body import JsonObject
from harness.web.http.record_routes import RecordRoutes, record_router
from harness.web.http.route_docs import schema_of
from workspaces.home.workspaces import is_private
from workspaces.ids import WorkspaceId
from workspaces.validation import StrictModel, parse
from workspaces.workspace_record import Description, Name, WorkspaceConfig, WorkspaceRecord


class NewWorkspace(StrictModel):
    name: Name
    description: Description | None = None
    config: WorkspaceConfig = WorkspaceConfig()
    template: Annotated[str, Field(min_length=1, max_length=100)] = "default"
    """What it begins with."""


def _create(rooms: PrincipalServices, fields: JsonObject) -> WorkspaceRecord:
    stated = parse(NewWorkspace, fields)
    workspace = rooms.workspaces.create(
        stated.name,
        template=stated.template,
        description=stated.description,
        config=stated.config.as_json(),
    )
    return workspace.record


def _get(rooms: PrincipalServices, reference: str) -> WorkspaceRecord:
    """A private workspace is seen only by those who reach its files."""
    record = rooms.workspaces.get(reference).record
    return rooms.workspaces.reach(record.id).record if is_private(record.id) else record


def _id(rooms: PrincipalServices, reference: str) -> WorkspaceId:
    return _get(rooms, reference).id


router = record_router(
    RecordRoutes(
        one="a workspace",
        plural="workspaces",
        shape=WorkspaceRecord,
        new=schema_of(NewWorkspace),
        example={
            "id": "ws_9b1f0f3c2a7d4e5b6c7d8e9f",
            "name": "notes",
            "description": "What the whole team should know.",
            "config": {"harness": {"enabled": True}},
            "createdAt": "2026-11-18T14:03:18.875130Z",
            "updatedAt": "2026-11-18T14:03:18.875130Z",
        },
        patch={"description": None, "config": {"harness": {"enabled": False}}},
        create=_create,
        list=lambda rooms: rooms.workspaces.list(),
        get=_get,
        change=lambda rooms, reference, patch: rooms.workspaces.patch(_id(rooms, reference), patch),
        delete=lambda rooms, reference, force: rooms.deletion.workspace(
            _id(rooms, reference), force=force
        ),
        about="A directory of Markdown files with a history.",
    )
)
