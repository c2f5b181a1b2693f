"""Routes of the history of a workspace, with the same JSON as `--json` on the command line.

Edits by hand are committed first, so that every response includes them. If another process is writing to the
workspace, the response does not include them and says so in a header.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi import Query as QueryOf
from pydantic import Field

from harness.presentation.file_json import (
    change_document,
    difference_document,
    line_document,
    problem_document,
    revision_document,
    undone_document,
    written_document,
)
from harness.web.http.body import Fields
from harness.web.http.caller import Caller, CallerWorkspace, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.pagination import PAGE, in_camel_case, page_model, page_of, whole
from harness.web.http.preference import APPLIED, PREFER, may_wait
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    Count,
    Query,
    Switch,
    answers,
    left_out,
    refusals,
    schema_of,
    takes,
)
from harness.web.routes.files.files import WAITS, WRITTEN_EXAMPLE, DurableDocument, WrittenDocument
from workspaces.errors import Refused, Unavailable, WorkspaceBusy
from workspaces.history.history import HEAD, View
from workspaces.paths import WorkspacePath
from workspaces.revision import Revision
from workspaces.validation import StrictModel, parse
from workspaces.workspace.workspace import Workspace

LOG_PAGE_MAX = 1_000
"""Revisions in one answer. With their changes, each may be long."""

router = APIRouter(
    route_class=Route,
    prefix="/v1/workspaces/{id}",
    tags=["history"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)


class RevisionDocument(StrictModel):
    """One act of one writer."""

    revision: str
    at: str
    author: str
    subject: str
    trailers: dict[str, str]
    paths: list[str]
    files: list[dict[str, Any]] = left_out()
    """The changes, if they were asked for."""


REVISION_EXAMPLE = {
    "revision": WRITTEN_EXAMPLE["revision"],
    "at": "2026-11-18T14:03:18.875130Z",
    "author": "helper",
    "subject": "MEMORY.md: +1 −0 · prefers concise summaries",
    "trailers": {"Conversation": "conv_3209466d330e97045582eec6 c1", "Source": "turn"},
    "paths": ["MEMORY.md"],
}


class DifferenceDocument(StrictModel):
    """The change of a file."""

    path: str
    kind: Literal["added", "deleted", "changed"]
    binary: bool
    added: int
    removed: int
    patch: str
    size: int = left_out()
    words: list[list[str]] = left_out()


class DiffDocument(StrictModel):
    """The changes between two revisions."""

    older: Annotated[str | None, Field(alias="from")]
    newer: Annotated[str | None, Field(alias="to")]
    files: list[DifferenceDocument]
    next_cursor: str | None


class LineDocument(StrictModel):
    """A line of a file, with its author."""

    line_number: int
    text: str
    revision: str
    at: str
    author: str
    conversation: str | None
    turn: str | None


class FileProblemDocument(StrictModel):
    """A file that cannot be versioned."""

    path: str
    kind: str
    detail: str


class LeftFileDocument(StrictModel):
    """A file that was not changed."""

    path: str
    message: str


class UndoneDocument(StrictModel):
    """The result of an undo."""

    reverted: str
    revision: str | None
    files: list[str]
    left: list[LeftFileDocument]
    durable: DurableDocument


class LogQuery(Query):
    path: str | None = None
    """Only revisions that changed this file."""
    limit: Annotated[Count, Field(le=LOG_PAGE_MAX)] = PAGE
    cursor: Annotated[str, Field(max_length=100)] | None = None
    """The `nextCursor` of the previous page. Newer revisions do not move it."""
    patch: Switch = False
    """Include the changes of each revision."""


class DiffQuery(Query):
    path: str | None = None
    """Only this file."""
    older: Annotated[str | None, Field(alias="from")] = None
    """The older revision; default: the one before `to`."""
    newer: Annotated[str, Field(alias="to")] = HEAD
    words: Switch = False
    """Also compare word by word."""


class BlameQuery(Query):
    path: str
    revision: str = HEAD
    """Read the file at this revision."""


class RestoreRequest(StrictModel):
    path: str
    revision: str


class RevertRequest(StrictModel):
    revision: str


@router.get(
    "/log",
    summary="List the revisions, newest first",
    responses=answers(
        page_model("revisions", RevisionDocument), whole("revisions", [REVISION_EXAMPLE])
    ),
)
def log(place: CallerWorkspace, query: Annotated[LogQuery, QueryOf()]) -> Json:
    """List the revisions.

    Each is one act of one writer: a turn of an agent (with its conversation), an edit by hand, or a call of
    this API.
    """
    headers = _commit_edits(place)
    file = WorkspacePath(query.path) if query.path else None
    newest, skip = _log_place(query.cursor, place)
    read = place.history.changes if query.patch else place.history.log
    entries = read(path=file, start=newest, skip=skip, limit=query.limit + 1)
    rows = [
        revision_document(one) if isinstance(one, Revision) else change_document(one)
        for one in entries
    ]
    following = f"{newest}.{skip + query.limit}"
    page = page_of("revisions", rows, query.limit, shown=lambda row: row, place=lambda _: following)
    return Json(page, headers=headers)


@router.get(
    "/diff",
    summary="Compare two revisions",
    responses=answers(DiffDocument),
)
def diff(place: CallerWorkspace, query: Annotated[DiffQuery, QueryOf()]) -> Json:
    """Compare two revisions.

    Without `from`, show the changes of the last revision up to `to`; with `path`, of the last that changed
    it.
    """
    headers = _commit_edits(place)
    file = WorkspacePath(query.path) if query.path else None
    if query.older is None:
        changes = place.history.changes(path=file, start=query.newer, limit=1)
        before = next((p for change in changes for p in change.revision.parents), None)
        after = next((change.revision.id for change in changes), None)
        files = changes[0].files if changes else ()
    else:
        difference = place.history.diff(query.older, query.newer, path=file)
        before, after, files = difference.older, difference.newer, difference.files
    documents = [difference_document(file, by_words=query.words) for file in files]
    document = {"from": before, "to": after, **whole("files", documents)}
    return Json(document, headers=headers)


@router.get(
    "/blame",
    summary="Show the author of each line of a file",
    responses=answers(page_model("lines", LineDocument)),
)
def blame(place: CallerWorkspace, query: Annotated[BlameQuery, QueryOf()]) -> Json:
    headers = _commit_edits(place)
    lines = place.history.blame(WorkspacePath(query.path), query.revision)
    documents = [in_camel_case(line_document(line)) for line in lines]
    return Json(whole("lines", documents), headers=headers)


@router.post(
    "/restore",
    summary="Restore a file",
    responses={
        **answers(WrittenDocument, WRITTEN_EXAMPLE),
        **answers(WrittenDocument, WRITTEN_EXAMPLE, status=202, description=WAITS),
        **refusals(409, 422, *READING_JSON),
    },
    openapi_extra={
        "parameters": [PREFER],
        **takes(
            schema_of(RestoreRequest),
            {"path": "MEMORY.md", "revision": WRITTEN_EXAMPLE["revision"]},
        ),
    },
)
def restore(request: Request, caller: Caller, place: CallerWorkspace, fields: Fields) -> Json:
    """Restore a file to its state at a revision, as a new revision.

    If the revision does not have the file, the file is deleted.
    """
    body = parse(RestoreRequest, fields)
    by = caller.principal.author("api")
    waits = may_wait(request.headers)
    written = place.decided.restore(body.path, body.revision, by=by, may_wait=waits)
    return Json(
        written_document(written),
        202 if written.is_undecided else 200,
        APPLIED if written.is_undecided else None,
    )


@router.post(
    "/revert",
    summary="Undo one revision",
    responses={
        **answers(UndoneDocument),
        **answers(UndoneDocument, status=202, description=WAITS),
        **refusals(409, 422, *READING_JSON),
    },
    openapi_extra={
        "parameters": [PREFER],
        **takes(schema_of(RevertRequest), {"revision": WRITTEN_EXAMPLE["revision"]}),
    },
)
def revert(request: Request, caller: Caller, place: CallerWorkspace, fields: Fields) -> Json:
    """Undo the changes of a revision and keep later ones.

    It goes by lines. If a line of the revision was rewritten since, nothing is changed, and the error has the
    code `conflict` and the `lines`.

    Where several servers share the records, S3 decides about each file in turn. `files` lists those that were
    changed, `left` those that were not, because another server changed them in between.
    """
    revision = parse(RevertRequest, fields).revision
    by, waits = caller.principal.author("api"), may_wait(request.headers)
    made = place.undo(revision, by=by, may_wait=waits)
    return Json(
        undone_document(revision, made),
        202 if made.is_undecided else 200,
        APPLIED if made.is_undecided else None,
    )


@router.get(
    "/problems",
    summary="List files that cannot be versioned",
    responses=answers(
        page_model("problems", FileProblemDocument),
        whole("problems", [{"path": "a:b", "kind": "bad_name", "detail": "contains ':'"}]),
    ),
)
def problems(place: CallerWorkspace) -> Json:
    """List the files that stay out of the history and of every prompt, with the reason.

    The kind `clock` is the newest revision, if its time is more than a day in the future. The kind `edited`
    is a decision that was changed by hand: its first revision still counts.
    """
    return Json(whole("problems", map(problem_document, place.edits.problems())))


def _log_place(cursor: str | None, place: Workspace) -> tuple[View, int]:
    """Return the revision where a log begins, and how many revisions earlier pages have shown.

    Raises: Refused for a cursor that no page has named.
    """
    if cursor is None:
        return place.history.tip() or HEAD, 0
    newest, _, skip = cursor.partition(".")
    if not (newest and skip.isascii() and skip.isdigit() and len(skip) < 10):
        raise Refused("cursor", cursor, "is not the nextCursor of a page of this log")
    return place.history.resolve(newest) or HEAD, int(skip)


def _commit_edits(place: Workspace) -> dict[str, str]:
    """Commit edits by hand. Return a header that says so if the workspace is busy."""
    try:
        place.edits.commit()
    except WorkspaceBusy:
        return {"X-Harness-Note": "uncommitted edits by hand are missing: the workspace is busy"}
    except Unavailable as failure:  # the disk is full, for example
        if not place.history.is_there:
            raise
        return {"X-Harness-Note": f"uncommitted edits by hand are missing: {failure.reason}"}
    return {}
