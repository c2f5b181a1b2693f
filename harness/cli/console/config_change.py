"""Showing and confirming a change of another program's configuration."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli.console.console import notes, print_json, print_styled

if TYPE_CHECKING:
    from harness.integrations.config_edit import Configurations, FileEdit
    from harness.integrations.integration import Integration


def own_command() -> list[str]:
    """Return the `harness` command such that a program finds it from any directory."""
    program = shutil.which(sys.argv[0]) or ""
    if Path(program).name != "harness":
        program = shutil.which("harness") or ""
    return [str(Path(program).absolute())] if program else [sys.executable, "-m", "harness.cli.app"]


def apply_change(
    configurations: Configurations,
    integration: Integration,
    change: FileEdit,
    *,
    is_allowed: bool,
    as_json: bool,
) -> bool:
    """Show a change, ask the person unless it is allowed already, and make it. Return True if it was made.

    With `as_json` nothing is shown or asked.

    Raises:
        Refused: the person must be asked, and standard input is no terminal.
    """
    if not as_json:
        _show(change)
    is_confirmed = is_allowed or (not as_json and change.is_one and _confirm())
    if is_confirmed:
        configurations.carry_out(integration, change)
    return is_confirmed


def report_change(
    client: str, change: FileEdit, advice: str, *, is_applied: bool, as_json: bool
) -> int:
    """Print what was done, and further instructions. Return the exit code: 1 for a change not made."""
    if as_json:
        document = {"client": client, "file": str(change.file), "applied": is_applied}
        print_json({**document, "diff": change.diff(), "advice": advice})
    elif is_applied and advice:
        notes().print(advice, markup=False)
    return 0 if is_applied or as_json or not change.is_one else 1


def _show(change: FileEdit) -> None:
    from harness.cli.console.diff_printer import styled_patch

    if change.is_one:
        print_styled(styled_patch(change.diff()))
    else:
        notes().print(f"{change.file} already has this setting", markup=False)


def _confirm() -> bool:
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
