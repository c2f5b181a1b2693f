"""The tool `read`: a file's lines, and the version that a later write names."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.agents.mounts import Mount
from harness.context.fence import fenced
from harness.mcp.tool import (
    APP,
    ITEMS_BYTES_MAX,
    READS,
    McpCall,
    McpTool,
    ToolInput,
    ToolOutput,
)
from harness.tools.tool_context import ToolContext, path_of
from workspaces.errors import NotFound
from workspaces.file import File
from workspaces.paths import WorkspacePath

LINES_MAX = 2_000


class ReadArguments(ToolInput):
    path: str
    offset: Annotated[int, Field(ge=1)] = 1
    limit: Annotated[int, Field(ge=1, le=LINES_MAX)] = LINES_MAX
    revision: str | None = None
    workspace: str | None = None


class ReadOutput(ToolOutput):
    path: str
    version: str
    first_line: int
    lines: list[str]
    lines_in_file: int
    next_offset: int | None
    """Where to read on. Null: this was the end."""


def _read(arguments: ReadArguments, call: McpCall) -> ReadOutput:
    context = call.caller.tool_context(arguments.workspace)
    (mount,) = context.mounts
    path = path_of(arguments.path)
    if arguments.revision is None:
        file = _present(context, mount, path)
    else:
        file = mount.here.read(path, view=arguments.revision)
    lines = file.text.splitlines()
    wanted = lines[arguments.offset - 1 : arguments.offset - 1 + arguments.limit]
    shown = _that_fit(wanted)
    following = arguments.offset + len(shown)
    return ReadOutput(
        path=file.path,
        version=file.version,
        first_line=arguments.offset,
        lines=shown,
        lines_in_file=len(lines),
        next_offset=following if following <= len(lines) and shown else None,
    )


def _present(context: ToolContext, mount: Mount, path: WorkspacePath) -> File:
    """Return the file with everything that was answered before, also by another server."""
    try:
        return mount.here.decided.read(path)
    except NotFound:
        return context.read(mount, path)  # its refusal names a similar path


def _that_fit(lines: list[str]) -> list[str]:
    """Return the first lines that fit into an answer. A line that is too long alone is cut."""
    shown: list[str] = []
    room = ITEMS_BYTES_MAX
    for line in lines:
        cut = line.encode()[:ITEMS_BYTES_MAX].decode(errors="ignore")
        room -= len(fenced(cut).encode()) + 12  # with quotes, comma and the line's number
        if room < 0 and shown:
            break
        shown.append(cut)
    return shown


def _text(output: ReadOutput) -> str:
    if not output.lines_in_file:
        return f"{output.path} is empty (version {output.version})."
    if not output.lines:
        return f"{output.path} has {output.lines_in_file} lines; there is none from {output.first_line} on."
    numbered = [f"{n:>6}\t{line}" for n, line in enumerate(output.lines, output.first_line)]
    left = output.lines_in_file - (output.first_line + len(output.lines) - 1)
    if output.next_offset is not None:
        numbered.append(f"({left} more lines: read on with offset {output.next_offset})")
    return "\n".join([f"{output.path}, version {output.version}", *numbered])


READ = McpTool(
    "read",
    "Read a file of memory",
    input=ReadArguments,
    output=ReadOutput,
    run=_read,
    text=_text,
    hints=READS,
    app=APP,
)
