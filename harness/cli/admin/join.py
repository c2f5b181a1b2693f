"""The command `harness join`: connect this machine to an account that is in S3 already."""

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
        str,
        typer.Argument(
            help="Where the account's workspaces are stored.", metavar="s3://BUCKET/PREFIX"
        ),
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Connect this machine to an existing account in S3.

    The home must be unused. The command copies the account, its users and its agents into the home. It
    creates a key for this machine, which is shown once. If the bucket holds several accounts, choose one with
    --account. `harness workspace attach` then lists the workspaces. An interrupted join can be run again.
    """
    from harness.bootstrap.join import join as join_account

    Shown.as_json = as_json
    joined = join_account(home or Shown.home, place, account=Shown.account)
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
        say(f"this home already belongs to the account {name} ({joined.account.id})")
        for other in joined.others:
            say(
                f"  {joined.location} also has the account {visible(other)}; choose it with --account"
            )
        return
    say(f"joined: {name} ({joined.account.id}) at {joined.location}")
    say(f"  key: {joined.secret}")
    notes().print("[yellow]Keep the key now: it cannot be shown again.[/]")
    for trouble in joined.sync_result.troubles:
        notes().print(visible(f"skipped: {trouble.name} {trouble.reason}"), markup=False)
    say("  `harness workspace attach` lists its workspaces; with a name, it downloads one")
