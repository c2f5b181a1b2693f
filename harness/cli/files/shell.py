"""The command `harness shell`: a person works in the sandbox of an agent."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

from harness.cli.console.console import HomeOption, opened


def register(app: typer.Typer) -> None:
    app.command()(shell)


def shell(
    workspace: Annotated[
        str, typer.Argument(help="Name or id of a workspace.", metavar="WORKSPACE")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="A command to run, after `--`; default: a shell.", metavar="[-- COMMAND…]"
        ),
    ] = None,
    sandbox: Annotated[str, typer.Option(help="Name or id of the sandbox.")] = "default",
    home: HomeOption = None,
) -> int:
    """Open a shell in the agent's sandbox.

    With a COMMAND, run it there instead of a shell. The workspace is the working directory. When the command
    ends, its changes become a revision in your name. Until then no other process can write to the workspace.
    Output and exit code are those of the command.
    """
    with opened(home) as harness, _own_terminal():
        return harness.shell(workspace, command or (), sandbox=sandbox)


@contextmanager
def _own_terminal() -> Generator[None]:
    """Take the terminal back after the block.

    A shell with job control makes itself the terminal's foreground process. This process must not be stopped
    when it takes the terminal back from the background.
    """
    try:
        yield
    finally:
        if sys.stdin and sys.stdin.isatty():
            before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            with suppress(OSError):
                os.tcsetpgrp(sys.stdin.fileno(), os.getpgrp())
            signal.signal(signal.SIGTTOU, before)
