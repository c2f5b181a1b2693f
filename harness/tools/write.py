"""The tool `write`."""

from __future__ import annotations

from harness.tools.desk import Change, Desk, path_of
from harness.tools.port import Tool
from workspaces.errors import AlreadyExists, Conflict, Refused
from workspaces.expect import ABSENT
from workspaces.parse import Shape


class WriteInput(Shape):
    path: str
    content: str
    workspace: str | None = None


def _write(given: WriteInput, desk: Desk, call_id: str) -> str:
    mount = desk.writable(given.workspace)
    path = path_of(given.path)
    seen = desk.seen(mount, path)
    try:
        written = mount.workspace.write(
            path, given.content, by=desk.author(call_id), expect=seen or ABSENT
        )
    except AlreadyExists as error:
        if error.name != path:
            raise
        raise _unread(path, "exists and was not read in this conversation") from error
    except Conflict as error:
        raise _unread(path, "was changed by someone else since you read it") from error
    desk.see(mount, path, written.version)
    if written.revision is None:
        return f"{path} holds exactly that already."
    desk.changes.append(Change(mount.name, written.revision))
    lines = len(given.content.splitlines())
    return f"Written: {path}, {lines} {'line' if lines == 1 else 'lines'}."


def _unread(path: str, rule: str) -> Refused:
    return Refused("path", path, rule, remedy="read it, then write what should be there now")


WRITE = Tool("write", WriteInput, _write, is_writing=True)
