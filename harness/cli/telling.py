"""What a turn tells a person at a terminal: its text on standard output, everything else beside it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from harness.cli.face import notes, visible

if TYPE_CHECKING:
    from harness.message import ToolCall
    from harness.outcome import Outcome, Status
    from harness.progress import Progress


class Telling:
    """A turn, told while it comes. What is no text of it stands on lines of its own."""

    def __init__(self) -> None:
        self._is_within_line = False

    def show(self, progress: Progress) -> None:
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
                self._write(text)
            case Counted():
                pass
            case ToolStarted():
                self.end_line()
            case ToolEnded(call, result):
                _print_folded(call, is_error=result.is_error)
            case Withdrawn():
                self._say("[yellow](the answer broke off; it begins anew)[/]")
            case Waiting(reason, seconds):
                self._say(f"[yellow]{reason}: waiting {seconds:.0f} s[/]")
            case Compacting(characters):
                self._say(f"[dim](summarising: the context has {characters:,} characters)[/]")
            case Queued(ahead):
                before = f", {ahead} before this" if ahead else ""
                self._say(f"[yellow]the conversation is in use: waiting in line{before}[/]")

    def close(self, outcome: Outcome) -> None:
        self.end_line()
        say_what_went_wrong(outcome)

    def end_line(self) -> None:
        if self._is_within_line:
            self._write("\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._is_within_line = not text.endswith("\n") if text else self._is_within_line

    def _say(self, told: str) -> None:
        self.end_line()
        notes().print(told)


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


def _print_folded(call: ToolCall, *, is_error: bool) -> None:
    """A call in one line, at a terminal never in more."""
    from rich.text import Text

    mark, colour = ("✗", "red") if is_error else ("✓", "green")
    line = Text.assemble((mark, colour), (f" {call.name} {_named(call)}".rstrip(), "dim"))
    console = notes()
    wide = not console.is_terminal
    console.print(line, soft_wrap=wide, no_wrap=True, overflow="ignore" if wide else "ellipsis")


def _named(call: ToolCall) -> str:
    """What a call is about, in one line."""
    about = next(
        (str(call.input[k]) for k in ("path", "command", "pattern") if k in call.input), ""
    )
    lines = visible(about).splitlines() or [""]
    return lines[0] + (" …" if len(lines) > 1 else "")
