"""Showing and confirming a change of another program's configuration."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli.console.console import notes, print_styled

if TYPE_CHECKING:
    from harness.integrations.config_edit import FileEdit


def own_command() -> list[str]:
    """Return the `harness` command such that a program finds it from any directory."""
    program = shutil.which(sys.argv[0]) or ""
    if Path(program).name != "harness":
        program = shutil.which("harness") or ""
    return [str(Path(program).absolute())] if program else [sys.executable, "-m", "harness.cli.app"]


def show_change(change: FileEdit) -> None:
    from harness.cli.console.diff_printer import styled_patch

    if change.is_one:
        print_styled(styled_patch(change.diff()))
    else:
        notes().print(f"{change.file} already has this setting", markup=False)


def confirm_change() -> bool:
    """Ask the person at the terminal to confirm the change.

    Raises:
        Refused: standard input is no terminal.
    """
    from workspaces.errors import Refused

    if not (sys.stdin and sys.stdin.isatty()):
        raise Refused(
            "change",
            None,
            "was not confirmed",
            message="Nothing was changed.",
            remedy="Run again with --yes to apply it.",
        )
    return typer.confirm("Apply this change?", err=True)
