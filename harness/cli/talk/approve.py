"""Tool calls that wait for approval: ask the person at the terminal, or use `harness approve` later."""

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
from harness.cli.console.turn_printer import TurnPrinter, print_problems
from harness.cli.talk.conversation import AgentOption, ConversationArgument

if TYPE_CHECKING:
    from harness import Harness
    from harness.messages.pending_call import PendingCall
    from harness.messages.progress import Emit
    from harness.transcripts.outcome import Outcome

SHOWN_CHARACTERS_MAX = 4_000
"""Characters of each input that are shown. The rest is counted, so that the person knows about it."""


def register(app: typer.Typer) -> None:
    app.command()(approve)


def approve(
    conversation: ConversationArgument,
    call: Annotated[
        str | None,
        typer.Argument(help="The id of a call; default: all calls that wait for approval."),
    ] = None,
    deny: Annotated[bool, typer.Option("--deny", help="Deny the calls.")] = False,
    reason: Annotated[str | None, typer.Option(help="Reason of the denial, for the agent.")] = None,
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
        record = harness.conversation(conversation, agent=agent)
        printer = TurnPrinter() if sys.stdout.isatty() and not as_json else None
        emit = printer.show if printer else silent
        outcome = harness.approve(record, call, is_allowed=not deny, reason=reason, emit=emit)
        if printer:
            outcome = ask_for_approvals(harness, outcome, emit)
    return print_outcome(outcome, printer, as_json=as_json)


def ask_for_approvals(harness: Harness, outcome: Outcome, emit: Emit) -> Outcome:
    """Ask the person at the terminal about pending calls until none waits for approval.

    Return the outcome after the answers. A call that the person does not answer stays pending.
    """
    from harness.messages.event import Approval

    while outcome.status == "waiting" and sys.stdin and sys.stdin.isatty():
        calls = [call for call in outcome.pending if call.asked.waits_for == "approval"]
        answers: list[Approval] = []
        for call in calls:
            is_allowed = _ask(call)
            if is_allowed is None:
                return outcome
            answers.append(Approval(call_id=call.id, is_allowed=is_allowed))
        if not answers:  # the client must run the remaining calls
            return outcome
        conversation = harness.conversations.get(outcome.conversation_id)
        outcome = harness.answer(conversation, *answers, emit=emit)
    return outcome


def print_outcome(outcome: Outcome, printer: TurnPrinter | None, *, as_json: bool) -> int:
    """Print the outcome of a turn and return the exit code.

    `printer`: it has already printed the text of the turn.
    """
    if as_json:
        print_json(outcome.as_json())
    elif printer:
        printer.close(outcome)
    else:
        put(f"{outcome.reply}\n" if outcome.reply else "")
        print_problems(outcome)
    return 0 if outcome.status == "done" else 1


def _ask(call: PendingCall) -> bool | None:
    """Ask whether a call may run. Return None if the person ends the input."""
    where = f" in {call.asked.workspace}" if call.asked.workspace else ""
    notes().print(f"\n[yellow]Run[/] [bold]{escaped(call.call.name)}[/]{escaped(where)}?")
    for name, value in call.call.input.items():
        notes().print(f"  {visible(name)}: {_shown(str(value))}", markup=False)
    while True:
        try:
            answer = _read_answer("[y]es, [n]o › ")
        except (EOFError, KeyboardInterrupt):
            notes().print()
            return None
        if answer in {"y", "yes"}:
            return True
        if answer in {"n", "no"}:
            return False


def _read_answer(prompt: str) -> str:
    """Read a line. `input` prints the prompt itself on a terminal, which is then ready for typing."""
    if not sys.stdout.isatty():
        notes().print(prompt, markup=False, end="")
        prompt = ""
    return input(prompt).strip().lower()


def _shown(text: str) -> str:
    start = visible(text[:SHOWN_CHARACTERS_MAX]).replace("\n", "\n    ")
    left_out = len(text) - SHOWN_CHARACTERS_MAX
    return f"{start}\n    (… {left_out:,} more characters)" if left_out > 0 else start
