"""`harness admin`: what is done once for an installation."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.console.console import say

app = typer.Typer(help="Set up what an installation needs.", no_args_is_help=True)


@app.command("init-dynamodb")
def init_dynamodb(
    table: Annotated[
        str, typer.Argument(help="The table's name, as in HARNESS_RECORDS=dynamodb:NAME.")
    ],
) -> None:
    """Make the DynamoDB table that keeps records. One that is there and fits is left as it is.

    Region, profile, endpoint and credentials come from the standard AWS variables and files.
    """
    from workspaces.home.locations import make_record_table

    make_record_table(table)
    say(f"ready: HARNESS_RECORDS=dynamodb:{table}")
