"""The command `harness decisions`: list, show, resolve and re-examine what agents decided."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    notes,
    opened,
    print_json,
    print_table,
    put,
    say,
)

app = typer.Typer(help="Decisions: the structured results of runs.", no_args_is_help=True)

DecisionArgument = Annotated[
    str, typer.Argument(help="The id of the decision's run.", metavar="RUN")
]

StatusChoice = Literal["pending", "active", "resolved", "expired"]


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="decisions")


@app.command("list")
def list_(
    agent: Annotated[str | None, typer.Option("--agent", "-a", help="Name or id.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the decisions of an agent, newest first."""
    with opened(home, as_json=as_json) as harness:
        decisions = harness.rooms.decisions
        agent_id = harness.agents.get(agent or harness.settings.default_agent).id
        views = decisions.list(agent_id, limit=limit)
        tally = decisions.tally(decisions.list(agent_id))
    if as_json:
        print_json({"decisions": [view.as_json() for view in views], "tally": tally})
        return
    rows = (
        (
            view.run.id,
            (view.run.finished_at or "")[:16].replace("T", " "),
            view.decision.line,
            view.run.outcome or "",
            "" if view.conviction is None else str(view.conviction["score"]),
        )
        for view in views
    )
    print_table(("run", "at (UTC)", "decision", "outcome", "conviction"), rows)
    if tally is not None:
        say(f"{tally['good']} of {tally['good'] + tally['bad']} decided were good")


@app.command()
def show(run: DecisionArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show a decision, its outcome and its re-examinations."""
    with opened(home, as_json=as_json) as harness:
        view = harness.rooms.decisions.get(run)
        children = harness.runs.re_examinations(run)
    if as_json:
        examined = [child.as_json() for child in children]
        print_json({**view.as_json(), "reExaminations": examined})
        return
    put(view.decision.file().split("---\n", 2)[2])
    if view.run.outcome:
        status = f" ({view.run.resolution_status})" if view.run.resolution_status else ""
        say(f"\noutcome: {view.run.outcome}{status}")
    for child in children:
        review = (child.run.result or {}).get("review")
        told = child.run.status
        if review:
            told = (
                f"{review['conviction_score']} · {review['suggested_action']} · {review['notes']}"
            )
        say(f"re-examined {child.run.created_at[:16].replace('T', ' ')}: {told}")


@app.command()
def resolve(
    run: DecisionArgument,
    outcome: Annotated[str, typer.Argument(help="What came of it; an empty text clears it.")],
    status: Annotated[StatusChoice | None, typer.Option(help="The resolution.")] = "resolved",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Note what came of a decision. The decision itself never changes."""
    with opened(home, as_json=as_json) as harness:
        changed = harness.rooms.decisions.set_outcome(run, outcome or None, None, status)
        view = harness.runs.view(changed)
    if as_json:
        print_json(view.as_json())
    else:
        say(f"{run}: {changed.outcome or 'cleared'}")


@app.command("re-examine")
def re_examine(run: DecisionArgument, home: HomeOption = None, as_json: JsonOption = False) -> int:
    """Let the agent examine a decision again, and print its conviction."""
    with opened(home, as_json=as_json) as harness:
        view = harness.finish_run(harness.runs.re_examine(run).id)
    review = (view.run.result or {}).get("review") if view.run.status == "succeeded" else None
    if as_json:
        print_json(view.as_json())
    elif review:
        say(f"{review['conviction_score']} · {review['suggested_action']} · {review['notes']}")
    else:
        why = f": {view.run.error.message}" if view.run.error else ""
        notes().print(f"run {view.run.id} {view.run.status}{why}", markup=False)
    return 0 if review else 1
