"""`harness run`: saying one thing to an agent."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness.cli.face import HomeOption, JsonOption, as_text, opened, print_json, read_input
from harness.cli.telling import close, say_what_went_wrong, show_progress

ConversationOption = Annotated[
    str | None,
    typer.Option("--conversation", "-c", help="The conversation to go on with; else a new one."),
]


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    text: Annotated[str, typer.Argument(help="What to say; - reads standard input.")],
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="Name or id (else the home's default).")
    ] = None,
    conversation: ConversationOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Say one thing to an agent and print what it answers."""
    from harness.progress import silent

    with opened(home, as_json=as_json) as harness:
        said = as_text(read_input()) if text == "-" else text
        emit = silent if as_json or not sys.stdout.isatty() else show_progress
        outcome = harness.run(said, agent=agent, conversation=conversation, emit=emit)
    if as_json:
        print_json(outcome.as_json())
    elif emit is silent:
        sys.stdout.write(f"{outcome.reply}\n" if outcome.reply else "")
        say_what_went_wrong(outcome)
    else:
        close(outcome)
    return 0 if outcome.status == "done" else 1
