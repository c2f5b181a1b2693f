"""Routes of workspace records. `files` and `history` have the routes of their content."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.web.http.body import JsonObject
from harness.web.http.record_routes import RecordRoutes, record_router
from harness.web.http.route_docs import schema_of
from workspaces.accounts.stored_workspace import is_private
from workspaces.ids import WorkspaceId
from workspaces.validation import StrictModel, parse
from workspaces.workspace_record import Description, Name, WorkspaceConfig, WorkspaceRecord


class NewWorkspace(StrictModel):
    name: Name
    description: Description | None = None
    config: WorkspaceConfig = WorkspaceConfig()
    template: Annotated[str, Field(min_length=1, max_length=100)] = "default"
    """The template of the first files."""


def _create(services: PrincipalServices, fields: JsonObject) -> WorkspaceRecord:
    new = parse(NewWorkspace, fields)
    workspace = services.workspaces.create(
        new.name,
        template=new.template,
        description=new.description,
        config=new.config.as_json(),
    )
    return workspace.record


def _get(services: PrincipalServices, reference: str) -> WorkspaceRecord:
    """Return the record of a workspace. A caller sees a private one only if it may read its files."""
    record = services.workspaces.get(reference).record
    return services.workspaces.reach(record.id).record if is_private(record.id) else record


def _id(services: PrincipalServices, reference: str) -> WorkspaceId:
    return _get(services, reference).id


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
        list=lambda services: services.workspaces.list(),
        get=_get,
        change=lambda services, reference, patch: services.workspaces.patch(
            _id(services, reference), patch
        ),
        delete=lambda services, reference, force: services.deletion.workspace(
            _id(services, reference), force=force
        ),
        about="A directory of Markdown files with a history.",
    )
)
