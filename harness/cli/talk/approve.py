"""Tool calls that wait for approval: ask the person at the terminal, or use `harness approve` later."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.call_printer import call_title, folded, print_arguments
from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    escaped,
    notes,
    opened,
    print_json,
    print_styled,
    put,
)
from harness.cli.console.turn_printer import TurnPrinter, print_problems
from harness.cli.talk.conversation import AgentOption, ConversationArgument

if TYPE_CHECKING:
    from harness import Harness
    from harness.messages.event import Approval
    from harness.messages.pending_call import PendingCall
    from harness.messages.progress import Emit
    from harness.transcripts.outcome import Outcome


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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve without asking.")] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Only show the calls, whole; decide nothing.")
    ] = False,
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Approve or deny pending tool calls; the agent then continues.

    The command shows each call with all its arguments, and asks. Without a terminal, look at the calls with
    --show, then say --yes or --deny.

    \b
    harness approve c1
    harness approve c1 --show
    harness approve c1 --yes
    harness approve c1 toolu_01… --deny --reason "not on a Friday"
    """
    from harness.messages.progress import silent

    if deny and yes:
        raise typer.BadParameter("--deny and --yes exclude each other")
    with opened(home, as_json=as_json) as harness:
        record = harness.conversation(conversation, agent=agent)
        pending = [one for one in harness.pending(record) if call in (None, one.id)]
        calls = [one for one in pending if one.asked.waits_for == "approval"]
        if show:
            return _show_whole(pending, call, as_json=as_json)
        printer = TurnPrinter() if sys.stdout.isatty() and not as_json else None
        emit = printer.show if printer else silent
        if deny or yes or not calls:  # a call that does not wait is refused, with the reason
            outcome = harness.approve(record, call, is_allowed=not deny, reason=reason, emit=emit)
        else:
            answers = _ask_about(calls, record.id, as_json=as_json)
            if answers is None:
                return 1
            outcome = harness.answer(record, *answers, emit=emit)
        if printer:
            outcome = ask_for_approvals(harness, outcome, emit)
        return print_outcome(harness, outcome, printer, as_json=as_json)


def ask_for_approvals(harness: Harness, outcome: Outcome, emit: Emit) -> Outcome:
    """Ask the person at the terminal about pending calls until none waits for approval.

    Return the outcome after the answers. A call that the person does not answer stays pending.
    """
    while outcome.status == "waiting" and _has_terminal():
        calls = [call for call in outcome.pending if call.asked.waits_for == "approval"]
        answers = _asked(calls, outcome.conversation_id)
        if not answers:  # no answer, or the client must run the remaining calls
            return outcome
        conversation = harness.conversations.get(outcome.conversation_id)
        outcome = harness.answer(conversation, *answers, emit=emit)
    return outcome


def print_outcome(
    harness: Harness, outcome: Outcome, printer: TurnPrinter | None, *, as_json: bool
) -> int:
    """Print the outcome of a turn and return the exit code.

    `printer`: it has already printed the text of the turn.
    """
    if as_json:
        print_json(outcome.as_json())
    elif printer:
        printer.close(harness, outcome)
    else:
        put(f"{outcome.reply}\n" if outcome.reply else "")
        print_problems(harness, outcome)
    return 0 if outcome.status == "done" else 1


def _show_whole(calls: Sequence[PendingCall], call_id: str | None, *, as_json: bool) -> int:
    """Print calls with all their arguments on standard output.

    Raises:
        NotFound: no such call waits.
    """
    from harness.presentation.call_text import call_text
    from harness.transcripts.approval import nothing_waits

    if not calls:
        raise nothing_waits(call_id)
    if as_json:
        print_json({"pending": [call.as_json() for call in calls]})
        return 0
    width = notes().width if sys.stdout.isatty() else None
    parts: list[tuple[str, str]] = []
    for call in calls:
        parts.append((f"{call_title(call)}\n", "bold"))
        parts += (
            (f"{line}\n", "") for line in folded(call_text(call.call.input).lines, "  ", width)
        )
    print_styled(parts)
    return 0


def _ask_about(
    calls: Sequence[PendingCall], conversation_id: str, *, as_json: bool
) -> list[Approval] | None:
    """Ask the person about each call. Return None if the input ends before all are answered.

    Raises:
        Refused: there is no terminal to ask at.
    """
    from workspaces.errors import Refused

    if as_json or not _has_terminal():
        if not as_json:
            for call in calls:
                notes().print(call_title(call), markup=False)
                print_arguments(call, conversation_id)
        command = f"harness approve {conversation_id}"
        count = "1 call waits" if len(calls) == 1 else f"{len(calls)} calls wait"
        raise Refused(
            "approval",
            None,
            "was not given",
            message=f"Nothing was approved: {count} for a decision, and there is no terminal to ask at.",
            remedy=f"`{command} --show` shows the whole call; then add --yes or --deny.",
        )
    return _asked(calls, conversation_id)


def _asked(calls: Sequence[PendingCall], conversation_id: str) -> list[Approval] | None:
    from harness.messages.event import Approval

    answers: list[Approval] = []
    for call in calls:
        is_allowed = _ask(call, conversation_id)
        if is_allowed is None:
            return None
        answers.append(Approval(call_id=call.id, is_allowed=is_allowed))
    return answers


def _ask(call: PendingCall, conversation_id: str) -> bool | None:
    """Ask whether a call may run. Return None if the person ends the input."""
    where = f" in {call.asked.workspace}" if call.asked.workspace else ""
    notes().print(f"\n[yellow]Run[/] [bold]{escaped(call.call.name)}[/]{escaped(where)}?")
    left_out = print_arguments(call, conversation_id)
    while True:
        try:
            answer = _read_answer(f"[y]es, [n]o{', [s]how all' if left_out else ''} › ")
        except (EOFError, KeyboardInterrupt):
            notes().print()
            return None
        if answer in {"y", "yes"}:
            return True
        if answer in {"n", "no"}:
            return False
        if answer in {"s", "show"} and left_out:
            left_out = print_arguments(call)


def _has_terminal() -> bool:
    return bool(sys.stdin and sys.stdin.isatty())


def _read_answer(prompt: str) -> str:
    """Read a line. `input` prints the prompt itself on a terminal, which is then ready for typing."""
    if not sys.stdout.isatty():
        notes().print(prompt, markup=False, end="")
        prompt = ""
    return input(prompt).strip().lower()
