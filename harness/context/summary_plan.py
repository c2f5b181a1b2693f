"""Plans compaction: which entries a summary covers, what the summarising model reads, and whether its answer
can replace them.

A summary covers whole turns from the beginning of the window. The cut falls before a user's message, and the
newest two turns stay verbatim. Only the newest one stays if nothing else could be covered, or if the two
alone exceed the limit. So a user's newest message is never covered, and no call is separated from its result.

A summary is rejected if it is empty, if it was cut, or if it is longer than the text it would replace.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from harness.context.assemble import Numbered
from harness.context.fence import attribute, fenced
from harness.context.history_message import HistoryMessage, turns_of
from harness.context.part import Render
from harness.context.prune import shortened
from harness.context.repair import sound
from harness.messages.message import Message, Part, Text, Thinking, ToolCall, ToolResult
from harness.messages.model_request import ModelRequest, Reply
from workspaces.storage.records import JsonObject

VERBATIM_TURNS = 2

GROWTH_TENTHS = 11
"""Tenths of the length at which the last summary failed; the next attempt waits for this length."""

CHUNK_CHARACTERS_MAX = 400_000
"""Characters that the summarising model reads at once: 100 000 tokens of prose fit every model's window."""

CHUNK_CHARACTERS_MIN = 8_000
"""The smallest chunk. A model that finds it too long will never accept it."""

CALL_CHARACTERS_MAX = 2_000
"""Characters of a call's input that the summarising model reads."""

WORDS_MAX = 1_500

_JSON = json.JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Cover:
    """A decision: summarise all entries up to this one."""

    until: int


@dataclass(frozen=True, slots=True)
class SystemTooLong:
    """A finding: the blocks beside the messages exceed the limit on their own, so a summary cannot help."""

    characters: int


@dataclass(frozen=True, slots=True)
class TurnTooLong:
    """A finding: nothing precedes the newest turn, so a summary would cover nothing."""


Due = Cover | SystemTooLong | TurnTooLong


def due_json(due: Due) -> JsonObject:
    match due:
        case Cover(until):
            return {"kind": "summary", "covers": until}
        case SystemTooLong(characters):
            return {"kind": "system_too_long", "characters": characters}
        case TurnTooLong():
            return {"kind": "turn_too_long"}
        case _:
            assert_never(due)


@dataclass(frozen=True, slots=True)
class SummaryState:
    """The facts about a request that is about to be sent."""

    history: Sequence[HistoryMessage]
    characters: int
    """The characters of the request."""
    system_characters: int
    """The characters of the request without its messages."""
    length_after: Callable[[int], int]
    """A function that returns the characters left without the messages up to an entry."""
    failed_at: int = 0
    """The length at which the last summary failed; 0 if none did."""


def due(state: SummaryState, characters_max: int) -> Due | None:
    """Return the action for a context that is longer than the limit. Return None if nothing is to be done."""
    if state.characters <= characters_max:
        return None
    if state.system_characters > characters_max:
        return SystemTooLong(state.system_characters)
    return cover(state, characters_max) if has_grown(state) else None


def has_grown(state: SummaryState) -> bool:
    """Return True if a summary may be tried: the last one did not fail, or the context has grown enough
    since."""
    return 10 * state.characters >= GROWTH_TENTHS * state.failed_at


def cover(state: SummaryState, characters_max: int) -> Cover | TurnTooLong:
    """Return the entries that a summary would cover, whether or not one is due."""
    cuts = _cuts(state.history)
    if not cuts:
        return TurnTooLong()
    until = cuts[-1] if len(cuts) < VERBATIM_TURNS else cuts[-VERBATIM_TURNS]
    return Cover(until if state.length_after(until) <= characters_max else cuts[-1])


def _cuts(history: Sequence[HistoryMessage]) -> list[int]:
    """Return the entries up to which a summary can cover. These lie before each turn that begins with a
    user's message, except the first, up to the turn with the newest such message."""
    newest = max((at for at, one in enumerate(history) if one.is_plain), default=0)
    cuts: list[int] = []
    at = 0
    for turn in turns_of(history):
        if 0 < at <= newest and turn[0].is_plain:
            cuts.append(history[at - 1].number)
        at += len(turn)
    return cuts


def input_of(messages: Sequence[Numbered], render: Render) -> list[str]:
    """Return the texts that the summarising model reads, one for each message. Thinking is left out: it is
    private to the model that wrote it."""
    left_out = _left_out(render)
    texts = (_as_text(message, left_out) for _, message in messages)
    return [text for text in texts if text]


def chunk(texts: Sequence[str], characters_max: int) -> tuple[str, list[str]]:
    """Return as much text as may be read at once, and the rest."""
    taken, length = 0, 0
    while taken < len(texts) and length + len(texts[taken]) <= characters_max:
        length += len(texts[taken]) + 2
        taken += 1
    if taken:
        return "\n\n".join(texts[:taken]), [*texts[taken:]]
    head, tail = texts[0][:characters_max], texts[0][characters_max:]
    return head, [tail, *texts[1:]]


def question_to_writer(text: str, earlier: str | None, render: Render) -> ModelRequest:
    content = render("compaction/input.md", text=text, earlier=fenced(earlier) if earlier else None)
    system = render("compaction/system.md", words=WORDS_MAX)
    return ModelRequest((system,), (Message("user", (Text(content),)),), ())


@dataclass(frozen=True, slots=True)
class Unusable:
    """A summary that cannot replace the entries."""

    reason: str


def usable(reply: Reply, text: str, earlier: str | None) -> str | Unusable:
    """Return the summary, or Unusable. `text` and `earlier` are what the summarising model has read."""
    summary = sound(reply.message.text).strip()
    if not summary:
        return Unusable("the summary is empty")
    if not reply.is_complete:
        return Unusable("the summary was cut at the limit of output tokens")
    if len(summary) > len(text) + len(earlier or ""):
        return Unusable("the summary is longer than the text it replaces")
    return summary


def _left_out(render: Render) -> Callable[[int], str]:
    return lambda count: f"\n{render('prompt/left-out.md', count=f'{count:,}', id='')}\n"


def _as_text(message: Message, left_out: Callable[[int], str]) -> str:
    """Return the message between tags that nothing in it can close."""
    lines = [line for part in message.parts if (line := _line(part, message.role, left_out))]
    return "\n".join(lines)


def _line(part: Part, role: str, left_out: Callable[[int], str]) -> str:
    match part:
        case Text(text):
            return f"<{role}>\n{fenced(text)}\n</{role}>" if text.strip() else ""
        case ToolCall(_, name, arguments):
            arguments_text = shortened(_JSON.encode(arguments), CALL_CHARACTERS_MAX, left_out)
            return f'<tool-call name="{attribute(name)}">\n{fenced(arguments_text)}\n</tool-call>'
        case ToolResult(_, text, is_error):
            return f"<tool-result{' failed' if is_error else ''}>\n{fenced(text)}\n</tool-result>"
        case Thinking():
            return ""
        case _:
            assert_never(part)
