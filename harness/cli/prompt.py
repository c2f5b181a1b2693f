"""`harness prompt`: exactly what a prompt would hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.face import HomeOption, JsonOption, opened, print_json

if TYPE_CHECKING:
    from harness import Harness
    from harness.context.assemble import Part


def register(app: typer.Typer) -> None:
    app.command()(prompt)


def prompt(
    workspace: Annotated[
        str | None, typer.Argument(help="A workspace: what an agent that mounts it would be shown.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="An agent: its whole system prompt.")
    ] = None,
    where: Annotated[
        bool,
        typer.Option("--where", help="Say also where the workspace's files lie on this machine."),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the prompt that a next turn would begin with, part by part."""
    with opened(home, as_json=as_json) as harness:
        parts = _parts(harness, workspace, agent)
        if where and workspace is not None:
            parts.append(_place(harness, workspace))
    if as_json:
        print_json(
            [
                {
                    "source": part.source,
                    "trusted": part.is_trusted,
                    "characters": len(part.text),
                    "text": part.text,
                }
                for part in parts
            ]
        )
        return
    typer.echo("\n\n".join(part.text for part in parts))


def _parts(harness: Harness, workspace: str | None, agent: str | None) -> list[Part]:
    from harness.agent import Mount, mount_name
    from harness.briefing import brief
    from workspaces.errors import Refused

    if workspace is None:
        return harness.prompt(agent)
    if agent is not None:
        raise Refused("--agent", agent, "cannot be given together with a workspace")
    mounted = harness.workspaces.get(workspace)
    return brief(None, [Mount(mount_name(mounted.record.name), mounted, is_writable=True)])


def _place(harness: Harness, workspace: str) -> Part:
    """For an agent with tools of its own."""
    from harness.context.assemble import Part
    from harness.template import render

    place = harness.workspaces.get(workspace)
    told = render("prompt/place.md", workspace=place.record.name, root=place.root)
    return Part("place", is_trusted=True, text=told)
