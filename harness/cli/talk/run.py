"""The command `harness run`: send one message to an agent."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    as_text,
    complain,
    opened,
    read_input,
)
from harness.cli.console.turn_printer import TurnPrinter
from harness.cli.talk.approve import ask_for_approvals, print_outcome
from harness.cli.talk.memory_policy import MemoryPolicyOption, parse_policy

ConversationOption = Annotated[
    str | None,
    typer.Option("--conversation", "-c", help="The conversation to continue; default: a new one."),
]

OnBusyChoice = Literal["queue", "reject"]


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    text: Annotated[str, typer.Argument(help="The message; - reads standard input.")],
    agent: Annotated[
        str | None,
        typer.Option("--agent", "-a", help="Name or id; default: the home's default agent."),
    ] = None,
    conversation: ConversationOption = None,
    on_busy: Annotated[
        OnBusyChoice | None,
        typer.Option(help="If the conversation is in use: wait for it, or fail."),
    ] = None,
    memory_policy: MemoryPolicyOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Send one message to an agent and print its answer."""
    from harness.messages.progress import silent

    with opened(home, as_json=as_json) as harness:
        policy = parse_policy(memory_policy)
        message = as_text(read_input()) if text == "-" else text
        printer = TurnPrinter() if sys.stdout.isatty() and not as_json else None
        emit = printer.show if printer else silent
        record = harness.agents.get(harness.settings.default_agent if agent is None else agent)
        if notice := harness.demo_notice(record):
            complain(f"{notice}\n")
        outcome = harness.run(
            message,
            agent=record,
            conversation=conversation,
            memory_policy=policy,
            on_busy=on_busy,
            emit=emit,
        )
        if not as_json:
            outcome = ask_for_approvals(harness, outcome, emit)
        return print_outcome(harness, outcome, printer, as_json=as_json)
