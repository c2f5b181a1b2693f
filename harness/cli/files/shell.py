"""`harness shell`: the sandbox an agent gets, for a person."""

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
    workspace: Annotated[str, typer.Argument(help="A workspace: name or id.", metavar="WORKSPACE")],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="What to run, after `--`; else a shell.", metavar="[-- COMMAND…]"),
    ] = None,
    sandbox: Annotated[str, typer.Option(help="The sandbox: name or id.")] = "default",
    home: HomeOption = None,
) -> int:
    """Open a shell in the agent's sandbox.

    In the very sandbox that it gets. The workspace is the working directory. What is changed in it becomes
    a revision of yours when the command ends; until then nobody else can write to it. Output and exit code
    are the command's.
    """
    with opened(home) as harness, _own_terminal():
        return harness.shell(workspace, command or (), sandbox=sandbox)


@contextmanager
def _own_terminal() -> Generator[None]:
    """A shell with job control takes the terminal for itself; afterwards it is ours again, and taking
    it back from the background must not stop us."""
    try:
        yield
    finally:
        if sys.stdin and sys.stdin.isatty():
            before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            with suppress(OSError):
                os.tcsetpgrp(sys.stdin.fileno(), os.getpgrp())
            signal.signal(signal.SIGTTOU, before)
