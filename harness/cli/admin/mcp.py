"""The command `harness mcp`: memory for other agent programs, over the Model Context Protocol."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from harness.cli.console.config_change import apply_change, own_command, report_change
from harness.cli.console.console import HomeOption, JsonOption, opened

if TYPE_CHECKING:
    from harness import Harness
    from harness.integrations.config_edit import Configurations
    from harness.integrations.mcp_host import McpEntry, McpHost, McpScope

HostName = Literal["claude-code", "codex", "cursor", "claude-desktop", "vscode", "gemini"]
URL = "http://127.0.0.1:8642/mcp"
"""The address of the MCP server of `harness up`."""

AGENT = "HARNESS_AGENT_ID"
"""The environment variable that names the agent whose decisions and facts are meant."""

group = typer.Typer(
    name="mcp",
    help="Offer memory to other agent programs (MCP).",
    invoke_without_command=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(group)


@group.callback()
def mcp(
    context: typer.Context,
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace", "-w", help="The workspace to use; default: the home's default workspace."
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Serve one client over standard input and output, until it disconnects.

    An agent program starts this command itself. `harness mcp install CLIENT` tells it to.
    """
    if context.invoked_subcommand is not None:
        return
    from harness.mcp.caller import McpCaller
    from harness.mcp.stdio import serve
    from harness.memorize.local.local_conversations import local_conversations

    with opened(home) as harness:
        if workspace is not None:
            harness.workspaces.record(workspace)  # a wrong name is refused now, not at each call
        local = local_conversations(harness.settings, harness.rooms.memorizer.own)
        agent = os.environ.get(AGENT) or None
        serve(McpCaller(harness.rooms, workspace, agent, local_conversations=local))


@group.command()
def install(
    client: Annotated[HostName, typer.Argument(help="The program that shall use the memory.")],
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", "-w", help="The workspace to use if a call names none."),
    ] = None,
    scope: Annotated[
        Literal["user", "project"],
        typer.Option(help="For all your projects, or for the one in the current directory."),
    ] = "user",
    http: Annotated[
        bool, typer.Option("--http", help="Reach `harness up` over HTTP instead of a command.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Undo the change of an earlier run.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Apply the change without asking.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Add the memory server to the configuration of an agent program.

    The command shows the change, and asks. The rest of the configuration does not change, and no key is
    written into it: over HTTP the program reads the key from the environment variable HARNESS_KEY. Where
    `claude` is on the path, Claude Code itself makes the change (`claude mcp add`).
    """
    from harness.integrations.mcp_host import KEY_VARIABLE, mcp_host
    from harness.runtime.templates import render

    with opened(home, as_json=as_json) as harness:
        host = mcp_host(client, scope, Path.cwd())
        entry = None if undo else _entry(harness, workspace, is_http=http)
        configurations = _configurations(harness.settings.home.used, host, scope, entry)
        if entry is None:
            change = configurations.undo(host, host.place)
        else:
            change = configurations.use(host, host.place, host.entry(entry))
        is_applied = apply_change(configurations, host, change, is_allowed=yes, as_json=as_json)
    variable = KEY_VARIABLE if http else None
    advice = "" if undo else render(host.advice, host=client, variable=variable)
    return report_change(client, change, advice, is_applied=is_applied, as_json=as_json)


def _configurations(
    notes: Path, host: McpHost, scope: McpScope, entry: McpEntry | None
) -> Configurations:
    """Return the edits of this home. Claude Code itself makes those of its file, if it is installed."""
    from harness.integrations.config_edit import Configurations

    if host.host == "claude-code":
        from harness.integrations.claude_program import ClaudeConfigurations, claude_program

        program = claude_program(scope, Path.cwd())
        if program is not None:
            return ClaudeConfigurations(notes, program, entry)
    return Configurations(notes)


def _entry(harness: Harness, workspace: str | None, *, is_http: bool) -> McpEntry:
    """Return the entry for the program. It names the workspace by its id, as its name may change."""
    from harness.integrations.mcp_host import McpEntry
    from workspaces.errors import Refused

    if is_http and workspace is not None:
        rule = "belongs to a command: over HTTP each call names its workspace"
        raise Refused("--workspace", workspace, rule, remedy="leave out --workspace")
    if is_http:
        return McpEntry(url=URL)
    words = [*own_command(), "--home", str(harness.settings.home.root), "mcp"]
    if workspace is not None:
        words += ["--workspace", harness.workspaces.record(workspace).id]
    return McpEntry(command=tuple(words))
