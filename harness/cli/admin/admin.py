"""The command `harness admin`: tasks that an installation rarely needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import HomeOption, JsonOption, Shown, complain, print_json, say

if TYPE_CHECKING:
    from harness.bootstrap.adoption import Adoption

app = typer.Typer(help="Set up or repair an installation.", no_args_is_help=True)


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


@app.command("init-postgres")
def init_postgres(
    address: Annotated[
        str,
        typer.Argument(
            envvar="HARNESS_RECORDS",
            help="The database, as in postgresql://USER@HOST/DATABASE. A password is better kept in "
            "HARNESS_RECORDS, PGPASSWORD or a password file: other users can see arguments.",
        ),
    ],
) -> None:
    """Create the PostgreSQL table for records. A suitable table that exists is left unchanged."""
    from workspaces.home.locations import make_postgres_table, shown_records

    make_postgres_table(address)
    say(f"ready: HARNESS_RECORDS={shown_records(address)}")


@app.command()
def adopt(
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="TREE=NAME",
            help="Make a workspace of this name of a tree without a card; repeatable. The tree is named by "
            "the beginning of its directory, as in fs-3f2a=notes.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore the records of a home from its cards and files.

    Workspaces with a card in `cards/` get the ids that they had. Other trees are listed; each becomes a new
    workspace when you give it a name. A damaged record store is moved aside, not deleted.
    """
    from harness.bootstrap.adoption import GONE
    from harness.bootstrap.adoption import adopt as carry_out

    Shown.as_json = as_json
    done = carry_out(home or Shown.home, names=_names(name or []), is_dry_run=dry_run)
    if as_json:
        print_json({**_as_json(done), "gone": list(GONE), "dryRun": dry_run})
        return
    would = "would be " if dry_run else ""
    if done.moved_aside:
        say(f"the damaged record store {would}moved to {done.moved_aside}")
    for one in done.restored:
        how = "the ids that it had" if one.is_same else "a new id"
        say(f"{would}restored  {one.name}  with {how}  ({one.namespace})")
    for left in done.left:
        newest = f", newest revision {left.newest[:10]}" if left.newest else ""
        say(f"left      {left.namespace}  {left.files} files{newest}: {left.reason}")
    for unheard in done.unheard:
        complain(f"it is not known what was forgotten: {unheard}; `harness forget` it again\n")
    if done.restored or done.moved_aside:
        say(f"not restored: {'; '.join(GONE)}")
    elif not done.left:
        say("nothing to adopt: every workspace of this home has its record")


def _names(given: list[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for one in given:
        tree, is_pair, name = one.partition("=")
        if not (tree and is_pair and name):
            raise typer.BadParameter("write TREE=NAME, as in fs-3f2a=notes", param_hint="--name")
        names[tree] = name
    return names


def _as_json(done: Adoption) -> dict[str, object]:
    return {
        "restored": [
            {
                "namespace": one.namespace,
                "id": one.workspace_id or None,
                "name": one.name,
                "account": one.account or None,
                "sameIds": one.is_same,
            }
            for one in done.restored
        ],
        "left": [
            {
                "namespace": one.namespace,
                "files": one.files,
                "newest": one.newest,
                "reason": one.reason,
            }
            for one in done.left
        ],
        "movedAside": None if done.moved_aside is None else str(done.moved_aside),
        "unheard": list(done.unheard),
    }
