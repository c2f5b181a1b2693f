"""The commands `harness account`, `harness user` and `harness key`: who may use a home."""

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
    print_deleted,
    print_json,
    print_record,
    print_table,
    say,
)

account_app = typer.Typer(
    help="Accounts of the home. There is one unless you create more.", no_args_is_help=True
)
user_app = typer.Typer(help="End users of an account.", no_args_is_help=True)
key_app = typer.Typer(help="API keys.", no_args_is_help=True)

NameOption = Annotated[str | None, typer.Option(help="A new name.")]
UserReference = Annotated[str, typer.Argument(help="Id, external id, or name.", metavar="USER")]
ForceOption = Annotated[bool, typer.Option("--force", help="Delete it with everything in it.")]


def register(app: typer.Typer) -> None:
    app.add_typer(account_app, name="account")
    app.add_typer(user_app, name="user")
    app.add_typer(key_app, name="key")


@account_app.command("create")
def create_account(
    name: Annotated[str, typer.Argument(help="A new name.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an account with a default agent and workspace. Its first key is shown once."""
    from harness.bootstrap.first_start import create_defaults

    with opened(home, as_json=as_json) as harness:
        account = harness.house.accounts.add({"name": name})
        services = harness.house.rooms(harness.house.accounts.owner(account))
        create_defaults(services)
        _, secret = services.keys.create(label="first")
        _print_with_key(account.as_json(), secret, as_json=as_json)


@account_app.command("list")
def list_accounts(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the accounts of the home."""
    with opened(home, as_json=as_json) as harness:
        records = [account.as_json() for account in harness.house.accounts.list()]
    if as_json:
        print_json({"accounts": records})
        return
    print_table(("name", "id"), ((record["name"], record["id"]) for record in records))


@account_app.command("show")
def show_account(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show the account that commands use: the default one, or --account."""
    with opened(home, as_json=as_json) as harness:
        print_record(harness.rooms.account.get().as_json(), as_json=as_json)


@account_app.command("set")
def set_account(
    name: NameOption = None,
    autocreate: Annotated[
        Literal["on", "off"] | None,
        typer.Option(
            "--users-autocreate", help="Create a user at the first request that names one."
        ),
    ] = None,
    config: ConfigOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the account that commands use.

    --config sets limits: '{"limits": {"turnsPerMinute": 60, "runningTurns": 10, "dollarsPerDay": 5,
    "dollarsPerMonth": 50}}', or some of these. null removes a limit.
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
        services = harness.house.rooms(accounts.owner(record))
        names = [workspace.name for workspace in services.workspaces.list(private=True)]
        if names and not force:
            raise InUse("account", record.name, names)
        print_deleted(services.deletion.account(), as_json=as_json)


@user_app.command("create")
def create_user(
    name: Annotated[str | None, typer.Argument(help="A name.")] = None,
    external_id: Annotated[
        str | None, typer.Option("--external-id", help="Id of the user on your platform.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a user."""
    options = {"name": name, "externalId": external_id}
    fields = {key: value for key, value in options.items() if value is not None}
    with opened(home, as_json=as_json) as harness:
        print_record(harness.rooms.users.add(fields).as_json(), as_json=as_json)


@user_app.command("list")
def list_users(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the users."""
    with opened(home, as_json=as_json) as harness:
        records = [user.as_json() for user in harness.rooms.users.list()]
    if as_json:
        print_json({"users": records})
        return
    rows = ((user["name"], user["id"], user.get("externalId") or "") for user in records)
    print_table(("name", "id", "external id"), rows)


@user_app.command("show")
def show_user(user: UserReference, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show all fields of a user."""
    with opened(home, as_json=as_json) as harness:
        print_record(harness.rooms.users.get(user).as_json(), as_json=as_json)


@user_app.command("set")
def set_user(
    user: UserReference,
    name: NameOption = None,
    external_id: Annotated[
        str | None,
        typer.Option(
            "--external-id", help="Id of the user on your platform; an empty text removes it."
        ),
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
    """Delete a user with its keys and all its private data."""
    with opened(home, as_json=as_json) as harness:
        print_deleted(harness.deletion.user(user), as_json=as_json)


@key_app.command("create")
def create_key(
    user: Annotated[
        str | None, typer.Option(help="The user that the key acts as; default: the account.")
    ] = None,
    label: Annotated[str, typer.Option(help="What the key is for.")] = "",
    expires: Annotated[
        str | None, typer.Option(help="When the key expires, as in 2027-01-31T12:00:00Z.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key. It is shown once and cannot be shown again."""
    with opened(home, as_json=as_json) as harness:
        user_id = harness.rooms.users.get(user).id if user is not None else None
        record, secret = harness.rooms.keys.create(label=label, user_id=user_id, expires_at=expires)
        _print_with_key(record.as_json(), secret, as_json=as_json)


@key_app.command("list")
def list_keys(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the keys without their secrets."""
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
