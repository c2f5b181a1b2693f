"""The command `harness workspace`: the workspaces of a home."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from harness.cli.console.arguments import WorkspaceArgument
from harness.cli.console.console import (
    ConfigOption,
    HomeOption,
    JsonOption,
    as_config,
    opened,
    opened_files,
    print_deleted,
    print_json,
    print_record,
    print_table,
    visible,
)
from harness.cli.files.sync import download, print_sync_result

if TYPE_CHECKING:
    from harness.sync.registry_sync import Offer
    from workspaces.home.layout import Home
    from workspaces.ids import AccountId
    from workspaces.workspace.workspace import Workspace

app = typer.Typer(help="Workspaces: directories of Markdown with a history.", no_args_is_help=True)

DescriptionOption = Annotated[
    str | None, typer.Option(help="What the workspace is for; agents read it.")
]
StorageOption = Annotated[
    Literal["local", "s3"] | None,
    typer.Option(help="Only on this machine, or shared in S3; default: the home's setting."),
]
GuidanceOption = Annotated[
    Literal["on", "off"] | None,
    typer.Option("--harness", help="Tell agents how to use MEMORY.md, TASKS.md and notes/."),
]


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="workspace")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="A new name.")],
    template: Annotated[
        str,
        typer.Option(
            help="Initial files: default, coding, research, personal, or a directory in `templates/` "
            "of the home."
        ),
    ] = "default",
    description: DescriptionOption = None,
    guidance: GuidanceOption = None,
    config: ConfigOption = None,
    storage: StorageOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a workspace."""
    provider = None if storage is None else {"provider": storage}
    options = as_config(config, harness=_enabled(guidance), storage=provider)
    with opened(home, as_json=as_json) as harness:
        workspace = harness.workspaces.create(
            name, template=template, description=description, config=options
        )
        print_record(_shown(workspace), as_json=as_json)


@app.command("list")
def list_(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the workspaces."""
    with opened_files(home, as_json=as_json) as files:
        account_id = files.principal.account_id
        shown = [_with_path(files.home, account_id, record) for record in files.stored()]
    if as_json:
        print_json({"workspaces": shown})
        return
    rows = ((one["name"], one["id"], one.get("description", "")) for one in shown)
    print_table(("name", "id", "description"), rows)


@app.command()
def show(
    workspace: WorkspaceArgument, home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """Show all fields of a workspace."""
    with opened(home, as_json=as_json) as harness:
        print_record(_shown(harness.workspaces.get(workspace)), as_json=as_json)


@app.command("set")
def set_(
    workspace: WorkspaceArgument,
    name: Annotated[str | None, typer.Option(help="A new name.")] = None,
    description: DescriptionOption = None,
    guidance: GuidanceOption = None,
    config: ConfigOption = None,
    storage: StorageOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a workspace. An empty description clears it."""
    provider = None if storage is None else {"provider": storage}
    options = as_config(config, harness=_enabled(guidance), storage=provider)
    patch: dict[str, Any] = {"config": options}
    if name is not None:
        patch["name"] = name
    if description is not None:
        patch["description"] = description or None
    with opened(home, as_json=as_json) as harness:
        record = harness.workspaces.patch(workspace, patch)
        print_record(_shown(harness.workspaces.open(record)), as_json=as_json)


@app.command()
def rm(
    workspace: WorkspaceArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Delete it although agents mount it.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a workspace. Its files and history are moved to the trash of the home."""
    with opened(home, as_json=as_json) as harness:
        print_deleted(harness.deletion.workspace(workspace, force=force), as_json=as_json)


@app.command()
def attach(
    workspace: Annotated[
        str | None,
        typer.Argument(help="Name or id; without it, list them.", metavar="[WORKSPACE]"),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Download a workspace from S3, or list those in S3.

    The command downloads its name, configuration, files and history. It also downloads the agents that mount
    it, with their private data. An interrupted download can be run again. Without a name, the command lists
    the workspaces in S3.
    """
    from workspaces.accounts.stored_workspace import is_private
    from workspaces.errors import Refused
    from workspaces.home.unreachable import SET_PLACE

    with opened(home, as_json=as_json) as harness:
        registry = harness.following
        if registry is None:
            raise Refused("s3", None, "is not set: this home shares nothing", remedy=SET_PLACE)
        if workspace is None:
            _print_offers(registry.offered(), as_json=as_json)
            return
        workspace_id, result = registry.attach(workspace)
        print_sync_result(result)
        for record in harness.workspaces.list(private=True):
            if record.id == workspace_id or (record.is_shared and is_private(record.id)):
                download(record.name, harness.workspaces)
        print_record(_shown(harness.workspaces.get(workspace_id)), as_json=as_json)


def _print_offers(offers: list[Offer], *, as_json: bool) -> None:
    if as_json:
        shown = [
            {"id": one.id, "name": one.name, "attached": one.is_here, "problem": one.error}
            for one in offers
        ]
        print_json({"workspaces": shown})
        return
    rows = (
        (visible(one.name), one.id, one.error or ("attached" if one.is_here else ""))
        for one in offers
    )
    print_table(("name", "id", "here"), rows)


def _enabled(guidance: str | None) -> dict[str, bool] | None:
    return None if guidance is None else {"enabled": guidance == "on"}


def _with_path(home: Home, account_id: AccountId, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the path of its files, like `_shown`, but also if the files are lost."""
    from workspaces.ids import namespace

    name = namespace(account_id, record["id"])
    return {**record, "namespace": name, "path": str(home.tree(name))}


def _shown(workspace: Workspace) -> dict[str, Any]:
    """Return the record of a workspace, with the path of its files on this machine."""
    record = workspace.record.as_json()
    return {**record, "namespace": workspace.namespace, "path": str(workspace.root)}
