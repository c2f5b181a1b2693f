"""The command `harness sandbox`: the records that say how an agent's commands run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from harness.cli.console.console import (
    ConfigOption,
    HomeOption,
    JsonOption,
    as_config,
    opened,
    print_deleted,
    print_json,
    print_record,
    print_table,
)

app = typer.Typer(
    help="Sandboxes: how an agent's commands run. They also decide whether its mounts are writable.",
    no_args_is_help=True,
)

SandboxArgument = Annotated[str, typer.Argument(help="Name or id.", metavar="SANDBOX")]
ModeOption = Annotated[
    Literal["rw", "ro"] | None, typer.Option(help="Writable or read-only mounts.")
]
NetworkOption = Annotated[
    Literal["none", "host"] | None, typer.Option(help="No network, or the network of the host.")
]
PermissionOption = Annotated[
    Literal["bypass", "ask"] | None,
    typer.Option(help="Run commands and writes without asking, or ask a person for each."),
]


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="sandbox")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="A new name.")],
    mode: ModeOption = None,
    network: NetworkOption = None,
    permission: PermissionOption = None,
    config: ConfigOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a sandbox."""
    fields = {
        "name": name,
        "config": as_config(config, mode=mode, network=network, permission=permission),
    }
    with opened(home, as_json=as_json) as harness:
        record = harness.rooms.sandboxes.add(fields)
        print_record(record.as_json(), as_json=as_json)


@app.command("list")
def list_(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the sandboxes."""
    with opened(home, as_json=as_json) as harness:
        records = harness.rooms.sandboxes.list()
    if as_json:
        print_json({"sandboxes": [record.as_json() for record in records]})
        return
    rows = ((one.name, one.id, one.config.mode, one.config.network) for one in records)
    print_table(("name", "id", "mode", "network"), rows)


@app.command()
def show(sandbox: SandboxArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show all fields of a sandbox."""
    with opened(home, as_json=as_json) as harness:
        print_record(harness.rooms.sandboxes.get(sandbox).as_json(), as_json=as_json)


@app.command("set")
def set_(
    sandbox: SandboxArgument,
    name: Annotated[str | None, typer.Option(help="A new name.")] = None,
    mode: ModeOption = None,
    network: NetworkOption = None,
    permission: PermissionOption = None,
    config: ConfigOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a sandbox."""
    patch: dict[str, Any] = {
        "config": as_config(config, mode=mode, network=network, permission=permission)
    }
    if name is not None:
        patch["name"] = name
    with opened(home, as_json=as_json) as harness:
        print_record(harness.rooms.sandboxes.patch(sandbox, patch).as_json(), as_json=as_json)


@app.command()
def rm(
    sandbox: SandboxArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Delete it although agents use it.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a sandbox."""
    with opened(home, as_json=as_json) as harness:
        print_deleted(harness.deletion.sandbox(sandbox, force=force), as_json=as_json)
