"""The command `harness agent`: the agents of a home."""

from __future__ import annotations

from typing import Annotated

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

app = typer.Typer(help="Agents, with their model and mounted workspaces.", no_args_is_help=True)

AgentArgument = Annotated[str, typer.Argument(help="Name or id.", metavar="AGENT")]
ModelOption = Annotated[str | None, typer.Option(help="The model; `demo` is the offline one.")]
SystemOption = Annotated[str | None, typer.Option(help="The agent's own instructions.")]
WorkspaceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--workspace", "-w", help="A workspace to mount; repeatable. The first is the default."
    ),
]
SandboxOption = Annotated[
    str | None,
    typer.Option(help="The sandbox for its commands; `none` makes its mounts read-only."),
]


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="agent")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="A new name.")],
    model: ModelOption = None,
    system: SystemOption = None,
    workspace: WorkspaceOption = None,
    sandbox: SandboxOption = "default",
    config: ConfigOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an agent."""
    fields = as_config(config, model=model, system=system)
    with opened(home, as_json=as_json) as harness:
        if workspace:
            fields["workspaces"] = harness.agents.mounts(workspace)
        if sandbox not in (None, "none"):
            fields = {"sandbox": harness.rooms.sandboxes.get(sandbox).id, **fields}
        record = harness.agents.add({"name": name, "config": fields})
        print_record(record.as_json(), as_json=as_json)


@app.command("list")
def list_(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the agents."""
    with opened(home, as_json=as_json) as harness:
        records = [record.as_json() for record in harness.agents.list()]
    if as_json:
        print_json({"agents": records})
        return
    rows = (
        (
            record["name"],
            record["id"],
            record["config"].get("model", ""),
            ", ".join(mount["name"] for mount in record["config"].get("workspaces", [])),
        )
        for record in records
    )
    print_table(("name", "id", "model", "mounts"), rows)


@app.command()
def show(agent: AgentArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show all fields of an agent."""
    with opened(home, as_json=as_json) as harness:
        print_record(harness.agents.get(agent).as_json(), as_json=as_json)


@app.command("set")
def set_(
    agent: AgentArgument,
    name: Annotated[str | None, typer.Option(help="A new name.")] = None,
    model: ModelOption = None,
    system: SystemOption = None,
    workspace: WorkspaceOption = None,
    sandbox: SandboxOption = None,
    config: ConfigOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change an agent. The given mounts replace the old ones; an empty text clears a field."""
    fields = as_config(config)
    with opened(home, as_json=as_json) as harness:
        for key, value in (("model", model), ("system", system)):
            if value is not None:
                fields[key] = value or None
        if sandbox is not None:
            record = None if sandbox == "none" else harness.rooms.sandboxes.get(sandbox)
            fields["sandbox"] = record and record.id
        if workspace is not None:
            fields["workspaces"] = harness.agents.mounts(workspace)
        patch = {"config": fields, **({"name": name} if name is not None else {})}
        print_record(harness.agents.patch(agent, patch).as_json(), as_json=as_json)


@app.command()
def rm(agent: AgentArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Delete an agent with its conversations and private data. Its workspaces stay."""
    with opened(home, as_json=as_json) as harness:
        print_deleted(harness.deletion.agent(agent), as_json=as_json)
