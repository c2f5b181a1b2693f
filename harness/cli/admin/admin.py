"""The command `harness admin`: tasks that an installation needs once."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.console.console import say

app = typer.Typer(help="Set up an installation.", no_args_is_help=True)


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="admin")


@app.command("init-dynamodb")
def init_dynamodb(
    table: Annotated[
        str, typer.Argument(help="The table's name, as in HARNESS_RECORDS=dynamodb:NAME.")
    ],
) -> None:
    """Create the DynamoDB table for records. A suitable table that exists is left unchanged.

    Region, profile, endpoint and credentials come from the standard AWS variables and files.
    """
    from workspaces.home.locations import make_record_table

    make_record_table(table)
    say(f"ready: HARNESS_RECORDS=dynamodb:{table}")
