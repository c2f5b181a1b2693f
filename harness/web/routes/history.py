"""The history of a workspace, in the same JSON as the command line's `--json`.

What was edited by hand a moment ago is made a revision first, so that it is part of every answer; where
somebody else is at work in the workspace, the answer comes without it and says so in a header.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as QueryOf
from pydantic import Field

from harness.presentation.file_json import (
    change_document,
    difference_document,
    line_document,
    problem_document,
    reverted_document,
    revision_document,
    written_document,
)
from harness.web.http.body import Fields
from harness.web.http.caller import Caller, CallerWorkspace, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    NUMBER,
    READING_JSON,
    TEXT,
    TEXT_OR_NULL,
    Count,
    Query,
    Schema,
    Switch,
    answers,
    list_of,
    object_of,
    refusals,
    schema_of,
    takes,
)
from harness.web.routes.files import DURABLE, WRITTEN, WRITTEN_EXAMPLE
from workspaces.errors import WorkspaceBusy
from workspaces.history.history import HEAD
from workspaces.paths import WorkspacePath
from workspaces.validation import StrictModel, parse
from workspaces.workspace.workspace import Workspace

router = APIRouter(
    route_class=Route,
    prefix="/v1/workspaces/{id}",
    tags=["history"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)

REVISION: Schema = object_of(
    {
        "revision": TEXT,
        "at": TEXT,
        "author": TEXT,
        "subject": TEXT,
        "trailers": {"type": "object", "additionalProperties": TEXT},
        "paths": list_of(TEXT),
        "files": list_of({"type": "object"}),
    },
    optional=["files"],
)
REVISION_EXAMPLE = {
    "revision": WRITTEN_EXAMPLE["revision"],
    "at": "2026-11-18T14:03:18.875130Z",
    "author": "helper",
    "subject": "MEMORY.md: +1 −0 · prefers concise summaries",
    "trailers": {"Conversation": "conv_3209466d330e97045582eec6 c1", "Source": "turn"},
    "paths": ["MEMORY.md"],
}
DIFFERENCE: Schema = object_of(
    {
        "path": TEXT,
        "kind": {"enum": ["added", "deleted", "changed"]},
        "binary": {"type": "boolean"},
        "added": NUMBER,
        "removed": NUMBER,
        "patch": TEXT,
        "words": list_of(list_of(TEXT)),
    },
    optional=["words"],
)
LINE: Schema = object_of(
    {
        "line_number": NUMBER,
        "text": TEXT,
        "revision": TEXT,
        "at": TEXT,
        "author": TEXT,
        "conversation": TEXT_OR_NULL,
        "turn": TEXT_OR_NULL,
    }
)
PROBLEM: Schema = object_of({"path": TEXT, "kind": TEXT, "detail": TEXT})


class Logging(Query):
    path: str | None = None
    """Only what touched this file."""
    limit: Count = 50
    patch: Switch = False
    """With what each revision changed."""


class Differing(Query):
    path: str | None = None
    """Only this file."""
    older: Annotated[str | None, Field(alias="from")] = None
    """The older revision; else the one before `to`."""
    newer: Annotated[str, Field(alias="to")] = HEAD
    words: Switch = False
    """Word by word too."""


class Blaming(Query):
    path: str
    revision: str = HEAD
    """The file as it was at this revision."""


class Restoring(StrictModel):
    path: str
    revision: str


class Reverting(StrictModel):
    revision: str


@router.get(
    "/log",
    summary="List the revisions, newest first",
    response_model=None,
    responses=answers(list_of(REVISION), [REVISION_EXAMPLE]),
)
def log(place: CallerWorkspace, query: Annotated[Logging, QueryOf()]) -> Json:
    """Each is one act of one writer: a turn of an agent (with its conversation), an edit by hand, a
    call of this API."""
    headers = _settle(place)
    file = WorkspacePath(query.path) if query.path else None
    if query.patch:
        changes = place.history.changes(path=file, limit=query.limit)
        return Json([change_document(change) for change in changes], headers=headers)
    revisions = place.log(file, limit=query.limit)
    return Json([revision_document(revision) for revision in revisions], headers=headers)


@router.get(
    "/diff",
    summary="Compare two revisions",
    response_model=None,
    responses=answers(
        object_of({"from": TEXT_OR_NULL, "to": TEXT_OR_NULL, "files": list_of(DIFFERENCE)})
    ),
)
def diff(place: CallerWorkspace, query: Annotated[Differing, QueryOf()]) -> Json:
    """Without `from`: what the last revision up to `to` (that touched `path`, if stated) changed."""
    headers = _settle(place)
    file = WorkspacePath(query.path) if query.path else None
    if query.older is None:
        changes = place.history.changes(path=file, start=query.newer, limit=1)
        before = next((p for change in changes for p in change.revision.parents), None)
        after = next((change.revision.id for change in changes), None)
        files = changes[0].files if changes else ()
    else:
        found = place.history.diff(query.older, query.newer, path=file)
        before, after, files = found.older, found.newer, found.files
    told = [difference_document(file, by_words=query.words) for file in files]
    return Json({"from": before, "to": after, "files": told}, headers=headers)


@router.get(
    "/blame",
    summary="Say for each line of a file who wrote it",
    response_model=None,
    responses=answers(list_of(LINE)),
)
def blame(place: CallerWorkspace, query: Annotated[Blaming, QueryOf()]) -> Json:
    headers = _settle(place)
    lines = place.history.blame(WorkspacePath(query.path), query.revision)
    return Json([line_document(line) for line in lines], headers=headers)


@router.post(
    "/restore",
    summary="Bring a file back to what it was",
    response_model=None,
    responses={**answers(WRITTEN, WRITTEN_EXAMPLE), **refusals(409, *READING_JSON)},
    openapi_extra=takes(
        schema_of(Restoring), {"path": "MEMORY.md", "revision": WRITTEN_EXAMPLE["revision"]}
    ),
)
def restore(caller: Caller, place: CallerWorkspace, fields: Fields) -> Json:
    """As it was at a revision, or gone if it was not there then: as a new revision."""
    stated = parse(Restoring, fields)
    by = caller.principal.author("api")
    return Json(written_document(place.restore(stated.path, stated.revision, by=by)))


@router.post(
    "/revert",
    summary="Undo one revision",
    response_model=None,
    responses={
        **answers(object_of({"reverted": TEXT, "revision": TEXT_OR_NULL, "durable": DURABLE})),
        **refusals(409, *READING_JSON),
    },
    openapi_extra=takes(schema_of(Reverting), {"revision": WRITTEN_EXAMPLE["revision"]}),
)
def revert(caller: Caller, place: CallerWorkspace, fields: Fields) -> Json:
    """What it did is taken back, what was done since stays. Refused where the same lines were changed
    again since."""
    revision = parse(Reverting, fields).revision
    made = place.revert(revision, by=caller.principal.author("api"))
    return Json(reverted_document(revision, made))


@router.get(
    "/problems",
    summary="List what cannot be kept",
    response_model=None,
    responses=answers(
        list_of(PROBLEM), [{"path": "a:b", "kind": "bad_name", "detail": "contains ':'"}]
    ),
)
def problems(place: CallerWorkspace) -> Json:
    """Files that stay where they are, out of the history and every prompt, and why; and, as `clock`, the
    newest revision that says it was made more than a day from now."""
    return Json([problem_document(problem) for problem in place.problems()])


def _settle(place: Workspace) -> dict[str, str]:
    try:
        place.commit_edits()
    except WorkspaceBusy:
        return {"X-Harness-Note": "edits by hand are not yet part of this: the workspace is busy"}
    return {}
