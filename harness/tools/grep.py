"""The tool `grep`: ripgrep, in the sandbox where there is one.

Without one ripgrep runs beside the harness. It is our program on files that no command can have made:
it follows no link, reads no configuration, and is ended when its time is up.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from harness.agents.mounts import Mount
from harness.runtime.async_bridge import run_in_thread
from harness.sandboxes.port import Bind, CommandLimits, CommandResult, SandboxCommand
from harness.sandboxes.record import SandboxConfig
from harness.sandboxes.supervisor import Process, Spawn, supervise
from harness.tools.port import Tool
from harness.tools.terminal_text import plain
from harness.tools.tool_context import ToolContext, place_of
from workspaces.errors import NotFound, Refused, Unavailable
from workspaces.tree.conflict_copy import VERSION_HEX_DIGITS
from workspaces.validation import StrictModel

SECONDS_MAX = 20.0
"""Ten thousand files take a fraction of a second; what takes longer is a pattern without an end."""

LINE_BYTES_MAX = 500
_MODES = {"content": ("--line-number",), "files": ("--files-with-matches",), "count": ("--count",)}
_NO_MATCH, _ERROR = 1, 2  # ripgrep's exit codes
_NOWHERE = "rg: No files were searched"
"""What ripgrep says, as an error, when there is nothing in the place it was told."""
_LEFT_OUT = (".git*", ".harness*", f"*.conflict-{'[0-9a-f]' * VERSION_HEX_DIGITS}*")
"""Names that are reserved, and second files, which wait for a person."""

_SPECIAL = re.compile(r"[\[{}]")
"""What a valid path may contain of what means something in ripgrep's globs."""


class GrepInput(StrictModel):
    pattern: Annotated[str, Field(min_length=1, max_length=10_000)]
    path: str | None = None
    mode: Literal["content", "files", "count"] = "content"
    workspace: str | None = None


async def _grep(given: GrepInput, desk: ToolContext, call_id: str) -> str:
    del call_id
    mount = desk.mount(given.workspace)
    if mount.sandbox is None or desk.workshop.ripgrep is None:
        rule = "can be read and globbed, and not searched: it has no sandbox"
        raise Refused("workspace", mount.name, rule, remedy="find files with glob, and read them")
    _check_pattern(given.pattern)
    place = place_of(given.path)
    options = (*_options(given.mode, place), "-e", given.pattern)
    ended = await _run(desk, mount, mount.sandbox.config, desk.workshop.ripgrep, options)
    return await run_in_thread(_answer, given, place, ended, mount)


def _check_pattern(pattern: str) -> None:
    try:
        pattern.encode()
    except UnicodeEncodeError as error:
        raise Refused("pattern", pattern, "is not Unicode text") from error
    if "\0" in pattern:
        raise Refused("pattern", pattern, "contains a NUL character, which no text file does")


def _options(mode: str, place: str) -> tuple[str, ...]:
    """Places are stated as globs: a path given as such would be followed if it were a link."""
    escaped = _SPECIAL.sub(lambda found: f"[{found[0]}]", place)
    where = (f"--glob=/{escaped}", f"--glob=/{escaped}/**") if place else ()
    return (
        *("--no-config", "--no-ignore", "--hidden", "--color=never"),
        *("--no-heading", "--with-filename", "--sort=path"),
        *(f"--max-columns={LINE_BYTES_MAX}", "--max-columns-preview"),
        *_MODES[mode],
        *where,
        *(f"--glob=!{name}" for name in _LEFT_OUT),
    )


async def _run(
    desk: ToolContext, mount: Mount, config: SandboxConfig, ripgrep: Path, options: tuple[str, ...]
) -> CommandResult:
    bounds = CommandLimits(
        SECONDS_MAX, config.limits.memory_bytes, config.limits.processes, config.limits.output_bytes
    )
    if desk.workshop.sandbox is None:
        argv = (str(ripgrep), *options)
        spawn = Spawn(argv, Process.kill, {"cwd": mount.here.root, "env": {}})
        return await supervise(spawn, bounds, ())
    bind = Bind(mount.name, mount.here.root, False, 0, 0)
    argv = (f"/programs/{ripgrep.name}", *options)
    order = SandboxCommand(argv, (bind,), mount.name, bounds, programs=(ripgrep,))
    return await desk.workshop.sandbox.run(order)


def _answer(given: GrepInput, place: str, ended: CommandResult, mount: Mount) -> str:
    told = plain(ended.output.head).rstrip()
    if ended.cause != "exit":
        rule = (
            f"was not found in {SECONDS_MAX:g} s" if ended.cause == "time" else "matches too much"
        )
        raise Refused("pattern", given.pattern, rule, remedy="make it simpler, or name a `path`")
    if ended.code > _ERROR:
        raise Unavailable("ripgrep", told or f"it ended with code {ended.code}")
    is_nowhere = told.startswith(_NOWHERE)
    if ended.code == _ERROR and not is_nowhere and "(os error" not in told:
        raise Refused("pattern", given.pattern, f"is no regular expression: {told}")
    if ended.code == _NO_MATCH or is_nowhere:
        _check_place(mount, place)
        return f"Nothing matches {given.pattern!r}" + (f" in {place}." if place else ".")
    if not ended.output.left_out:
        return told
    return f"{told}\n(more than is shown here: make the pattern narrower, or name a `path`)"


def _check_place(mount: Mount, place: str) -> None:
    parent = place.rpartition("/")[0]

    def leads_there(name: str) -> bool:
        return name == place or name.startswith(f"{place}/")

    if place and not mount.workspace.find(parent, leads_there):
        raise NotFound("file or directory", place, remedy="see with glob what there is")


def _suits(mount: Mount, desk: ToolContext) -> bool:
    return mount.sandbox is not None and desk.workshop.ripgrep is not None


GREP = Tool("grep", GrepInput, _grep, is_writing=False, suits=_suits)
