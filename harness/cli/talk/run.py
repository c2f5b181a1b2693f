"""`harness run`: saying one thing to an agent."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from harness.cli.console.console import HomeOption, JsonOption, as_text, opened, read_input
from harness.cli.console.turn_printer import TurnPrinter
from harness.cli.talk.approve import asked, tell

ConversationOption = Annotated[
    str | None,
    typer.Option("--conversation", "-c", help="The conversation to go on with; else a new one."),
]

OnBusyChoice = Literal["queue", "reject"]


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    text: Annotated[str, typer.Argument(help="What to say; - reads standard input.")],
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="Name or id (else the home's default).")
    ] = None,
    conversation: ConversationOption = None,
    on_busy: Annotated[
        OnBusyChoice | None,
        typer.Option(help="When the conversation is in use: wait in line, or be refused."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Say one thing to an agent and print what it answers."""
    from harness.messages.progress import silent

    with opened(home, as_json=as_json) as harness:
        said = as_text(read_input()) if text == "-" else text
        telling = TurnPrinter() if sys.stdout.isatty() and not as_json else None
        emit = telling.show if telling else silent
        outcome = harness.run(
            said, agent=agent, conversation=conversation, on_busy=on_busy, emit=emit
        )
        if not as_json:
            outcome = asked(harness, outcome, emit)
    return tell(outcome, telling, as_json=as_json)
