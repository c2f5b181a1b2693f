"""Routes of the files of a workspace: raw bytes, with their version as the ETag.

A file is sent as text or as bytes, never with a type that a browser would run. A model may have written it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from fastapi import Query as QueryOf

from harness.presentation.file_json import entries_listing, written_document
from harness.runtime.async_bridge import run_in_thread
from harness.web.http.body import read_body
from harness.web.http.caller import Caller, CallerWorkspace, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.pagination import page_model, page_of, whole
from harness.web.http.precondition import Precondition, etag
from harness.web.http.preference import APPLIED, PREFER, may_wait
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    TEXT,
    Count,
    Query,
    answers,
    left_out,
    refusals,
)
from workspaces.errors import NotFound
from workspaces.file import File
from workspaces.history.history import HEAD
from workspaces.paths import WorkspacePath
from workspaces.validation import StrictModel
from workspaces.workspace.decided_files import Written

router = APIRouter(
    route_class=Route,
    prefix="/v1/workspaces/{id}/files",
    tags=["files"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)

FilePath = Annotated[str, Path(description="Path relative to the workspace.")]

BYTES = {"*/*": {"schema": {"type": "string", "format": "binary"}}}


class DurableDocument(StrictModel):
    """Where a write is durable."""

    files: Literal["s3", "here"]
    history: Literal["s3", "here"]


class FileDocument(StrictModel):
    """A file in a list."""

    path: str
    size: int = left_out()
    version: str | None = left_out()


class WrittenDocument(StrictModel):
    """A file that was written."""

    path: str
    version: str | None
    revision: str | None
    durable: DurableDocument


class DeletedFileDocument(StrictModel):
    """A file that was deleted."""

    deleted: Literal[True]
    revision: str | None
    durable: DurableDocument


WRITTEN_EXAMPLE = {
    "path": "notes/tea.md",
    "version": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "revision": "8f3c1b2a9d4e5f60718293a4b5c6d7e8f9a0b1c2",
    "durable": {"files": "here", "history": "here"},
}
GONE_EXAMPLE = {
    "deleted": True,
    "revision": WRITTEN_EXAMPLE["revision"],
    "durable": WRITTEN_EXAMPLE["durable"],
}
ETAG = {"ETag": {"description": "The file's version, in quotes.", "schema": TEXT}}
CONDITIONS = {
    "parameters": [
        {
            "name": "If-Match",
            "in": "header",
            "required": False,
            "description": "Only if the file has this version, as in `ETag`; `*`: only if it exists.",
            "schema": TEXT,
        },
        {
            "name": "If-None-Match",
            "in": "header",
            "required": False,
            "description": "`*`: only if there is no such file. A version: only if the file has another one.",
            "schema": TEXT,
        },
    ]
}


WRITING = {"parameters": [*CONDITIONS["parameters"], PREFER]}
WAITS = "S3 does not answer. The write is on this server alone, and is sent later."
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class FileListQuery(Query):
    prefix: str = ""
    """Only paths that begin with this text, as in `notes/`."""
    revision: str = HEAD
    """List the files of this revision."""
    limit: Count | None = None
    """The length of a page; default: all files at once."""
    cursor: str | None = None
    """The `nextCursor` of the previous page: its last path."""


class FileReadQuery(Query):
    revision: str = HEAD
    """Read the file at this revision."""


@router.get(
    "",
    summary="List the files",
    responses=answers(
        page_model("files", FileDocument),
        whole("files", [{"path": "MEMORY.md", "size": 3, "version": WRITTEN_EXAMPLE["version"]}]),
    ),
)
def list_files(place: CallerWorkspace, query: Annotated[FileListQuery, QueryOf()]) -> Json:
    """List the files in the order of their paths. For a revision, list only the paths.

    Where several servers share the records, `version` is null for a file that another server wrote and this
    one has not fetched yet. Reading the file returns it.
    """
    if query.revision == HEAD:
        files = entries_listing(place.decided.list())
    else:
        files = [{"path": path} for path in place.files(view=query.revision)]
    after = query.cursor or ""
    chosen = [f for f in files if f["path"].startswith(query.prefix) and f["path"] > after]
    limit = len(chosen) if query.limit is None else query.limit
    page = page_of(
        "files",
        chosen[: limit + 1],
        limit,
        shown=lambda file: file,
        place=lambda file: file["path"],
    )
    return Json(page)


@router.get(
    "/{path:path}",
    summary="Read a file",
    responses={
        200: {"description": "The bytes of the file.", "content": BYTES, "headers": ETAG},
        304: {"description": "`If-None-Match` names the current version.", "headers": ETAG},
        **refusals(412),
    },
    openapi_extra=CONDITIONS,
)
def read_file(
    request: Request,
    place: CallerWorkspace,
    path: FilePath,
    query: Annotated[FileReadQuery, QueryOf()],
) -> Response:
    condition = Precondition.of(request.headers)
    try:
        is_present = query.revision == HEAD
        file = place.decided.read(path) if is_present else place.read(path, view=query.revision)
    except NotFound:
        condition.check_match(None)
        raise
    condition.check_match(file.version)
    headers = {"ETag": etag(file.version), "Cache-Control": "private, no-cache"}
    if condition.is_unchanged(file.version):
        return Response(None, 304, headers)
    return Response(file.data, 200, {**headers, "Content-Type": _content_type(file)})


@router.put(
    "/{path:path}",
    summary="Write a file",
    responses={
        **answers(
            WrittenDocument,
            WRITTEN_EXAMPLE,
            description="The file was replaced, or already had these bytes.",
        ),
        **answers(WrittenDocument, WRITTEN_EXAMPLE, status=201, description="The file is new."),
        **answers(WrittenDocument, WRITTEN_EXAMPLE, status=202, description=WAITS),
        **refusals(408, 409, 412, 413, 422),
    },
    openapi_extra={**WRITING, "requestBody": {"required": True, "content": BYTES}},
)
async def write_file(
    request: Request, caller: Caller, place: CallerWorkspace, path: FilePath
) -> Response:
    """Replace the file with the exact bytes of the body, as one new revision."""
    condition = Precondition.of(request.headers)
    path = WorkspacePath(path)
    quota = place.record.config.quota
    data = await read_body(request, bytes_max=quota.file_bytes, what=repr(path))
    author, check, waits = (
        caller.principal.author("api"),
        condition.as_check,
        may_wait(request.headers),
    )
    write = place.decided.write
    written = await run_in_thread(write, path, data, by=author, check=check, may_wait=waits)
    headers = {"ETag": etag(written.version)} if written.version else {}
    return written_answer(written, written_document(written), headers)


@router.delete(
    "/{path:path}",
    summary="Delete a file",
    responses={
        **answers(DeletedFileDocument, GONE_EXAMPLE),
        **answers(DeletedFileDocument, GONE_EXAMPLE, status=202, description=WAITS),
        **refusals(409, 412, 422),
    },
    openapi_extra=WRITING,
)
def delete_file(
    request: Request, caller: Caller, place: CallerWorkspace, path: FilePath
) -> Response:
    """Delete a file. Its last version stays in the history."""
    deleted = place.decided.delete(
        path,
        by=caller.principal.author("api"),
        check=Precondition.of(request.headers).as_check,
        may_wait=may_wait(request.headers),
    )
    facts = {"revision": deleted.revision, "durable": deleted.durable.as_json()}
    return written_answer(deleted, {"deleted": True, **facts})


def written_answer(
    written: Written, document: dict[str, Any], headers: Mapping[str, str] = NO_HEADERS
) -> Json:
    """Return the answer to a write: 202 if S3 has not decided it yet."""
    if written.is_undecided:
        return Json(document, 202, {**headers, **APPLIED})
    return Json(document, 201 if written.created else 200, dict(headers))


def _content_type(file: File) -> str:
    try:
        file.data.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    kind = "markdown" if file.path.lower().endswith((".md", ".markdown")) else "plain"
    return f"text/{kind}; charset=utf-8"
