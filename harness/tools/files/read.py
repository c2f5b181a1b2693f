"""The tool `read`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.tools.port import Tool
from harness.tools.tool_context import ToolContext, path_of
from workspaces.validation import StrictModel

LINES_MAX = 2000
CHARACTERS_MAX = 64 * 1024
"""The most characters of one answer, whatever the length of the lines."""


class ReadInput(StrictModel):
    path: str
    offset: Annotated[int, Field(ge=1)] = 1
    limit: Annotated[int, Field(ge=1, le=LINES_MAX)] = LINES_MAX
    workspace: str | None = None


def _read(arguments: ReadInput, context: ToolContext, call_id: str) -> str:
    del call_id
    mount = context.mount(arguments.workspace)
    file = context.read(mount, path_of(arguments.path))
    context.see(mount, file.path, file.version)
    lines = file.text.splitlines()
    if not lines:
        return f"{file.path} is empty."
    if arguments.offset > len(lines):
        return f"{file.path} has {len(lines)} lines; there is none from {arguments.offset} on."
    return _numbered(lines, arguments.offset, arguments.limit)


def _numbered(lines: list[str], offset: int, limit: int) -> str:
    shown: list[str] = []
    room = CHARACTERS_MAX
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], start=offset):
        room -= len(line) + 8
        if room < 0 and shown:
            break
        shown.append(f"{number:>6}\t{line[:CHARACTERS_MAX]}")
    following = offset + len(shown)
    cut = len(lines[offset - 1]) - CHARACTERS_MAX
    if cut > 0:  # a line that is too long is the only one shown
        shown.append(f"({cut:,} more characters of line {offset}: grep finds what is in them)")
    left = len(lines) - following + 1
    if left > 0:
        shown.append(f"({left} more lines: read on with offset {following})")
    return "\n".join(shown)


READ = Tool("read", ReadInput, _read, is_writing=False)
