"""`harness log`: what changed in a workspace, who wrote it, and from which conversation."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.face import HomeOption, JsonOption, opened, out, print_json

Reference = Annotated[str, typer.Argument(help="A workspace: name or id.", metavar="WORKSPACE")]


def register(app: typer.Typer) -> None:
    app.command()(log)


def log(
    workspace: Reference,
    path: Annotated[str | None, typer.Argument(help="Only what touched this file.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at the most.")] = 50,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """The revisions of a workspace, newest first."""
    from rich.text import Text

    with opened(home, as_json=as_json) as harness:
        revisions = harness.workspaces.get(workspace).log(path, limit=limit)
    if as_json:
        print_json(
            [
                {
                    "revision": revision.id,
                    "at": revision.at,
                    "author": revision.author,
                    "subject": revision.subject,
                    "trailers": dict(revision.trailers),
                    "paths": list(revision.paths),
                }
                for revision in revisions
            ]
        )
        return
    console = out()
    for revision in revisions:
        told = revision.trailers.get("Conversation", revision.trailers.get("Source", ""))
        when = revision.at[:16].replace("T", " ")
        console.print(
            Text.assemble(
                (revision.id[:10], "yellow"),
                f" {when} ",
                (revision.author, "bold"),
                (f" ({told})" if told else "", "dim"),
                f"\n    {revision.subject}",
            )
        )
