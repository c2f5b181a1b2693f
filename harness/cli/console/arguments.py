"""Arguments that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

WorkspaceArgument = Annotated[
    str, typer.Argument(help="Name or id of a workspace.", metavar="WORKSPACE")
]
PathArgument = Annotated[str, typer.Argument(help="Path of a file, relative to the workspace.")]
