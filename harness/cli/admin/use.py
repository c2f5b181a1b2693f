"""`harness use`: a workspace as the memory of an agent that people have already."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, assert_never

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    notes,
    opened,
    path,
    print_json,
    print_styled,
)

if TYPE_CHECKING:
    from harness import Harness
    from harness.integrations.config_edit import FileEdit
    from harness.integrations.integration import Integration, Use
    from workspaces.workspace.workspace import Workspace

ClientName = Literal["claude-code", "codex"]


def register(app: typer.Typer) -> None:
    app.command()(use)


def use(
    client: Annotated[ClientName, typer.Argument(help="Who shall use a workspace.")],
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", "-w", help="Which one; else the home's default workspace."),
    ] = None,
    project: Annotated[
        Path | None,
        typer.Option(
            parser=path, help="For this project alone (Claude Code); else wherever it is started."
        ),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take exactly that back again.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Let another agent keep its memory in a workspace.

    Shows what changes in that program's configuration and asks. Claude Code: its automatic memory
    lies in the workspace. Codex: it may write there. Both begin each session with what `harness
    prompt` says. Everything else in their configuration stays as it is.
    """
    from harness.integrations.config_edit import Configurations

    with opened(home, as_json=as_json) as harness:
        one = _client(client)
        file = one.file(project.expanduser().absolute() if project else None)
        configurations = Configurations(harness.settings.home.used)
        if undo:
            change, advice = configurations.undo(one, file), ""
        else:
            place = harness.workspaces.get(workspace or harness.settings.default_workspace)
            change = configurations.use(one, file, _use(harness, place, one))
            advice = _advice(one, place, project)
        if not as_json:
            _show(change)
        agreed = yes or (not as_json and change.is_one and _agreed())
        if agreed:
            configurations.carry_out(one, change)
    if as_json:
        told = {"client": client, "file": str(file), "applied": agreed, "diff": change.diff()}
        print_json({**told, "advice": advice})
    elif agreed and advice:
        notes().print(advice, markup=False)
    return 0 if agreed or as_json or not change.is_one else 1


def _client(name: ClientName) -> Integration:
    match name:
        case "claude-code":
            from harness.integrations.claude_code import ClaudeCode

            return ClaudeCode()
        case "codex":
            from harness.integrations.codex import Codex

            return Codex()
        case _:
            assert_never(name)


def _use(harness: Harness, place: Workspace, client: Integration) -> Use:
    """By the workspace's id: its name may change."""
    from harness.integrations.integration import Use

    words = [*_ourselves(), "--home", str(harness.settings.home.root), "prompt", place.record.id]
    return Use(str(place.root), shlex.join([*words, *client.prompt_options]))


def _ourselves() -> list[str]:
    """The command as a program finds it that was started elsewhere."""
    found = shutil.which(sys.argv[0]) or ""
    if Path(found).name != "harness":
        found = shutil.which("harness") or ""
    return [str(Path(found).absolute())] if found else [sys.executable, "-m", "harness.cli.app"]


def _show(change: FileEdit) -> None:
    from harness.cli.console.diff_printer import styled_patch

    if change.is_one:
        print_styled(styled_patch(change.diff()))
    else:
        notes().print(f"{change.file} says so already", markup=False)


def _agreed() -> bool:
    """Only a person can be asked."""
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


def _advice(client: Integration, place: Workspace, project: Path | None) -> str:
    from harness.runtime.templates import render

    return render(
        client.advice,
        workspace=place.record.name,
        root=place.root,
        project=str(project) if project else None,
    )
