"""The command `harness use`: connect Claude Code or Codex to a workspace as its memory."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, assert_never

import typer

from harness.cli.console.config_change import apply_change, own_command, report_change
from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    opened,
    path,
)

if TYPE_CHECKING:
    from harness import Harness
    from harness.integrations.integration import Integration, Use
    from workspaces.workspace.workspace import Workspace

ClientName = Literal["claude-code", "codex"]


def register(app: typer.Typer) -> None:
    app.command()(use)


def use(
    client: Annotated[ClientName, typer.Argument(help="The program that shall use a workspace.")],
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace", "-w", help="The workspace; default: the home's default workspace."
        ),
    ] = None,
    project: Annotated[
        Path | None,
        typer.Option(
            parser=path, help="Only for this project (Claude Code); default: for all projects."
        ),
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Undo the change of an earlier run.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Apply the change without asking.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Connect another agent program to a workspace as its memory.

    The command shows how it would change the program's configuration, and asks. Claude Code keeps its
    automatic memory in the workspace. Codex may write to the workspace. Both begin each session with the
    output of `harness prompt`, and are told what has changed before each of your prompts. The rest of their
    configuration does not change.
    """
    from harness.integrations.config_edit import Configurations

    with opened(home, as_json=as_json) as harness:
        integration = _client(client)
        file = integration.file(project.expanduser().absolute() if project else None)
        configurations = Configurations(harness.settings.home.used)
        if undo:
            change, advice = configurations.undo(integration, file), ""
        else:
            place = harness.workspaces.get(workspace or harness.settings.default_workspace)
            change = configurations.use(integration, file, _use(harness, place, integration))
            advice = _advice(integration, place, project)
        is_applied = apply_change(
            configurations, integration, change, is_allowed=yes, as_json=as_json
        )
    return report_change(client, change, advice, is_applied=is_applied, as_json=as_json)


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
    """Return the settings of the integration. They name the workspace by its id, as its name may change."""
    from harness.integrations.integration import Use

    words = [*own_command(), "--home", str(harness.settings.home.root), "prompt", place.record.id]
    return Use(str(place.root), shlex.join([*words, *client.prompt_options]))


def _advice(client: Integration, place: Workspace, project: Path | None) -> str:
    from harness.runtime.templates import render

    return render(
        client.advice,
        workspace=place.record.name,
        root=place.root,
        project=str(project) if project else None,
    )
