"""The tool `bash`: runs a command in a sandbox, with the workspaces that share the sandbox's record.

A command that can write holds the writer lock of every workspace that it can write to. It holds them from
before it begins until its changes are committed as a revision.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Annotated

from pydantic import Field

from harness.agents.mounts import Mount
from harness.runtime.async_bridge import entered, run_in_thread
from harness.sandboxes.output_capture import WHOLE_BYTES_MAX, Captured
from harness.sandboxes.port import (
    OUTPUT_BYTES_MAX,
    Bind,
    CommandLimits,
    CommandResult,
    Sandbox,
    SandboxCommand,
)
from harness.sandboxes.record import SECONDS_MAX, SandboxConfig, SandboxRecord
from harness.tools.port import Tool
from harness.tools.put_back_note import put_back_note
from harness.tools.terminal_text import plain
from harness.tools.tool_context import ToolContext
from workspaces.errors import Refused
from workspaces.localfs.permissions import DiskUsage
from workspaces.revision import Author
from workspaces.validation import StrictModel
from workspaces.workspace.workspace import Command
from workspaces.workspace_record import QUOTA_BYTES_MAX

SECONDS = 30
COMMAND_BYTES_MAX = 100_000
"""The longest command. Linux accepts 128 KiB as one argument; `write` makes files for longer scripts."""

QUOTA_TIMES = 2
"""A command may exceed the quota for a while, for example to sort a file; at this multiple it is ended. A
command that begins above it is ended only if it adds to it."""

PROBLEMS_SHOWN_MAX = 20


class BashInput(StrictModel):
    command: Annotated[str, Field(min_length=1)]
    timeout: Annotated[int, Field(ge=1, le=SECONDS_MAX)] = SECONDS
    workspace: str | None = None


async def _bash(arguments: BashInput, context: ToolContext, call_id: str) -> str:
    mount = context.mount(arguments.workspace)
    sandbox, record = _sandbox_of(mount, context)
    _check_command(arguments.command)
    mounts = [other for other in context.mounts if _record_id(other) == record.id]
    argv = ("bash", "-c", arguments.command)
    writable = [other for other in mounts if other.is_writable]
    async with entered(_open_commands(writable, context.author(call_id))) as commands:
        taken = {
            other.name: command.taken for other, command in zip(writable, commands, strict=True)
        }
        sandbox_command = order_for(
            argv, mounts, mount.name, record.config, seconds=arguments.timeout, taken=taken
        )
        result = await sandbox.run(sandbox_command)
    for other, command in zip(writable, commands, strict=True):
        context.record_command(other, command)
    return await run_in_thread(
        _answer,
        result,
        sandbox_command,
        context,
        call_id=call_id,
        mounts=writable,
        commands=commands,
    )


def order_for(
    argv: tuple[str, ...],
    mounts: Sequence[Mount],
    directory: str,
    config: SandboxConfig,
    *,
    seconds: float | None,
    taken: Mapping[str, DiskUsage],
) -> SandboxCommand:
    """Return the sandbox command that a sandbox record describes. `taken` is the disk usage of each writable
    mount now."""
    limits = config.limits
    return SandboxCommand(
        argv,
        tuple(_bind_of(mount, taken.get(mount.name, DiskUsage())) for mount in mounts),
        directory,
        CommandLimits(
            None if seconds is None else min(seconds, limits.seconds),
            limits.memory_bytes,
            limits.processes,
            limits.output_bytes,
        ),
        config.network,
    )


def _bind_of(mount: Mount, taken: DiskUsage) -> Bind:
    quota = mount.workspace.record.config.quota
    return Bind(
        mount.name,
        mount.here.root,
        mount.is_writable,
        QUOTA_TIMES
        * min(
            quota.bytes, QUOTA_BYTES_MAX
        ),  # the quota may have been stored before there was a maximum
        QUOTA_TIMES * quota.files,
        taken,
    )


def _suits(mount: Mount, context: ToolContext) -> bool:
    return mount.sandbox is not None and context.programs.sandbox is not None


def _record_id(mount: Mount) -> str | None:
    return mount.sandbox.id if mount.sandbox else None


def _sandbox_of(mount: Mount, context: ToolContext) -> tuple[Sandbox, SandboxRecord]:
    if mount.sandbox is None or context.programs.sandbox is None:
        rule = "has no sandbox: no command can see it"
        remedy = "use read and glob there, or name another workspace"
        raise Refused("workspace", mount.name, rule, remedy=remedy)
    return context.programs.sandbox, mount.sandbox


def _check_command(command: str) -> None:
    try:
        size = len(command.encode())
    except UnicodeEncodeError as error:
        raise Refused("command", command, "is not Unicode text") from error
    if "\0" in command:
        raise Refused("command", command, "contains a NUL character, which no command can")
    if size > COMMAND_BYTES_MAX:
        rule = f"is longer than {COMMAND_BYTES_MAX:,} bytes"
        raise Refused("command", command, rule, remedy="write a file with `write`, then use it")


@contextmanager
def _open_commands(mounts: Sequence[Mount], author: Author) -> Generator[list[Command]]:
    """Open a command on each of these mounts and yield them in the order of the mounts. The locks are always
    taken in the same order, so that two turns never wait for each other."""
    with ExitStack() as stack:
        commands = {
            mount.namespace: stack.enter_context(mount.here.command(author))
            for mount in sorted(mounts, key=lambda mount: mount.namespace)
        }
        yield [commands[mount.namespace] for mount in mounts]


def _answer(
    result: CommandResult,
    sandbox_command: SandboxCommand,
    context: ToolContext,
    call_id: str,
    mounts: Sequence[Mount],
    commands: Sequence[Command],
) -> str:
    shown = _shown(result.output, context, call_id)
    lines = [shown.rstrip("\n")] if shown.strip() else ["(no output)"]
    lines += _end_notes(result, sandbox_command.limits)
    lines += [_full_note(bind) for bind in sandbox_command.binds if bind.is_full]
    for mount, command in zip(mounts, commands, strict=True):
        lines += _uncommitted(mount, command, is_one_of_several=len(context.mounts) > 1)
        lines += [f"({put_back_note(one)})" for one in command.put_back[:PROBLEMS_SHOWN_MAX]]
    return "\n".join(lines)


def _shown(output: Captured, context: ToolContext, call_id: str) -> str:
    if not output.tail:
        return plain(output.head)
    middle = f"(… {output.left_out:,} bytes are left out here"
    if context.results is not None:
        context.results.keep(call_id, plain(output.whole))
        extent = "the whole" if output.size <= WHOLE_BYTES_MAX else f"the first {WHOLE_BYTES_MAX:,}"
        middle += f'; read_result with id "{call_id}" shows {extent}'
    return f"{plain(output.head).rstrip()}\n{middle} …)\n{plain(output.tail)}"


def _end_notes(result: CommandResult, limits: CommandLimits) -> list[str]:
    match result.cause:
        case "exit":
            return [f"(exit code {result.code})"] if result.code else []
        case "time":
            message = (
                f"ended after {limits.seconds:g} s, with all that it had started: its time was up. "
                f"Its changes until then remain. Pass a larger `timeout`, at most {SECONDS_MAX}, or "
                "do less at once"
            )
        case "memory":
            message = f"ended: it took more than {limits.memory_bytes // 2**20:,} MiB of memory"
        case "processes":
            message = f"ended: it had more than {limits.processes} processes"
        case "disk":
            message = (
                f"ended: it took more than {QUOTA_TIMES} times the quota of its workspace, or nested "
                "directories too deep. What it wrote is still there: remove what is too much"
            )
        case "output":
            message = f"ended: it printed more than {OUTPUT_BYTES_MAX // 2**20} MiB. Write to a file instead"
    return [f"({message})"]


def _full_note(bind: Bind) -> str:
    return (
        f"({bind.name} took more than {QUOTA_TIMES} times its quota before this command, or had nested "
        "directories too deep. Until that is removed no file can grow, in /tmp neither: pipe instead)"
    )


def _uncommitted(mount: Mount, command: Command, *, is_one_of_several: bool) -> list[str]:
    where = f" in {mount.name}" if is_one_of_several else ""
    problems = command.problems
    lines = [f"(not kept{where}: {p.path!r} {p.detail})" for p in problems[:PROBLEMS_SHOWN_MAX]]
    left = len(problems) - len(lines)
    return [*lines, f"(and {left} more that are not kept{where})"] if left else lines


def _asks(arguments: BashInput, context: ToolContext) -> Mount | None:
    mount = context.mount(arguments.workspace)
    _sandbox_of(mount, context)
    _check_command(arguments.command)
    return mount if mount.is_asked_for else None


def _writes(arguments: BashInput, context: ToolContext) -> bool:
    record = _sandbox_of(context.mount(arguments.workspace), context)[1]
    return any(mount.is_writable for mount in context.mounts if _record_id(mount) == record.id)


BASH = Tool("bash", BashInput, _bash, is_writing=False, suits=_suits, asks=_asks, writes=_writes)
