"""The tool `edit`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.agents.mounts import Mount
from harness.tools.port import Tool
from harness.tools.put_back_note import put_back_note
from harness.tools.tool_context import ToolContext, path_of
from workspaces.errors import Refused
from workspaces.paths import WorkspacePath
from workspaces.storage.contention import until_written
from workspaces.validation import StrictModel


class EditInput(StrictModel):
    path: str
    old: Annotated[str, Field(min_length=1)]
    new: str
    all: bool = False
    workspace: str | None = None


@until_written("the file")
def _edit(arguments: EditInput, context: ToolContext, call_id: str) -> str:
    """Edit the file as it is now. Changes that others made elsewhere in it stay."""
    mount = context.writable(arguments.workspace)
    path = path_of(arguments.path)
    file = context.read(mount, path)
    after, count = replaced(
        file.data, path, old=arguments.old, new=arguments.new, is_all=arguments.all
    )
    written = mount.here.write(path, after, by=context.author(call_id), expect=file.version)
    context.record_write(mount, written)
    note = "" if written.put_back is None else f" {put_back_note(written.put_back)}"
    if written.revision is None:
        return note.strip() or f"{path} is as it was: `old` and `new` are the same."
    return f"Edited: {path}, {count} {'place' if count == 1 else 'places'}.{note}"


def replaced(
    data: bytes, path: WorkspacePath, *, old: str, new: str, is_all: bool
) -> tuple[str, int]:
    """Return a file's text with `new` in place of `old`, and the number of places. With `is_all` there may
    be several.

    Raises: Refused if the file is no text, or if `old` is not in it once.
    """
    try:
        before = data.decode()
    except UnicodeDecodeError as error:
        raise Refused("path", path, "is not a text file") from error
    count = before.count(old)
    if count == 0:
        rule = "is not in the file as it is now"
        raise Refused("old", old, rule, remedy="read the file and copy the text exactly")
    if count > 1 and not is_all:
        rule = f"is in the file {count} times"
        remedy = "include a neighbouring line to make it unique, or pass all: true"
        raise Refused("old", old, rule, remedy=remedy)
    return before.replace(old, new), count


def _asks(arguments: EditInput, context: ToolContext) -> Mount | None:
    return context.mount_to_approve(arguments.workspace, arguments.path)


EDIT = Tool("edit", EditInput, _edit, is_writing=True, asks=_asks)
