"""The tool `write`."""

from __future__ import annotations

from collections import Counter

from harness.agents.mounts import Mount
from harness.tools.port import Tool
from harness.tools.put_back_note import put_back_note
from harness.tools.tool_context import ToolContext, path_of
from workspaces.conditions import ABSENT
from workspaces.errors import AlreadyExists, Conflict, Refused
from workspaces.file import as_bytes
from workspaces.paths import WorkspacePath
from workspaces.storage.contention import attempts, contended
from workspaces.tree.merge import merge
from workspaces.validation import StrictModel

SHOWN_LINES_MAX = 40
"""Lines of others' changes that a refusal shows: enough to see the subject; `read` shows the rest."""


class WriteInput(StrictModel):
    path: str
    content: str
    workspace: str | None = None


def _write(arguments: WriteInput, context: ToolContext, call_id: str) -> str:
    mount = context.writable(arguments.workspace)
    path = path_of(arguments.path)
    data = wanted = as_bytes(arguments.content)
    seen = context.seen(mount, path)
    expect = ABSENT if seen is None else seen
    note = ""
    for _ in attempts():
        try:
            written = mount.here.write(path, data, by=context.author(call_id), expect=expect)
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
            data = _merged(path, base, current.data, wanted)
            expect = current.version
            note = " It was merged with what others had changed since you read it: read it again."
            continue
        context.record_write(mount, written)
        if written.put_back is not None:
            note += f" {put_back_note(written.put_back)}"
        return _answer(path, data, is_new=written.revision is not None) + note
    raise contended("the file")


def _answer(path: WorkspacePath, data: bytes, *, is_new: bool) -> str:
    if not is_new:
        return f"{path} holds exactly that already."
    lines = len(data.decode().splitlines())
    return f"Written: {path}, {lines} {'line' if lines == 1 else 'lines'}."


def _merged(path: WorkspacePath, base: bytes | None, current: bytes, wanted: bytes) -> bytes:
    """Return the merge of both changes.

    Raises: Refused with the new lines, if both changed the same lines.
    """
    merged = merge(path, base, current, wanted) if base is not None else None
    if merged is None or not merged.is_clean:
        before = Counter((base or b"").decode(errors="replace").splitlines())
        lines = current.decode(errors="replace").splitlines()
        raise _changed(path, [line for line in lines if before[line] == 0])
    return merged.data


def _changed(path: WorkspacePath, new_lines: list[str]) -> Refused:
    rule = "was changed by someone else since you read it"
    if new_lines:
        shown = "\n".join(f"+ {line}" for line in new_lines[:SHOWN_LINES_MAX])
        rule += f", at the lines that you change too. New there:\n{shown}\n"
    remedy = "read it, then write what should be there now"
    return Refused("path", path, rule, remedy=remedy)


def _asks(arguments: WriteInput, context: ToolContext) -> Mount | None:
    return context.mount_to_approve(arguments.workspace, arguments.path)


WRITE = Tool("write", WriteInput, _write, is_writing=True, asks=_asks)
