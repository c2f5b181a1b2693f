"""Calls that wait for a person: asking whoever sits at the terminal, and `harness approve` for later."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    escaped,
    notes,
    opened,
    print_json,
    put,
    visible,
)
from harness.cli.console.turn_printer import TurnPrinter, say_what_went_wrong
from harness.cli.talk.conversation import AgentOption, ConversationArgument

if TYPE_CHECKING:
    from harness import Harness
    from harness.messages.pending_call import PendingCall
    from harness.messages.progress import Emit
    from harness.transcripts.outcome import Outcome

SHOWN_CHARACTERS_MAX = 4_000
"""Of each input: what nobody reads cannot be allowed knowingly, so what is left out is counted."""


def register(app: typer.Typer) -> None:
    app.command()(approve)


def approve(
    conversation: ConversationArgument,
    call: Annotated[
        str | None, typer.Argument(help="The id of a call; else all that wait to be allowed.")
    ] = None,
    deny: Annotated[bool, typer.Option("--deny", help="Do not allow it.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why not, for the agent.")] = None,
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Approve or deny pending tool calls; the agent then continues.

    `harness conversation show` shows the calls and their results.

    \b
    harness approve c1
    harness approve c1 toolu_01… --deny --reason "not on a Friday"
    """
    from harness.messages.progress import silent

    with opened(home, as_json=as_json) as harness:
        found = harness.conversation(conversation, agent=agent)
        telling = TurnPrinter() if sys.stdout.isatty() and not as_json else None
        emit = telling.show if telling else silent
        outcome = harness.approve(found, call, is_allowed=not deny, reason=reason, emit=emit)
        if telling:
            outcome = asked(harness, outcome, emit)
    return tell(outcome, telling, as_json=as_json)


def asked(harness: Harness, outcome: Outcome, emit: Emit) -> Outcome:
    """While a turn waits to be allowed something, and a person sits there: ask them. What they do not
    answer goes on waiting."""
    from harness.messages.event import Approval

    while outcome.status == "waiting" and sys.stdin and sys.stdin.isatty():
        calls = [call for call in outcome.pending if call.asked.waits_for == "approval"]
        answers: list[Approval] = []
        for call in calls:
            is_allowed = _ask(call)
            if is_allowed is None:
                return outcome
            answers.append(Approval(call_id=call.id, is_allowed=is_allowed))
        if not answers:  # the rest is the client's to make
            return outcome
        conversation = harness.conversations.get(outcome.conversation_id)
        outcome = harness.answer(conversation, *answers, emit=emit)
    return outcome


def tell(outcome: Outcome, telling: TurnPrinter | None, *, as_json: bool) -> int:
    """`telling`: that told its text while it came. Returns the exit code."""
    if as_json:
        print_json(outcome.as_json())
    elif telling:
        telling.close(outcome)
    else:
        put(f"{outcome.reply}\n" if outcome.reply else "")
        say_what_went_wrong(outcome)
    return 0 if outcome.status == "done" else 1


def _ask(call: PendingCall) -> bool | None:
    """None when the person goes away."""
    where = f" in {call.asked.workspace}" if call.asked.workspace else ""
    notes().print(f"\n[yellow]May it run[/] [bold]{escaped(call.call.name)}[/]{escaped(where)}?")
    for name, value in call.call.input.items():
        notes().print(f"  {visible(name)}: {_shown(str(value))}", markup=False)
    while True:
        try:
            said = _answer("[y]es, [n]o › ")
        except (EOFError, KeyboardInterrupt):
            notes().print()
            return None
        if said in {"y", "yes"}:
            return True
        if said in {"n", "no"}:
            return False


def _answer(prompt: str) -> str:
    """Printed by `input` itself where it can be: then the terminal is ready for what is typed."""
    if not sys.stdout.isatty():
        notes().print(prompt, markup=False, end="")
        prompt = ""
    return input(prompt).strip().lower()


def _shown(text: str) -> str:
    kept = visible(text[:SHOWN_CHARACTERS_MAX]).replace("\n", "\n    ")
    left_out = len(text) - SHOWN_CHARACTERS_MAX
    return f"{kept}\n    (… {left_out:,} characters more)" if left_out > 0 else kept
