"""The tools `write` and `edit`: conditional on the version that the caller has read."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.mcp.tool import (
    REPLACES,
    McpCall,
    McpTool,
    ToolInput,
    ToolOutput,
    cut,
)
from harness.tools.files.edit import replaced
from harness.tools.tool_context import path_of
from workspaces.errors import NotFound, Refused
from workspaces.file import as_bytes
from workspaces.ids import Version
from workspaces.paths import WorkspacePath
from workspaces.workspace.decided_files import VersionCheck, Written
from workspaces.workspace.workspace import Workspace

CURRENT_BYTES_MAX = 8 * 1024
"""Bytes of the present content that a refusal shows. `read` shows the rest."""

NOT_WRITTEN = ("decisions",)
"""Directories whose files are never rewritten."""


class WriteArguments(ToolInput):
    path: str
    content: str
    version: str | None = None
    """The version that was read. Null: the file must not exist."""
    workspace: str | None = None


class EditArguments(ToolInput):
    path: str
    old: Annotated[str, Field(min_length=1)]
    new: str
    version: str | None = None
    """The version that was read. Null: whatever the file holds now."""
    all: bool = False
    workspace: str | None = None


class WriteOutput(ToolOutput):
    path: str
    version: str
    revision: str | None
    """Null: the file held exactly this already."""
    created: bool
    put_back: str | None = None
    """What of the change was put back, because only a person may change it."""


def _write(arguments: WriteArguments, call: McpCall) -> WriteOutput:
    workspace = call.caller.workspace(arguments.workspace)
    path = _writable(arguments.path)
    written = workspace.decided.write(
        path,
        as_bytes(arguments.content),
        by=call.caller.author,
        check=_check(workspace, path, arguments.version),
    )
    return _output(written)


def _edit(arguments: EditArguments, call: McpCall) -> WriteOutput:
    workspace = call.caller.workspace(arguments.workspace)
    path = _writable(arguments.path)
    check = None
    if arguments.version is not None:
        check = _check(workspace, path, arguments.version)

    def edited(before: bytes | None) -> bytes:
        if before is None:
            raise NotFound("file", path, remedy="see with glob what there is")
        text, _ = replaced(before, path, old=arguments.old, new=arguments.new, is_all=arguments.all)
        return as_bytes(text)

    return _output(workspace.decided.edit(path, edited, by=call.caller.author, check=check))


def _check(workspace: Workspace, path: WorkspacePath, wanted: str | None) -> VersionCheck:
    """Return the check of the version that the caller has read; None means that there must be no file."""

    def check(version: Version | None) -> None:
        if version != wanted:
            raise _changed(workspace, path, is_new=wanted is None)

    return check


def _writable(text: str) -> WorkspacePath:
    path = path_of(text)
    if path.partition("/")[0] in NOT_WRITTEN and "/" in path:
        rule = "is a decision: it is never rewritten"
        raise Refused("path", path, rule, remedy="write a note beside it, under notes/")
    return path


def _changed(workspace: Workspace, path: WorkspacePath, *, is_new: bool) -> Refused:
    """Return the refusal of a stale write. It shows what is there now."""
    try:
        file = workspace.decided.read(path)
    except NotFound:
        return Refused("version", path, "was deleted since it was read", remedy="write it as new")
    rule = "exists already" if is_new else "was changed since it was read"
    now = cut(file.text, CURRENT_BYTES_MAX).rstrip()
    remedy = f"name the version that you want to replace, which is now {file.version}"
    return Refused("path", path, f"{rule}. It holds now:\n{now}\n", remedy=remedy)


def _output(written: Written) -> WriteOutput:
    return WriteOutput(
        path=written.path,
        version=written.version or "",  # only a delete has none
        revision=written.revision,
        created=written.created,
        put_back=None if written.put_back is None else written.put_back.what,
    )


def _text(output: WriteOutput) -> str:
    if output.revision is None:
        return f"{output.path} holds exactly that already (version {output.version})."
    verb = "Created" if output.created else "Written"
    told = f"{verb}: {output.path}, now version {output.version} (revision {output.revision[:8]})."
    return f"{told}\nPut back: {output.put_back}." if output.put_back else told


WRITE = McpTool(
    "write",
    "Write a file of memory",
    input=WriteArguments,
    output=WriteOutput,
    run=_write,
    text=_text,
    hints=REPLACES,
)
EDIT = McpTool(
    "edit",
    "Edit a file of memory",
    input=EditArguments,
    output=WriteOutput,
    run=_edit,
    text=_text,
    hints=REPLACES,
)
