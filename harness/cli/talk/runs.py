"""The command `harness runs`: start, list, show and cancel the runs of an agent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.call_printer import print_pending
from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    Shown,
    as_text,
    notes,
    opened,
    print_json,
    print_table,
    put,
    read_input,
    say,
)

if TYPE_CHECKING:
    from harness.runs.runs import RunView

LIST_MAX = 20

app = typer.Typer(help="Runs: what an agent does on demand or on a schedule.")


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="runs")


RunArgument = Annotated[str, typer.Argument(help="The run's id.", metavar="RUN")]


@app.callback(invoke_without_command=True)
def list_(
    context: typer.Context,
    agent: Annotated[
        str | None,
        typer.Option("--agent", "-a", help="Name or id; default: the home's default agent."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Largest number of runs.")
    ] = LIST_MAX,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Runs: what an agent does on demand or on a schedule. Without a command, list them, newest first."""
    if context.invoked_subcommand is not None:
        Shown.home = home or Shown.home
        return
    with opened(home, as_json=as_json) as harness:
        views = harness.runs.list(agent or harness.settings.default_agent, limit=limit)
    if as_json:
        print_json({"runs": [view.as_json() for view in views]})
        return
    rows = (
        (
            view.run.id,
            view.run.created_at[:16].replace("T", " "),
            view.run.source,
            "waiting" if view.waiting else view.run.status,
            _summary(view),
        )
        for view in views
    )
    print_table(("run", "at (UTC)", "source", "status", ""), rows)


@app.command()
def start(
    agent: Annotated[str, typer.Argument(help="Name or id of the agent.", metavar="AGENT")],
    prompt: Annotated[
        str | None,
        typer.Argument(help="The prompt; default: the agent's; - reads standard input."),
    ] = None,
    queue: Annotated[
        bool, typer.Option("--queue", help="Wait behind the agent's other runs.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Leave the run to a server or `harness jobs run`.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Start a run, wait for its end and print its reply. The exit code is 0 if it succeeded."""
    with opened(home, as_json=as_json) as harness:
        text = as_text(read_input()) if prompt == "-" else prompt
        on_busy = "queue" if queue else "reject"
        run = harness.runs.start(agent, text, on_busy=on_busy, is_attended=not detach)
        view = harness.runs.get(run.id) if detach else harness.finish_run(run.id)
    if as_json:
        print_json(view.as_json())
    elif detach:
        say(run.id)
    else:
        put(f"{view.run.reply}\n" if view.run.reply else "")
        _print_notice(view)
    return 0 if detach or view.run.status == "succeeded" else 1


@app.command()
def show(run: RunArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show a run."""
    with opened(home, as_json=as_json) as harness:
        view = harness.runs.get(run)
    if as_json:
        print_json(view.as_json())
        return
    fields = {name: value for name, value in view.as_json().items() if value not in (None, [])}
    rows = (
        (name, value if isinstance(value, str) else repr(value)) for name, value in fields.items()
    )
    print_table(("field", "value"), rows)


@app.command()
def cancel(run: RunArgument, home: HomeOption = None, as_json: JsonOption = False) -> int:
    """Cancel a run, in whichever process it is. The exit code is 1 if it has ended already."""
    with opened(home, as_json=as_json) as harness:
        is_cancelled = harness.cancel_run(run)
    if as_json:
        print_json({"cancelled": is_cancelled})
    else:
        say(f"cancelled: {run}" if is_cancelled else f"has ended already: {run}")
    return 0 if is_cancelled else 1


def _summary(view: RunView) -> str:
    """Return the most important text of a run in one line."""
    run = view.run
    text = run.error.message if run.error else run.reply or run.prompt
    line = " ".join(text.split())
    return line if len(line) <= SUMMARY_CHARACTERS_MAX else f"{line[: SUMMARY_CHARACTERS_MAX - 1]}…"


def _print_notice(view: RunView) -> None:
    run = view.run
    if run.status == "succeeded":
        return
    why = f": {run.error.message}" if run.error else ""
    notes().print(f"run {run.id} {'waits' if view.waiting else run.status}{why}", markup=False)
    print_pending(view.waiting, str(run.conversation_id))
    sys.stderr.flush()


SUMMARY_CHARACTERS_MAX = 60
"""Characters of a run's text in the list: with the other columns they fit a terminal."""
