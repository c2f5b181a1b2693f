"""The command `harness memory`: facts, one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    as_text,
    complain,
    opened,
    print_json,
    print_styled,
    print_table,
    put,
    read_input,
)

if TYPE_CHECKING:
    from pathlib import Path

    from harness import Harness
    from harness.memory.facts.facts import Facts, FactWritten

VALUE_CHARACTERS_SHOWN = 60

app = typer.Typer(
    help="Facts of workspaces and agents, which every prompt shows.",
    no_args_is_help=True,
)

InWorkspaceOption = Annotated[
    str | None,
    typer.Option("--workspace", "-w", help="The workspace. Default: the agent's first one."),
]
OfAgentOption = Annotated[
    str | None, typer.Option("--agent", "-a", help="The facts of this agent, not of a workspace.")
]
FactArgument = Annotated[str, typer.Argument(help="Key or id.", metavar="FACT")]
ImportanceOption = Annotated[
    int | None, typer.Option(min=0, max=100, help="From 0 to 100; higher ones come first.")
]


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="memory")


@app.command("list")
def list_(
    workspace: InWorkspaceOption = None,
    agent: OfAgentOption = None,
    source: Annotated[
        Literal["manual", "auto", "director", "memorize"] | None,
        typer.Option(help="Only facts from here."),
    ] = None,
    pinned: Annotated[
        bool | None, typer.Option("--pinned/--not-pinned", help="Only pinned facts, or others.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the facts: pinned first, then by importance."""
    from harness.presentation.fact_json import fact_json

    with opened(home, as_json=as_json) as harness:
        facts = _facts(harness, workspace, agent)
        rows = facts.list(source=source, pinned=pinned)
        problems = facts.problems()
        if as_json:
            found = [{"path": one.path, "detail": one.detail} for one in problems]
            print_json(
                {"memories": [fact_json(row, facts.scope) for row in rows], "problems": found}
            )
            return
    if rows:
        print_table(
            ("", "KEY", "VALUE", "SOURCE", "WEIGHT", "UPDATED"),
            (
                (
                    "★" if row.pinned else "",
                    row.key,
                    _short(row.value),
                    row.source,
                    str(row.importance or ""),
                    row.updated_at[:16].replace("T", " "),
                )
                for row in rows
            ),
        )
    else:
        complain("No facts. `harness memory add KEY VALUE` adds one.\n")
    for problem in problems:
        complain(f"{problem.path}: {problem.detail}\n")


@app.command()
def add(
    key: Annotated[str, typer.Argument(help="What the fact is known by.")],
    value: Annotated[str, typer.Argument(help="The fact; `-` reads it from standard input.")],
    pin: Annotated[bool | None, typer.Option("--pin/--no-pin", help="Show it first.")] = None,
    importance: ImportanceOption = None,
    workspace: InWorkspaceOption = None,
    agent: OfAgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set a fact. A fact with this key gets the new value."""
    text = _text(value)
    with opened(home, as_json=as_json) as harness:
        facts = _facts(harness, workspace, agent)
        written = facts.put(key, text, pinned=pin, importance=importance)
        _show(facts, written, "Added" if written.is_new else "Changed", as_json=as_json)


@app.command()
def edit(
    fact: FactArgument,
    value: Annotated[
        str | None, typer.Argument(help="The new value; `-` reads it from standard input.")
    ] = None,
    importance: ImportanceOption = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take over a fact that a model wrote.")
    ] = False,
    workspace: InWorkspaceOption = None,
    agent: OfAgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a fact. The value of a fact that a model wrote is read-only, unless you take it over."""
    from harness.memory.facts.facts import FactChange

    change = FactChange(None if value is None else _text(value), None, importance, adopts=adopt)
    with opened(home, as_json=as_json) as harness:
        facts = _facts(harness, workspace, agent)
        _show(facts, facts.change(fact, change), "Changed", as_json=as_json)


@app.command()
def pin(
    fact: FactArgument,
    workspace: InWorkspaceOption = None,
    agent: OfAgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pin a fact, so that it comes first."""
    _pin(fact, workspace, agent, home, as_json=as_json, is_pinned=True)


@app.command()
def unpin(
    fact: FactArgument,
    workspace: InWorkspaceOption = None,
    agent: OfAgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Unpin a fact."""
    _pin(fact, workspace, agent, home, as_json=as_json, is_pinned=False)


@app.command()
def rm(
    fact: FactArgument,
    workspace: InWorkspaceOption = None,
    agent: OfAgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a fact. Its last version stays in the history."""
    with opened(home, as_json=as_json) as harness:
        _facts(harness, workspace, agent).delete(fact)
    if as_json:
        print_json({"deleted": True})
    else:
        put(f"Deleted {fact}.\n")


@app.command()
def history(
    fact: FactArgument,
    workspace: InWorkspaceOption = None,
    agent: OfAgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the revisions of a fact, newest first."""
    from harness.presentation.history_view import account_of

    with opened(home, as_json=as_json) as harness:
        revisions = _facts(harness, workspace, agent).history(fact)
    if as_json:
        print_json(
            {
                "revisions": [
                    {
                        "revision": one.id,
                        "at": one.at,
                        "author": one.author,
                        "source": one.trailers.get("Source"),
                        "subject": one.subject,
                    }
                    for one in revisions
                ]
            }
        )
        return
    for one in revisions:
        print_styled(
            [
                (one.id[:10], "yellow"),
                (f"  {one.at[:16].replace('T', ' ')}  ", "dim"),
                (f"{one.author}, {account_of(one)}  ", ""),
                (f"{one.subject}\n", ""),
            ]
        )


def _facts(harness: Harness, workspace: str | None, agent: str | None) -> Facts:
    """Return the facts that the options name.

    Raises: Refused for both; NotFound.
    """
    from workspaces.errors import Refused

    if agent is not None:
        if workspace is not None:
            raise Refused("--agent", agent, "cannot be combined with --workspace")
        return harness.facts.of_agent(agent)
    if workspace is None:
        default = harness.agents.get(harness.settings.default_agent)
        mounts = default.config.workspaces
        if not mounts:
            remedy = "name one with --workspace, or an agent with --agent"
            raise Refused("--workspace", None, "the default agent has none", remedy=remedy)
        workspace = mounts[0].workspace_id
    return harness.facts.of_workspace(workspace)


def _pin(
    fact: str,
    workspace: str | None,
    agent: str | None,
    home: Path | None,
    *,
    as_json: bool,
    is_pinned: bool,
) -> None:
    from harness.memory.facts.facts import FactChange

    with opened(home, as_json=as_json) as harness:
        facts = _facts(harness, workspace, agent)
        written = facts.change(fact, FactChange(pinned=is_pinned))
        _show(facts, written, "Pinned" if is_pinned else "Unpinned", as_json=as_json)


def _show(facts: Facts, written: FactWritten, done: str, *, as_json: bool) -> None:
    from harness.presentation.fact_json import fact_json

    if as_json:
        print_json(fact_json(written.fact, facts.scope))
    else:
        put(f"{done} {written.fact.key}.\n")


def _text(value: str) -> str:
    return as_text(read_input()) if value == "-" else value


def _short(value: str) -> str:
    line = " ".join(value.split())
    return line if len(line) <= VALUE_CHARACTERS_SHOWN else line[: VALUE_CHARACTERS_SHOWN - 1] + "…"
