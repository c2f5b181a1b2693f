"""The tool `write`."""

from __future__ import annotations

from collections import Counter

from harness.agents.mounts import Mount
from harness.tools.port import Tool
from harness.tools.tool_context import ToolContext, path_of
from workspaces.conditions import ABSENT
from workspaces.errors import AlreadyExists, Conflict, Refused
from workspaces.file import as_bytes
from workspaces.paths import WorkspacePath
from workspaces.tree.merge import merge
from workspaces.validation import StrictModel

TRIES_MAX = 5
SHOWN_LINES_MAX = 40
"""Of what others wrote, in a refusal: enough to see what it is about; `read` shows the rest."""


class WriteInput(StrictModel):
    path: str
    content: str
    workspace: str | None = None


def _write(given: WriteInput, desk: ToolContext, call_id: str) -> str:
    mount = desk.writable(given.workspace)
    path = path_of(given.path)
    data = stated = as_bytes(given.content)
    seen = desk.seen(mount, path)
    expect = ABSENT if seen is None else seen
    told = ""
    for _ in range(TRIES_MAX):
        try:
            written = mount.here.write(path, data, by=desk.author(call_id), expect=expect)
        except AlreadyExists as error:
            if error.name != path:
                raise
            rule = "exists and was not read in this conversation"
            remedy = "read it, then write what should be there now"
            raise Refused("path", path, rule, remedy=remedy) from error
        except Conflict as error:
            if seen is None or error.actual is None:
                raise _changed(path, []) from error
            current = mount.here.read(path)
            base = mount.here.find_version(path, seen)
            data = _merged(path, base, current.data, stated)
            expect = current.version
            told = " It was merged with what others had changed since you read it: read it again."
            continue
        desk.wrote(mount, written)
        return _answer(path, data, is_new=written.revision is not None) + told
    raise Refused("path", path, "changes faster than it can be written", remedy="try again")


def _answer(path: WorkspacePath, data: bytes, *, is_new: bool) -> str:
    if not is_new:
        return f"{path} holds exactly that already."
    lines = len(data.decode().splitlines())
    return f"Written: {path}, {lines} {'line' if lines == 1 else 'lines'}."


def _merged(path: WorkspacePath, base: bytes | None, current: bytes, given: bytes) -> bytes:
    """Both changes in one text; refused, showing what is new, where they touch the same lines."""
    found = merge(path, base, current, given) if base is not None else None
    if found is None or not found.is_clean:
        before = Counter((base or b"").decode(errors="replace").splitlines())
        lines = current.decode(errors="replace").splitlines()
        raise _changed(path, [line for line in lines if before[line] == 0])
    return found.data


def _changed(path: WorkspacePath, new_lines: list[str]) -> Refused:
    rule = "was changed by someone else since you read it"
    if new_lines:
        shown = "\n".join(f"+ {line}" for line in new_lines[:SHOWN_LINES_MAX])
        rule += f", at the lines that you change too. New there:\n{shown}\n"
    remedy = "read it, then write what should be there now"
    return Refused("path", path, rule, remedy=remedy)


def _asks(given: WriteInput, desk: ToolContext) -> Mount | None:
    return desk.asked_to_write(given.workspace, given.path)


WRITE = Tool("write", WriteInput, _write, is_writing=True, asks=_asks)
