"""`harness account`, `harness user`, `harness key`: who may use a home, and by which secret."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from harness.cli.console.console import (
    ConfigOption,
    HomeOption,
    JsonOption,
    as_config,
    notes,
    opened,
    print_gone,
    print_json,
    print_record,
    print_table,
    say,
)

account_app = typer.Typer(
    help="Accounts: whose data it is. A home has one unless you make more.", no_args_is_help=True
)
user_app = typer.Typer(help="End users of an account.", no_args_is_help=True)
key_app = typer.Typer(help="API keys.", no_args_is_help=True)

NameOption = Annotated[str | None, typer.Option(help="A new name.")]
UserReference = Annotated[
    str, typer.Argument(help="Id, the platform's own id, or name.", metavar="USER")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Really: everything in it goes.")]


@account_app.command("create")
def create_account(
    name: Annotated[str, typer.Argument(help="A new name.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an account, ready to chat in. Its first key is shown, once."""
    from harness.bootstrap.first_start import create_defaults

    with opened(home, as_json=as_json) as harness:
        account = harness.house.accounts.create({"name": name})
        rooms = harness.house.rooms(harness.house.accounts.owner(account))
        create_defaults(rooms)
        _, secret = rooms.keys.create(label="first")
        _print_with_key(account.as_json(), secret, as_json=as_json)


@account_app.command("list")
def list_accounts(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """All accounts of the home."""
    with opened(home, as_json=as_json) as harness:
        records = [account.as_json() for account in harness.house.accounts.list()]
    if as_json:
        print_json({"accounts": records})
        return
    print_table(("name", "id"), ((record["name"], record["id"]) for record in records))


@account_app.command("show")
def show_account(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """The account that commands act in: the default one, or --account."""
    with opened(home, as_json=as_json) as harness:
        print_record(harness.rooms.account.get().as_json(), as_json=as_json)


@account_app.command("set")
def set_account(
    name: NameOption = None,
    autocreate: Annotated[
        Literal["on", "off"] | None,
        typer.Option("--users-autocreate", help="Make a user when a platform first names it."),
    ] = None,
    config: ConfigOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the account that commands act in.

    What it may use is limited by --config '{"limits": {"turnsPerMinute": 60, "runningTurns": 10,
    "dollarsPerDay": 5, "dollarsPerMonth": 50}}', or by one of these; null takes a limit away.
    """
    users = None if autocreate is None else {"autocreate": autocreate == "on"}
    patch: dict[str, Any] = {"config": as_config(config, users=users)}
    if name is not None:
        patch["name"] = name
    with opened(home, as_json=as_json) as harness:
        print_record(harness.rooms.account.patch(patch).as_json(), as_json=as_json)


@account_app.command("rm")
def remove_account(
    account: Annotated[str, typer.Argument(help="Name or id.", metavar="ACCOUNT")],
    force: ForceOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete an account with its workspaces, agents, users and keys."""
    from workspaces.errors import InUse

    with opened(home, as_json=as_json) as harness:
        accounts = harness.house.accounts
        record = accounts.get(account)
        rooms = harness.house.rooms(accounts.owner(record))
        held = [workspace.name for workspace in rooms.workspaces.list(private=True)]
        if held and not force:
            raise InUse("account", record.name, held)
        print_gone(rooms.deletion.account(), as_json=as_json)


@user_app.command("create")
def create_user(
    name: Annotated[str | None, typer.Argument(help="A name.")] = None,
    external_id: Annotated[
        str | None, typer.Option("--external-id", help="The platform's own id of this user.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a user."""
    stated = {"name": name, "externalId": external_id}
    fields = {key: value for key, value in stated.items() if value is not None}
    with opened(home, as_json=as_json) as harness:
        print_record(harness.rooms.users.create(fields).as_json(), as_json=as_json)


@user_app.command("list")
def list_users(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """All users."""
    with opened(home, as_json=as_json) as harness:
        records = [user.as_json() for user in harness.rooms.users.list()]
    if as_json:
        print_json({"users": records})
        return
    rows = ((user["name"], user["id"], user.get("externalId") or "") for user in records)
    print_table(("name", "id", "external id"), rows)


@user_app.command("show")
def show_user(user: UserReference, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """One user, whole."""
    with opened(home, as_json=as_json) as harness:
        print_record(harness.rooms.users.get(user).as_json(), as_json=as_json)


@user_app.command("set")
def set_user(
    user: UserReference,
    name: NameOption = None,
    external_id: Annotated[
        str | None,
        typer.Option("--external-id", help="The platform's own id; an empty one clears it."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a user."""
    patch: dict[str, Any] = {} if name is None else {"name": name}
    if external_id is not None:
        patch["externalId"] = external_id or None
    with opened(home, as_json=as_json) as harness:
        print_record(harness.rooms.users.patch(user, patch).as_json(), as_json=as_json)


@user_app.command("rm")
def remove_user(user: UserReference, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Delete a user with its keys and everything that was private to it."""
    with opened(home, as_json=as_json) as harness:
        print_gone(harness.deletion.user(user), as_json=as_json)


@key_app.command("create")
def create_key(
    user: Annotated[
        str | None, typer.Option(help="Act as this user alone; without it, as the account.")
    ] = None,
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    expires: Annotated[
        str | None, typer.Option(help="Until when it is valid, as in 2027-01-31T12:00:00Z.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key. It is shown once and cannot be shown again."""
    with opened(home, as_json=as_json) as harness:
        user_id = harness.rooms.users.get(user).id if user is not None else None
        record, secret = harness.rooms.keys.create(label=label, user_id=user_id, expires_at=expires)
        _print_with_key(record.as_json(), secret, as_json=as_json)


@key_app.command("list")
def list_keys(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """All keys, without their secrets."""
    with opened(home, as_json=as_json) as harness:
        records = [key.as_json() for key in harness.rooms.keys.list()]
    if as_json:
        print_json({"keys": records})
        return
    columns = ("id", "label", "userId", "lastUsedAt", "expiresAt")
    print_table(columns, ((key.get(column) or "" for column in columns) for key in records))


@key_app.command("rotate")
def rotate_key(
    key: Annotated[str, typer.Argument(help="Its id.", metavar="KEY")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a key; the old one stops working immediately."""
    with opened(home, as_json=as_json) as harness:
        record, secret = harness.rooms.keys.rotate(key)
        _print_with_key(record.as_json(), secret, as_json=as_json)


@key_app.command("rm")
def revoke_key(
    key: Annotated[str, typer.Argument(help="Its id.", metavar="KEY")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke a key. It stops working immediately."""
    with opened(home, as_json=as_json) as harness:
        record = harness.rooms.keys.revoke(key)
    if as_json:
        print_json({"deleted": True, "id": record.id})
    else:
        say(f"revoked: {record.id} {record.label}".rstrip())


def _print_with_key(record: dict[str, Any], secret: str, *, as_json: bool) -> None:
    print_record({**record, "key": secret}, as_json=as_json)
    notes().print("[yellow]Keep the key now: it cannot be shown again.[/]")
