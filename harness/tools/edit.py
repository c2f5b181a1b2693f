"""The tool `edit`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.agents.mounts import Mount
from harness.tools.port import Tool
from harness.tools.tool_context import ToolContext, path_of
from workspaces.errors import Conflict, Refused
from workspaces.validation import StrictModel

TRIES_MAX = 5


class EditInput(StrictModel):
    path: str
    old: Annotated[str, Field(min_length=1)]
    new: str
    all: bool = False
    workspace: str | None = None


def _edit(given: EditInput, desk: ToolContext, call_id: str) -> str:
    """An edit is made on the file as it is now: what others wrote elsewhere in it stays."""
    mount = desk.writable(given.workspace)
    path = path_of(given.path)
    for _ in range(TRIES_MAX):
        file = desk.read(mount, path)
        try:
            before = file.data.decode()
        except UnicodeDecodeError as error:
            raise Refused("path", path, "is not a text file") from error
        count = before.count(given.old)
        _check_count(given, count)
        after = before.replace(given.old, given.new)
        try:
            written = mount.here.write(path, after, by=desk.author(call_id), expect=file.version)
        except Conflict:
            continue
        desk.wrote(mount, written)
        if written.revision is None:
            return f"{path} is as it was: `old` and `new` are the same."
        return f"Edited: {path}, {count} {'place' if count == 1 else 'places'}."
    raise Refused("path", path, "changes faster than it can be edited", remedy="try again")


def _check_count(given: EditInput, count: int) -> None:
    if count == 0:
        rule = "does not stand in the file as it is now"
        raise Refused("old", given.old, rule, remedy="read the file and copy the text exactly")
    if count > 1 and not given.all:
        rule = f"stands in the file {count} times"
        remedy = "take in a neighbouring line to make it unique, or pass all: true"
        raise Refused("old", given.old, rule, remedy=remedy)


def _asks(given: EditInput, desk: ToolContext) -> Mount | None:
    return desk.asked_to_write(given.workspace, given.path)


EDIT = Tool("edit", EditInput, _edit, is_writing=True, asks=_asks)
