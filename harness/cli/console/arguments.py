"""Arguments that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

WorkspaceArgument = Annotated[
    str, typer.Argument(help="A workspace: name or id.", metavar="WORKSPACE")
]
RevisionOption = Annotated[
    str | None, typer.Option("--revision", "-r", help="As it was at this revision.")
]
PathArgument = Annotated[str, typer.Argument(help="A file, as seen from the workspace's root.")]
