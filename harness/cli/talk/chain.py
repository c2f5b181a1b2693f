"""The command `harness chain`: several agents that work on one task."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.console.call_printer import print_pending
from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    as_text,
    notes,
    opened,
    print_json,
    put,
    read_input,
)

app = typer.Typer(help="Chains: agents that work on one task, in order.", no_args_is_help=True)


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="chain")


@app.callback()
def chain() -> None:
    """Chains: agents that work on one task, in order."""


@app.command()
def run(
    task: Annotated[str, typer.Argument(help="The task; - reads standard input.")],
    agent: Annotated[
        list[str], typer.Option("--agent", "-a", help="An agent; repeat it for each step.")
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Run a chain, and print the output of its last step. Each step sees the outputs before it."""
    with opened(home, as_json=as_json) as harness:
        text = as_text(read_input()) if task == "-" else task
        view = harness.run_chain(agent, text)
        runs = [step.run for step in view.steps if step.run is not None]
        waiting = [one for one in (harness.runs.get(run.id) for run in runs) if one.waiting]
    if as_json:
        print_json(view.as_json())
    else:
        put(f"{view.output}\n" if view.output else "")
        if view.chain.status != "succeeded":
            why = f": {view.chain.error}" if view.chain.error else ""
            notes().print(f"chain {view.chain.id} {view.chain.status}{why}", markup=False)
        for run_view in waiting:
            print_pending(run_view.waiting, str(run_view.run.conversation_id))
    return 0 if view.chain.status == "succeeded" else 1
