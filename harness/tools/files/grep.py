"""The tool `grep`: runs ripgrep, in the sandbox if there is one.

Without a sandbox ripgrep runs beside the harness. The program is ours, and no command can have made the files
it reads. It follows no link, reads no configuration, and is ended when its time is up.
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
"""Seconds for one search. Ten thousand files take a fraction of a second; a longer search has a bad
pattern."""

LINE_BYTES_MAX = 500
_MODES = {"content": ("--line-number",), "files": ("--files-with-matches",), "count": ("--count",)}
_NO_MATCH, _ERROR = 1, 2  # ripgrep's exit codes
_NOWHERE = "rg: No files were searched"
"""The beginning of ripgrep's error if the place it searches is empty or missing."""
_LEFT_OUT = (".git*", ".harness*", f"*.conflict-{'[0-9a-f]' * VERSION_HEX_DIGITS}*")
"""Reserved names, and conflict copies, which wait for a person."""

_SPECIAL = re.compile(r"[\[{}]")
"""The characters of valid paths that have a meaning in ripgrep's globs."""


class GrepInput(StrictModel):
    pattern: Annotated[str, Field(min_length=1, max_length=10_000)]
    path: str | None = None
    mode: Literal["content", "files", "count"] = "content"
    workspace: str | None = None


async def _grep(arguments: GrepInput, context: ToolContext, call_id: str) -> str:
    del call_id
    mount = context.mount(arguments.workspace)
    if mount.sandbox is None or context.programs.ripgrep is None:
        rule = "can be read and globbed, and not searched: it has no sandbox"
        raise Refused("workspace", mount.name, rule, remedy="find files with glob, and read them")
    _check_pattern(arguments.pattern)
    place = place_of(arguments.path)
    options = (*_options(arguments.mode, place), "-e", arguments.pattern)
    ended = await _run(context, mount, mount.sandbox.config, context.programs.ripgrep, options)
    return await run_in_thread(_answer, arguments, place, ended, mount)


def _check_pattern(pattern: str) -> None:
    try:
        pattern.encode()
    except UnicodeEncodeError as error:
        raise Refused("pattern", pattern, "is not Unicode text") from error
    if "\0" in pattern:
        raise Refused("pattern", pattern, "contains a NUL character, which no text file does")


def _options(mode: str, place: str) -> tuple[str, ...]:
    """Return ripgrep's options. Places are given as globs: ripgrep would follow a path that is a link."""
    escaped = _SPECIAL.sub(lambda match: f"[{match[0]}]", place)
    place_globs = (f"--glob=/{escaped}", f"--glob=/{escaped}/**") if place else ()
    return (
        *("--no-config", "--no-ignore", "--hidden", "--color=never"),
        *("--no-heading", "--with-filename", "--sort=path"),
        *(f"--max-columns={LINE_BYTES_MAX}", "--max-columns-preview"),
        *_MODES[mode],
        *place_globs,
        *(f"--glob=!{name}" for name in _LEFT_OUT),
    )


async def _run(
    context: ToolContext,
    mount: Mount,
    config: SandboxConfig,
    ripgrep: Path,
    options: tuple[str, ...],
) -> CommandResult:
    limits = CommandLimits(
        SECONDS_MAX, config.limits.memory_bytes, config.limits.processes, config.limits.output_bytes
    )
    if context.programs.sandbox is None:
        argv = (str(ripgrep), *options)
        spawn = Spawn(argv, Process.kill, {"cwd": mount.here.root, "env": {}})
        return await supervise(spawn, limits, ())
    bind = Bind(mount.name, mount.here.root, False, 0, 0)
    argv = (f"/programs/{ripgrep.name}", *options)
    command = SandboxCommand(argv, (bind,), mount.name, limits, programs=(ripgrep,))
    return await context.programs.sandbox.run(command)


def _answer(arguments: GrepInput, place: str, ended: CommandResult, mount: Mount) -> str:
    output = plain(ended.output.head).rstrip()
    if ended.cause != "exit":
        rule = (
            f"was not found in {SECONDS_MAX:g} s" if ended.cause == "time" else "matches too much"
        )
        raise Refused(
            "pattern", arguments.pattern, rule, remedy="make it simpler, or name a `path`"
        )
    if ended.code > _ERROR:
        raise Unavailable("ripgrep", output or f"it ended with code {ended.code}")
    is_nowhere = output.startswith(_NOWHERE)
    if ended.code == _ERROR and not is_nowhere and "(os error" not in output:
        raise Refused("pattern", arguments.pattern, f"is not a valid regular expression: {output}")
    if ended.code == _NO_MATCH or is_nowhere:
        _check_place(mount, place)
        return f"Nothing matches {arguments.pattern!r}" + (f" in {place}." if place else ".")
    if not ended.output.left_out:
        return output
    return f"{output}\n(more than is shown here: make the pattern narrower, or name a `path`)"


def _check_place(mount: Mount, place: str) -> None:
    parent = place.rpartition("/")[0]

    def is_at_place(name: str) -> bool:
        return name == place or name.startswith(f"{place}/")

    if place and not mount.workspace.find(parent, is_at_place):
        raise NotFound("file or directory", place, remedy="see with glob what there is")


def _suits(mount: Mount, context: ToolContext) -> bool:
    return mount.sandbox is not None and context.programs.ripgrep is not None


GREP = Tool("grep", GrepInput, _grep, is_writing=False, suits=_suits)
