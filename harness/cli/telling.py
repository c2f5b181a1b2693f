"""What a turn tells a person at a terminal: its text on standard output, everything else beside it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from harness.cli.face import notes, visible

if TYPE_CHECKING:
    from harness.message import ToolCall
    from harness.outcome import Outcome, Status
    from harness.progress import Progress


def show_progress(progress: Progress) -> None:
    from harness.progress import (
        Compacting,
        Counted,
        Queued,
        TextArrived,
        ToolEnded,
        ToolStarted,
        Waiting,
        Withdrawn,
    )

    match progress:
        case TextArrived(text):
            sys.stdout.write(text)
            sys.stdout.flush()
        case ToolStarted() | Counted():
            pass
        case Withdrawn():
            sys.stdout.write("\n")
            sys.stdout.flush()
            notes().print("[yellow](the answer broke off; it begins anew)[/]")
        case ToolEnded(call, result):
            mark = "[red]✗[/]" if result.is_error else "[green]✓[/]"
            notes().print(f"{mark} [dim]{call.name}[/] ", end="")
            notes().print(_named(call), markup=False, style="dim")
        case Waiting(reason, seconds):
            notes().print(f"[yellow]{reason}: waiting {seconds:.0f} s[/]")
        case Compacting(characters):
            notes().print(f"[dim](summarising: the context has {characters:,} characters)[/]")
        case Queued(ahead):
            before = f", {ahead} before this" if ahead else ""
            notes().print(f"[yellow]the conversation is in use: waiting in line{before}[/]")


def close(outcome: Outcome) -> None:
    if outcome.reply:
        sys.stdout.write("\n")
        sys.stdout.flush()
    say_what_went_wrong(outcome)


def say_what_went_wrong(outcome: Outcome) -> None:
    for source in outcome.unavailable:
        notes().print(f"{source} could not be read: the agent answered without it", markup=False)
    for remark in outcome.remarks:
        notes().print(f"({remark.detail})", markup=False, style="dim")
    if outcome.failure is not None:
        notes().print(f"error ({outcome.failure.kind}): {outcome.failure.reason}", markup=False)
        notes().print(f"  → {outcome.failure.remedy}", markup=False)
        return
    told = _ENDS.get(outcome.status)
    if told is not None:
        notes().print(told)
    if outcome.status == "waiting":
        _say_what_waits(outcome)


_ENDS: dict[Status, str] = {
    "out_of_steps": "The agent used all its steps without an answer; say “go on” to continue.",
    "out_of_time": "The agent used all its time without an answer; say “go on” to continue.",
    "out_of_money": "The agent spent what a turn of it may cost, without an answer.",
    "cut": "The answer was cut at the agent's limit of output tokens.",
    "interrupted": "The turn was ended before there was an answer.",
}


def _say_what_waits(outcome: Outcome) -> None:
    for pending in outcome.pending:
        about, where = _named(pending.call), pending.asked.workspace
        what = f"{pending.call.name} {about}".rstrip() + (f" in {where}" if where else "")
        if pending.asked.waits_for == "result":
            notes().print(f"waits for its client: {pending.id}: {what}", markup=False)
        else:
            notes().print(f"waits to be allowed: {pending.id}: {what}", markup=False)
    if any(pending.asked.waits_for == "approval" for pending in outcome.pending):
        command = f"harness approve {outcome.conversation_id}"
        notes().print(f"  → {command} [CALL] [--deny], or say something else", markup=False)


def _named(call: ToolCall) -> str:
    """What a call is about, in one line."""
    about = next(
        (str(call.input[k]) for k in ("path", "command", "pattern") if k in call.input), ""
    )
    lines = visible(about).splitlines() or [""]
    return lines[0] + (" …" if len(lines) > 1 else "")
