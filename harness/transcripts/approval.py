"""Work out from a turn's entries alone which calls wait, and what an answer makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.messages.event import Answer, Approval, ToolAnswer
from harness.messages.message import Message, ToolCall, ToolResult
from harness.messages.pending_call import PendingCall
from harness.runtime.templates import render
from harness.transcripts.transcript import Entry
from workspaces.errors import Conflict, NotFound, Refused


@dataclass(frozen=True, slots=True)
class Answered:
    """The parts of an answer to store: the results in it, and the calls that it approves."""

    results: tuple[ToolResult, ...]
    allowed: tuple[str, ...]

    @property
    def message(self) -> Message:
        return Message("user", self.results)


Unanswered = Literal["superseded", "cancelled"]
"""Why a waiting call will not be answered: the user said something else, or the turn was cancelled."""


def open_calls(entries: Sequence[Entry]) -> tuple[ToolCall, ...]:
    """Return the calls of the newest reply whose results are not stored."""
    answered: set[str] = set()
    for entry in reversed(_said(entries)):
        if entry.message.role == "assistant":
            calls = entry.message.tool_calls if entry.is_complete else ()
            return tuple(call for call in calls if call.id not in answered)
        parts = entry.message.parts
        answered |= {part.call_id for part in parts if isinstance(part, ToolResult)}
    return ()


def accepted_call(entries: Sequence[Entry], tool: str) -> ToolCall | None:
    """Return the first call of a tool whose result is no error."""
    calls: dict[str, ToolCall] = {}
    for entry in entries:
        for part in entry.message.parts:
            if isinstance(part, ToolCall) and part.name == tool:
                calls[part.id] = part
            elif isinstance(part, ToolResult) and part.call_id in calls and not part.is_error:
                return calls[part.call_id]
    return None


def pending(entries: Sequence[Entry]) -> tuple[PendingCall, ...]:
    """Return the open calls that wait: neither approved nor answered by the client yet."""
    allowed: set[str] = set()
    asked = {}
    for entry in reversed(_said(entries)):
        if entry.message.role == "assistant":
            asked = {one.call_id: one for one in entry.asks}
            break
        allowed |= set(entry.allowed)
    return tuple(
        PendingCall(call, asked[call.id])
        for call in open_calls(entries)
        if call.id in asked and call.id not in allowed
    )


def answered(
    entries: Sequence[Entry], answers: Sequence[Answer], shown: Callable[[str, str], str]
) -> Answered:
    """Work out what the answers mean for a paused turn: all of them, or none.

    `shown` shortens a result, given the id of its call.

    Raises: NotFound for an unknown call; Conflict for a call that was answered already; Refused when the
    answer is of the wrong kind.
    """
    waiting = {one.id: one for one in pending(entries)}
    results: list[ToolResult] = []
    allowed: list[str] = []
    for answer in answers:
        found = waiting.get(answer.call_id)
        if found is None:
            raise _not_waiting(entries, answer.call_id)
        match answer:
            case Approval(is_allowed=False, reason=reason):
                text = render("turn/denied.md", reason=reason)
                results.append(ToolResult(answer.call_id, text, is_error=True))
            case Approval():
                if found.asked.waits_for != "approval":
                    rule = "is run by the client and needs no approval"
                    raise Refused("callId", answer.call_id, rule, remedy="send its `tool_result`")
                allowed.append(answer.call_id)
            case ToolAnswer(content=text, is_error=is_error):
                if found.asked.waits_for != "result":
                    rule = "is run by the harness once it is approved"
                    raise Refused("callId", answer.call_id, rule, remedy="send an `approval`")
                results.append(ToolResult(answer.call_id, shown(answer.call_id, text), is_error))
    return Answered(tuple(results), tuple(allowed))


def unanswered(entries: Sequence[Entry], why: Unanswered) -> Message:
    """Return results for all open calls of a turn that goes no further: none of them was run."""
    text = render(f"turn/{why}.md")
    calls = open_calls(entries)
    return Message("user", tuple(ToolResult(call.id, text, is_error=True) for call in calls))


def _not_waiting(entries: Sequence[Entry], call_id: str) -> NotFound | Conflict:
    known = {call.id for entry in entries for call in entry.message.tool_calls}
    if call_id not in known:
        return nothing_waits(call_id)
    conflict = Conflict("call", call_id, expected="no answer", actual="an answer")
    conflict.args = (f"the call {call_id!r} was already answered",)
    conflict.remedy = _PENDING
    return conflict


def nothing_waits(call_id: str | None) -> NotFound:
    """Return the error for a call that does not wait, or for a conversation in which none does."""
    failure = NotFound("pending call", call_id or "", remedy=_PENDING)
    if call_id is None:
        failure.args = ("no call waits in this conversation",)
    return failure


_PENDING = "the outcome of the turn names the calls that wait; `harness status` lists all"


def _said(entries: Sequence[Entry]) -> list[Entry]:
    """Leave out the entries of flushes and summaries."""
    return [entry for entry in entries if entry.is_said]
