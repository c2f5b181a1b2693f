"""Print tool calls that wait: the tool, its workspace and all arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from harness.cli.console.console import notes, visible

if TYPE_CHECKING:
    from harness.messages.pending_call import PendingCall
    from harness.presentation.call_text import CallLine

LINES_MAX = 40
CHARACTERS_MAX = 4_000
"""Lines and characters of a call that are shown before a person asks for the rest."""

COLUMNS_MIN = 20


def print_pending(calls: Sequence[PendingCall], conversation_id: str) -> None:
    """Print the calls that a turn waits for on standard error, and how to answer them."""
    for call in calls:
        is_asked_for = call.asked.waits_for == "approval"
        waits_for = "approval" if is_asked_for else "the client's result"
        notes().print(f"Waiting for {waits_for}: {call_title(call)}", markup=False)
        print_arguments(call, conversation_id)
    if any(call.asked.waits_for == "approval" for call in calls):
        command = f"harness approve {conversation_id}"
        notes().print(
            f"  → Decide with `{command}` (`--deny` denies), or send another message.", markup=False
        )


def print_arguments(call: PendingCall, conversation_id: str | None = None) -> int:
    """Print the arguments of a call on standard error. Return the number of characters left out.

    With a conversation, the start of a long call is printed, and the command that shows the rest.
    """
    from harness.presentation.call_text import CallLimit, call_text

    limit = None if conversation_id is None else CallLimit(LINES_MAX, CHARACTERS_MAX)
    text = call_text(call.call.input, limit)
    console = notes()
    width = console.width if console.is_terminal else None
    for line in folded(text.lines, "  ", width):
        console.print(line, markup=False)
    if text.left_out:
        console.print(f"  {rest_of(call, conversation_id or '', text.left_out)}", markup=False)
    return text.left_out


def call_title(call: PendingCall) -> str:
    """Return the tool, the workspace and the id of a call in one line."""
    where = f" in {call.asked.workspace}" if call.asked.workspace else ""
    return " ".join(visible(f"{call.call.name}{where} ({call.id})").split())


def rest_of(call: PendingCall, conversation_id: str, left_out: int) -> str:
    """Return a line about the part of a call that is not shown."""
    command = f"harness approve {conversation_id} {visible(call.id)} --show"
    return f"(… {left_out:,} more characters: `{command}`)"


def folded(lines: Iterable[CallLine], indent: str, width: int | None) -> Iterator[str]:
    """Yield the lines behind an indent, and those of values behind a bar.

    `width`: fold longer lines. A terminal would continue them in its first column, where a value could look
    like anything. Without it no line is folded.
    """
    for line in lines:
        lead = f"{indent}  │ " if line.is_of_value else indent
        if width is None:
            yield f"{lead}{line.text}"
            continue
        from rich.cells import chop_cells

        behind = lead if line.is_of_value else f"{indent}    "
        first, *more = chop_cells(
            line.text.expandtabs(4), max(COLUMNS_MIN, width - len(behind))
        ) or [""]
        yield f"{lead}{first}"
        yield from (f"{behind}{one}" for one in more)
