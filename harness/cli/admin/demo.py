"""The command `harness demo`: a filled home to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.console.console import JsonOption, Shown, path, print_json, say


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    directory: Annotated[
        Path, typer.Argument(parser=path, help="An empty directory, or a new one.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Make a filled, made-up home to look at.

    It has files, rows, conversations, runs, a conflict and a call that waits. Nothing of it is real, and no
    provider is asked. A directory that holds anything is refused.
    """
    from harness.presentation.demo_home import make_demo_home

    Shown.as_json = as_json
    make_demo_home(directory)
    if as_json:
        print_json({"home": str(directory)})
    else:
        say(f"Made {directory}. Look at it: HARNESS_HOME={directory} harness up")
