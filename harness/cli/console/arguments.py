"""Arguments that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

WorkspaceArgument = Annotated[
    str, typer.Argument(help="Name or id of a workspace.", metavar="WORKSPACE")
]
RevisionOption = Annotated[
    str | None, typer.Option("--revision", "-r", help="Show the state at this revision.")
]
PathArgument = Annotated[str, typer.Argument(help="Path of a file, relative to the workspace.")]
