"""A transcript as a page shows it: turns of messages, with each call and its result together.

Long texts are shortened. The export has every entry whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from harness.messages.message import Text, Thinking, ToolCall, ToolResult
from harness.messages.pending_call import PendingCall
from harness.tools.tool_context import ToolRevision
from harness.transcripts.transcript import Entry
from harness.web.pages.parts.markdown import rendered

TEXT_CHARACTERS_MAX = 12_000
CALL_CHARACTERS_MAX = 2_000
RESULT_CHARACTERS_MAX = 2_500
SUBJECT_CHARACTERS_MAX = 90

_SUBJECTS = ("command", "path", "pattern", "query", "key", "name")
"""The inputs of a call that say what it is about, in the order in which they are looked for."""


@dataclass(slots=True)
class ShownCall:
    """A call of a tool, and its result if there is one."""

    id: str
    name: str
    subject: str
    input: str
    result: str | None = None
    is_error: bool = False
    waits_for: str | None = None
    """What the call waits for: an approval, or a client."""
    workspace: str | None = None
    changes: tuple[ToolRevision, ...] = ()


@dataclass(slots=True)
class ShownMessage:
    """One entry of the transcript."""

    number: int
    at: str
    role: str
    kind: str
    html: Markup | None = None
    thinking: str = ""
    calls: list[ShownCall] = field(default_factory=list[ShownCall])
    system: tuple[str, ...] = ()
    is_complete: bool = True


@dataclass(slots=True)
class ShownTurn:
    """The entries of one turn."""

    id: str
    at: str
    event_id: str | None
    messages: list[ShownMessage] = field(default_factory=list[ShownMessage])


def turns_of(entries: Iterable[Entry], pending: Sequence[PendingCall] = ()) -> list[ShownTurn]:
    """Return the turns of some entries, in their order."""
    turns: list[ShownTurn] = []
    calls: dict[str, ShownCall] = {}
    waits = {call.id: call for call in pending}
    for entry in entries:
        if not turns or turns[-1].id != entry.turn_id:
            turns.append(ShownTurn(entry.turn_id, entry.at, entry.event_id))
        message = _message(entry, calls, waits)
        if message is not None:
            turns[-1].messages.append(message)
    return turns


def _message(
    entry: Entry, calls: dict[str, ShownCall], waits: Mapping[str, PendingCall]
) -> ShownMessage | None:
    """Return an entry as it is shown. Return None if all of it stands at calls of other entries."""
    shown = ShownMessage(
        entry.number,
        entry.at,
        entry.message.role,
        entry.kind,
        system=entry.system,
        is_complete=entry.is_complete,
    )
    texts: list[str] = []
    for part in entry.message.parts:
        match part:
            case Text():
                texts.append(part.text)
            case Thinking():
                shown.thinking = str(part.block.get("thinking", ""))[:TEXT_CHARACTERS_MAX]
            case ToolCall():
                call = _call(part, waits.get(part.id))
                calls[part.id] = call
                shown.calls.append(call)
            case ToolResult():
                _set_result(calls.get(part.call_id), part, entry)
    text = "\n\n".join(texts)
    if text.strip():
        shown.html = rendered(cut(text, TEXT_CHARACTERS_MAX))
    is_empty = shown.html is None and not shown.calls and not shown.system and not shown.thinking
    return None if is_empty else shown


def _call(call: ToolCall, wait: PendingCall | None) -> ShownCall:
    stated = call.input
    subject = next((str(stated[name]) for name in _SUBJECTS if stated.get(name)), "")
    text = json.dumps(stated, ensure_ascii=False, indent=1)
    if set(stated) == {"command"}:
        text = str(stated["command"])
    return ShownCall(
        call.id,
        call.name,
        " ".join(subject[: 2 * SUBJECT_CHARACTERS_MAX].split())[:SUBJECT_CHARACTERS_MAX],
        cut(text, CALL_CHARACTERS_MAX),
        waits_for=wait.asked.waits_for if wait else None,
        workspace=wait.asked.workspace if wait else None,
    )


def _set_result(call: ShownCall | None, result: ToolResult, entry: Entry) -> None:
    if call is None:  # the call is on an earlier page
        return
    call.result = cut(result.text, RESULT_CHARACTERS_MAX)
    call.is_error = result.is_error
    call.changes = entry.changes
    call.waits_for = None


def cut(text: str, characters_max: int) -> str:
    """Return a text with its middle left out if it is too long."""
    if len(text) <= characters_max:
        return text
    half = characters_max // 2
    return f"{text[:half]}\n… {len(text) - characters_max:,} characters left out …\n{text[-half:]}"
