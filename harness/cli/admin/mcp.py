"""The command `harness mcp`: memory for other agent programs, over the Model Context Protocol."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from harness.cli.console.console import HomeOption, opened

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

    with opened(home) as harness:
        if workspace is not None:
            harness.workspaces.record(workspace)  # a wrong name is refused now, not at each call
        serve(McpCaller(harness.rooms, workspace, os.environ.get(AGENT) or None))
