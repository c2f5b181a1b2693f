"""The command `harness trash`: deleted workspaces."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Annotated

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    complain,
    notes,
    opened,
    print_json,
    print_record,
    print_table,
    say,
)

app = typer.Typer(help="Deleted workspaces: list, restore or remove them.", no_args_is_help=True)


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="trash")


@app.command("list")
def list_(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the deleted workspaces of the account that are still on this machine."""
    with opened(home, as_json=as_json) as harness:
        documents = [trashed.as_json() for trashed in harness.rooms.trash.list()]
    if as_json:
        print_json({"trash": documents})
        return
    rows = (
        (one["name"], one["at"][:16], one["why"], f"{one['bytes']:,}", one["place"])
        for one in documents
    )
    print_table(("name", "deleted (UTC)", "where", "bytes", "place"), rows)


@app.command()
def restore(
    workspace: Annotated[
        str, typer.Argument(help="Name, id or place, as the list shows it.", metavar="WORKSPACE")
    ],
    name: Annotated[str | None, typer.Option(help="A new name. By default the old one.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a new workspace of a deleted one, with its files and its history."""
    with opened(home, as_json=as_json) as harness:
        record = harness.rooms.trash.restore(workspace, name=name)
    print_record(record.as_json(), as_json=as_json)


@app.command()
def empty(
    older_than: Annotated[
        int, typer.Option(min=0, help="Only what was deleted at least so many days ago.")
    ] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Remove deleted workspaces of the account from this machine for good."""
    with opened(home, as_json=as_json) as harness:
        trash = harness.rooms.trash
        if not yes and not _agrees(len(trash.list())):
            return 1
        gone = trash.empty(older_than=timedelta(days=older_than))
    if as_json:
        print_json({"removed": [trashed.entry.name for trashed in gone]})
    else:
        say(f"removed for good: {', '.join(trashed.entry.name for trashed in gone) or 'nothing'}")
    return 0


def _agrees(count: int) -> bool:
    """Ask if the deleted workspaces shall go. Return False without a terminal, where nobody can answer."""
    if not sys.stdin.isatty():
        complain(f"{count} workspaces are in the trash; name --yes to remove them for good")
        return False
    notes().print(f"Remove up to {count} deleted workspaces with their histories for good? (y/n)")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
