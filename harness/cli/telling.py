"""What a turn tells a person at a terminal: its text on standard output, everything else beside it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from harness.cli.face import notes, visible

if TYPE_CHECKING:
    from harness.message import ToolCall
    from harness.outcome import Outcome
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
    elif outcome.status == "out_of_steps":
        notes().print("The agent used all its steps without an answer; say “go on” to continue.")
    elif outcome.status == "cut":
        notes().print("The answer was cut at the agent's limit of output tokens.")


def _named(call: ToolCall) -> str:
    """What a call is about, in one line."""
    about = next(
        (str(call.input[k]) for k in ("path", "command", "pattern") if k in call.input), ""
    )
    lines = visible(about).splitlines() or [""]
    return lines[0] + (" …" if len(lines) > 1 else "")
