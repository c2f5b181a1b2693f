"""What a turn tells a person at a terminal: its text on standard output, everything else beside it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from harness.cli.console.console import escaped, notes, put, visible, wipe_line

if TYPE_CHECKING:
    from harness.messages.message import ToolCall
    from harness.messages.progress import Progress
    from harness.transcripts.outcome import Outcome, Status


class TurnPrinter:
    """A turn, told while it comes. What is no text of it stands on lines of its own. At a terminal a last
    line says what is at work right now, and is gone as soon as there is something to tell."""

    def __init__(self) -> None:
        self._is_within_line = False
        self._at_work: dict[str, ToolCall] = {}
        self._is_passing = False

    def show(self, progress: Progress) -> None:
        from harness.messages.progress import (
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
            case ToolStarted(call):
                self.end_line()
                self._at_work[call.id] = call
                self._say_what_is_at_work()
            case ToolEnded(call, result):
                self._wipe()
                mark, colour = ("✗", "red") if result.is_error else ("✓", "green")
                _print_folded(call, mark, colour)
                self._at_work.pop(call.id, None)
                self._say_what_is_at_work()
            case Withdrawn():
                self._say("[yellow](the answer broke off; it begins anew)[/]")
            case Waiting(reason, seconds):
                self._say(f"[yellow]{escaped(reason)}: waiting {seconds:.0f} s[/]")
            case Compacting(characters):
                self._say(f"[dim](summarising: the context has {characters:,} characters)[/]")
            case Queued(ahead):
                before = f", {ahead} before this" if ahead else ""
                self._say(f"[yellow]the conversation is in use: waiting in line{before}[/]")

    def close(self, outcome: Outcome) -> None:
        self.end_line()
        say_what_went_wrong(outcome)

    def end_line(self) -> None:
        self._wipe()
        if self._is_within_line:
            self._write("\n")

    def _say_what_is_at_work(self) -> None:
        if self._at_work and _can_be_wiped():
            self._wipe()
            _print_folded(next(iter(self._at_work.values())), "…", "dim", end="")
            self._is_passing = True

    def _wipe(self) -> None:
        if self._is_passing:
            wipe_line()
            self._is_passing = False

    def _write(self, text: str) -> None:
        self._wipe()
        put(text)
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
            notes().print(f"Waiting for the client's result: {pending.id}: {what}", markup=False)
        else:
            notes().print(f"Waiting for approval: {pending.id}: {what}", markup=False)
    if any(pending.asked.waits_for == "approval" for pending in outcome.pending):
        command = f"harness approve {outcome.conversation_id} [CALL] [--deny]"
        notes().print(f"  → Approve with `{command}`, or send another message.", markup=False)


def _can_be_wiped() -> bool:
    console = notes()
    return console.is_terminal and not console.is_dumb_terminal


def _print_folded(call: ToolCall, mark: str, colour: str, *, end: str = "\n") -> None:
    """A call in one line, at a terminal never in more."""
    from rich.text import Text

    line = Text.assemble((mark, colour), (f" {call.name} {_named(call)}".rstrip(), "dim"))
    console = notes()
    wide = not console.is_terminal
    overflow = "ignore" if wide else "ellipsis"
    console.print(line, soft_wrap=wide, no_wrap=True, overflow=overflow, end=end)


def _named(call: ToolCall) -> str:
    """What a call is about, in one line."""
    about = next(
        (str(call.input[k]) for k in ("path", "command", "pattern") if k in call.input), ""
    )
    lines = visible(about).splitlines() or [""]
    return lines[0] + (" …" if len(lines) > 1 else "")
