"""The command `harness agent`: the agents of a home."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from harness.cli.console.console import (
    ConfigOption,
    HomeOption,
    JsonOption,
    as_config,
    complain,
    opened,
    print_deleted,
    print_json,
    print_record,
    print_table,
    say,
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
    default_prompt: Annotated[
        str | None, typer.Option("--default-prompt", help="The prompt of runs that bring none.")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help='Run by itself, as in "0 8 * * *"; an empty text ends that.'),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(help="The time zone of the schedule; default: UTC.")
    ] = None,
    config: ConfigOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change an agent. The given mounts replace the old ones; an empty text clears a field."""
    fields = as_config(config)
    with opened(home, as_json=as_json) as harness:
        texts = (("model", model), ("system", system), ("defaultPrompt", default_prompt))
        for key, value in texts:
            if value is not None:
                fields[key] = value or None
        if sandbox is not None:
            record = None if sandbox == "none" else harness.rooms.sandboxes.get(sandbox)
            fields["sandbox"] = record and record.id
        if workspace is not None:
            fields["workspaces"] = harness.agents.mounts(workspace)
        if schedule is not None or timezone is not None:
            fields["schedule"] = _schedule(schedule, timezone)
        patch = {"config": fields, **({"name": name} if name is not None else {})}
        print_record(harness.agents.patch(agent, patch).as_json(), as_json=as_json)


def _schedule(cron: str | None, timezone: str | None) -> dict[str, str] | None:
    """Return the patch of a schedule. An empty expression removes the schedule."""
    if cron == "":
        return None
    given = {"cron": cron, "timezone": timezone}
    return {name: value for name, value in given.items() if value is not None}


@app.command()
def rm(agent: AgentArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Delete an agent with its conversations and private data. Its workspaces stay."""
    with opened(home, as_json=as_json) as harness:
        print_deleted(harness.deletion.agent(agent), as_json=as_json)


MemoryVerb = Literal["on", "off", "reset"]


@app.command()
def memory(
    agent: AgentArgument,
    verb: Annotated[
        MemoryVerb | None,
        typer.Argument(help="Turn it on (a fresh start) or off, or reset it; default: show it."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show or change the session that an agent's chat and runs share."""
    with opened(home, as_json=as_json) as harness:
        match verb:
            case "on" | "off":
                view = harness.runs.set_memory(agent, is_enabled=verb == "on")
            case "reset":
                view = harness.runs.reset_memory(agent)
            case None:
                view = harness.runs.memory(agent)
    if as_json:
        print_json(view.as_json())
        return
    say(f"active memory: {'on' if view.is_enabled else 'off'} · {view.status}")
    say(f"runs since reset: {view.runs}")
    if view.age is not None:
        say(f"session age: {view.age}")
    if view.warning is not None:
        complain(f"warning: {view.warning}\n")
