"""Files as resources: `memory://<workspace>/<path>`.

`<workspace>` is the name or the id of a workspace that the caller may reach, percent-encoded. A path goes
through the same check as every path, so it cannot leave the workspace.
"""

from __future__ import annotations

import base64
from urllib.parse import quote, unquote, urlsplit

import mcp_types as types

from harness.mcp.caller import McpCaller
from harness.mcp.tool import APP
from harness.runtime.templates import render
from workspaces.errors import NotFound, OverLimit, Refused
from workspaces.paths import WorkspacePath

SCHEME = "memory"
TEMPLATE = "memory://{workspace}/{+path}"
PAGE = 200
"""Resources in one answer to `resources/list`."""

FILE_BYTES_MAX = 1024 * 1024
"""The largest file that is sent as a resource. Hosts hold it in memory and show it to a model."""

APP_MIME_TYPE = "text/html;profile=mcp-app"


def uri_of(workspace: str, path: str) -> str:
    return f"{SCHEME}://{quote(workspace, safe='')}/{quote(path)}"


def located(uri: str) -> tuple[str, WorkspacePath]:
    """Return the workspace and the path that a URI names.

    Raises: Refused if it is no URI of this server.
    """
    try:
        parts = urlsplit(uri)
        workspace, path = (
            unquote(parts.netloc, errors="strict"),
            unquote(parts.path, errors="strict"),
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise _unknown(uri) from error
    if parts.scheme != SCHEME or not workspace or parts.query or parts.fragment:
        raise _unknown(uri)
    return workspace, WorkspacePath(path.removeprefix("/"))


def read(caller: McpCaller, uri: str) -> types.ReadResourceResult:
    if uri == APP:
        page = types.TextResourceContents(
            uri=uri, mime_type=APP_MIME_TYPE, text=render("mcp/app.html")
        )
        return types.ReadResourceResult(contents=[page])
    reference, path = located(uri)
    file = caller.workspace(reference).read(path)
    if len(file.data) > FILE_BYTES_MAX:
        raise OverLimit(
            f"size of {path}", maximum=FILE_BYTES_MAX, actual=len(file.data), unit="bytes"
        )
    return types.ReadResourceResult(contents=[_contents(uri, path, file.data)])


def page(caller: McpCaller, cursor: str | None) -> types.ListResourcesResult:
    """Return one page of all files of all workspaces that the caller may reach."""
    begun = 0 if cursor is None else _position(cursor)
    resources: list[types.Resource] = [_app()] if begun == 0 else []
    number = 0
    for record in caller.workspaces():
        for path in caller.workspace(record.id).files():
            if number >= begun + PAGE:
                return types.ListResourcesResult(resources=resources, next_cursor=str(number))
            if number >= begun:
                resources.append(
                    types.Resource(
                        name=path,
                        title=f"{path} ({record.name})",
                        uri=uri_of(record.name, path),
                        mime_type=_mime_type(path),
                    )
                )
            number += 1
    return types.ListResourcesResult(resources=resources)


def template() -> types.ListResourceTemplatesResult:
    one = types.ResourceTemplate(
        name="memory",
        title="A file of memory",
        uri_template=TEMPLATE,
        description="A file of a workspace: its name or id, then the path.",
    )
    return types.ListResourceTemplatesResult(resource_templates=[one])


def _app() -> types.Resource:
    return types.Resource(
        name="memory", title="The memory of a workspace", uri=APP, mime_type=APP_MIME_TYPE
    )


def _contents(
    uri: str, path: str, data: bytes
) -> types.TextResourceContents | types.BlobResourceContents:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        return types.BlobResourceContents(uri=uri, mime_type="application/octet-stream", blob=blob)
    return types.TextResourceContents(uri=uri, mime_type=_mime_type(path), text=text)


def _mime_type(path: str) -> str:
    return "text/markdown" if path.lower().endswith((".md", ".markdown")) else "text/plain"


def _position(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise Refused("cursor", cursor, "is not a cursor of this server")
    return int(cursor)


def _unknown(uri: str) -> NotFound:
    return NotFound("resource", uri[:200], remedy=f"the form is {TEMPLATE}")
