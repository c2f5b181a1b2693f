"""`harness join`: this machine becomes another one of an account that is in S3 already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    Shown,
    notes,
    print_json,
    say,
    visible,
)

if TYPE_CHECKING:
    from harness.bootstrap.join import Joined


def register(app: typer.Typer) -> None:
    app.command()(join)


def join(
    place: Annotated[
        str, typer.Argument(help="Where its workspaces are.", metavar="s3://BUCKET/PREFIX")
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make this machine another one of an account in S3.

    The home must be untouched; it takes over the account (--account, where the place has several), its users
    and agents, and makes a key of its own, which is shown once. `harness workspace attach` then lists the
    workspaces. Interrupted, it can be run again.
    """
    from harness.bootstrap.join import join as joined_with

    Shown.as_json = as_json
    joined = joined_with(home or Shown.home, place, account=Shown.account)
    if as_json:
        print_json(_document(joined))
    else:
        _print(joined)


def _document(joined: Joined) -> dict[str, object]:
    account = joined.account
    return {
        "account": {"id": account.id, "name": account.name, "ownerId": account.owner_id},
        "s3": joined.location,
        "joined": joined.secret is not None,
        "key": joined.secret,
    }


def _print(joined: Joined) -> None:
    name = visible(joined.account.name)
    if joined.secret is None:
        say(f"this home is one of the account {name} ({joined.account.id}) already")
        for other in joined.others:
            say(f"  {joined.location} also has the account {visible(other)}: --account")
        return
    say(f"joined: {name} ({joined.account.id}) at {joined.location}")
    say(f"  key: {joined.secret}")
    notes().print("[yellow]Keep the key now: it cannot be shown again.[/]")
    for trouble in joined.sync_result.troubles:
        notes().print(visible(f"left alone: {trouble.name} {trouble.reason}"), markup=False)
    say("  `harness workspace attach` lists its workspaces, and brings one by its name")
