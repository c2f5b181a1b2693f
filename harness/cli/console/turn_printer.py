"""Print the progress of a turn: its text on standard output, all other messages on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from harness.cli.console.call_printer import print_pending
from harness.cli.console.console import erase_line, escaped, notes, put, visible

if TYPE_CHECKING:
    from harness import Harness
    from harness.messages.message import ToolCall
    from harness.messages.progress import Progress
    from harness.transcripts.outcome import Outcome, Status


class TurnPrinter:
    """The printer of one turn, while it runs.

    Messages that are not text of the answer stand on lines of their own. On a terminal the last line names
    the tool call that runs now. It is erased before anything else is printed.
    """

    def __init__(self) -> None:
        self._is_within_line = False
        self._running: dict[str, ToolCall] = {}
        self._has_status_line = False

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
                self._running[call.id] = call
                self._print_running_call()
            case ToolEnded(call, result):
                self._erase_status_line()
                mark, colour = ("✗", "red") if result.is_error else ("✓", "green")
                _print_folded(call, mark, colour)
                self._running.pop(call.id, None)
                self._print_running_call()
            case Withdrawn():
                self._say("[yellow](the answer was interrupted and starts again)[/]")
            case Waiting(reason, seconds):
                self._say(f"[yellow]{escaped(reason)}: waiting {seconds:.0f} s[/]")
            case Compacting(characters):
                self._say(f"[dim](summarising: the context has {characters:,} characters)[/]")
            case Queued(ahead):
                before = f", {ahead} more before this one" if ahead else ""
                self._say(f"[yellow]the conversation is in use: waiting{before}[/]")

    def close(self, harness: Harness, outcome: Outcome, told: set[str] | None = None) -> None:
        """End the turn. See `print_problems`."""
        self.end_line()
        print_problems(harness, outcome, told)

    def end_line(self) -> None:
        self._erase_status_line()
        if self._is_within_line:
            self._write("\n")

    def _print_running_call(self) -> None:
        if self._running and _can_be_erased():
            self._erase_status_line()
            _print_folded(next(iter(self._running.values())), "…", "dim", end="")
            self._has_status_line = True

    def _erase_status_line(self) -> None:
        if self._has_status_line:
            erase_line()
            self._has_status_line = False

    def _write(self, text: str) -> None:
        self._erase_status_line()
        put(text)
        sys.stdout.flush()
        self._is_within_line = not text.endswith("\n") if text else self._is_within_line

    def _say(self, message: str) -> None:
        self.end_line()
        notes().print(message)


def print_problems(harness: Harness, outcome: Outcome, told: set[str] | None = None) -> None:
    """Print on standard error what the reply does not say: changed memory, memory not shown, and failures.

    `told` are lasting notes of earlier turns. They are not repeated, and new ones are added.
    """
    from harness.presentation.turn_notes import TurnNotes, turn_notes
    from workspaces.errors import Failure

    sys.stdout.flush()  # the reply stands first
    known = set[str]() if told is None else told
    try:
        found = turn_notes(harness, outcome)
    except Failure as failure:  # the turn itself has ended well
        found = TurnNotes((f"the changes of this turn cannot be listed: {failure}",))
    for note in (*found.changes, *(one for one in found.lasting if one not in known)):
        notes().print(note, markup=False, style="dim")
    known.update(found.lasting)
    for source in outcome.unavailable:
        notes().print(f"{source} could not be read; the agent answered without it", markup=False)
    for remark in outcome.remarks:
        notes().print(f"({remark.detail})", markup=False, style="dim")
    if outcome.failure is not None:
        notes().print(f"error ({outcome.failure.kind}): {outcome.failure.reason}", markup=False)
        notes().print(f"  → {outcome.failure.remedy}", markup=False)
        return
    message = _ENDS.get(outcome.status)
    if message is not None:
        notes().print(message)
    if outcome.status == "waiting":
        print_pending(outcome.pending, outcome.conversation_id)


_ENDS: dict[Status, str] = {
    "out_of_steps": "The agent used all its steps without an answer; say “go on” to continue.",
    "out_of_time": "The agent used all its time without an answer; say “go on” to continue.",
    "out_of_money": "The agent reached the cost limit of a turn without an answer.",
    "cut": "The answer was cut off at the agent's limit of output tokens.",
    "interrupted": "The turn was cancelled.",
}


def _can_be_erased() -> bool:
    console = notes()
    return console.is_terminal and not console.is_dumb_terminal


def _print_folded(call: ToolCall, mark: str, colour: str, *, end: str = "\n") -> None:
    """Print a call in one line. On a terminal a longer line is cut."""
    from rich.text import Text

    line = Text.assemble((mark, colour), (f" {call.name} {_named(call)}".rstrip(), "dim"))
    console = notes()
    wide = not console.is_terminal
    overflow = "ignore" if wide else "ellipsis"
    console.print(line, soft_wrap=wide, no_wrap=True, overflow=overflow, end=end)


def _named(call: ToolCall) -> str:
    """Return the path, command or pattern of a call, in one line."""
    about = next(
        (str(call.input[k]) for k in ("path", "command", "pattern") if k in call.input), ""
    )
    lines = visible(about).splitlines() or [""]
    return lines[0] + (" …" if len(lines) > 1 else "")
