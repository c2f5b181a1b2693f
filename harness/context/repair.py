"""Repairs a history so that a provider accepts it; intact histories pass unchanged.

A crash, a cancelled turn or an import can leave a tool call without its result, a result without its call,
two messages of one role in a row, or blocks in a place where their kind is not allowed. Providers require:

- The first message is a user's, and roles alternate. So neighbours of one role are joined.
- The results of an assistant's calls come first in the very next message, one each. A call without a result
  gets one that says it was interrupted; a result without a call is left out.
- Ids of calls are words, and no two in a request are equal. Names of tools are words, too.
- No text is empty, a failure has a text, and all text is valid Unicode.
- Thinking is signed, and no message ends in it, as the message of a cut answer does. A use of the provider's
  own tools stands beside its result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from harness.messages.message import Message, Part, Role, Text, Thinking, ToolCall, ToolResult
from workspaces.storage.records import JsonObject

INTERRUPTED = "interrupted: it is not known whether this tool ran, or how far"
NOTHING = "(no output)"

NAME_CHARACTERS_MAX = 128

_NO_WORD = re.compile(r"[^a-zA-Z0-9_-]")
_WORD = re.compile(r"[a-zA-Z0-9_-]+")


def repair(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    repairer = _Repairer()
    for message in messages:
        if message.role == "assistant":
            repairer.take_assistant_message(message)
        else:
            repairer.take_user_message(message)
    repaired = repairer.messages()
    return messages if repaired == messages else repaired


@dataclass(slots=True)
class _Draft:
    """A message under construction. Neighbours of its role are joined to it."""

    role: Role
    original: Message
    calls: dict[str, str] = field(default_factory=dict[str, str])
    """For an assistant's message: maps each call's original id to the id that is sent."""
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    parts: list[Part] = field(default_factory=list[Part])
    """The other parts."""

    def message(self, before: _Draft | None) -> Message:
        parts = (*_answered(before, self.results), *self.parts)
        return self.original if parts == self.original.parts else Message(self.role, parts)


class _Repairer:
    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._ids: set[str] = set()

    def take_assistant_message(self, message: Message) -> None:
        if not self._drafts:
            return  # an assistant message before the first user message cannot be replayed
        last = self._drafts[-1]
        draft = last if last.role == "assistant" else _Draft("assistant", message)
        parts = list(self._replayable(message.parts, draft.calls))
        while parts and isinstance(parts[-1], Thinking):
            parts.pop()
        if parts:
            draft.parts += parts
            self._append(draft)

    def take_user_message(self, message: Message) -> None:
        last = self._drafts[-1] if self._drafts else None
        draft = last if last is not None and last.role == "user" else _Draft("user", message)
        caller = last if last is not draft else self._drafts[-2] if self._drafts[1:] else None
        for part in message.parts:
            match part:
                case Text(text) if text.strip():
                    draft.parts.append(_sound(part))
                case ToolResult(call_id) if caller is not None and call_id in caller.calls:
                    draft.results.setdefault(call_id, _answer(part, caller.calls[call_id]))
                case _:
                    pass
        if draft.parts or draft.results:
            self._append(draft)

    def messages(self) -> tuple[Message, ...]:
        befores = [None, *self._drafts]
        done = [draft.message(before) for before, draft in zip(befores, self._drafts, strict=False)]
        if self._drafts and self._drafts[-1].calls:
            done.append(Message("user", _answered(self._drafts[-1], {})))
        return tuple(done)

    def _append(self, draft: _Draft) -> None:
        if not self._drafts or self._drafts[-1] is not draft:
            self._drafts.append(draft)

    def _replayable(self, parts: Sequence[Part], calls: dict[str, str]) -> Iterable[Part]:
        complete_ids = _complete_tool_uses(parts)
        for part in parts:
            match part:
                case Text(text) if text.strip():
                    yield _sound(part)
                case ToolCall(call_id) if call_id not in calls:
                    calls[call_id] = self._unique(call_id)
                    yield _call(part, calls[call_id])
                case Thinking(block) if _is_replayable(block, complete_ids):
                    yield part
                case _:
                    pass

    def _unique(self, call_id: str) -> str:
        word = _word(call_id) or "call"
        unique, number = word, 1
        while unique in self._ids:
            number += 1
            unique = f"{word}-{number}"
        self._ids.add(unique)
        return unique


def _answered(before: _Draft | None, results: dict[str, ToolResult]) -> tuple[Part, ...]:
    """Return one result for every call, in the order of the calls."""
    if before is None:
        return ()
    return tuple(
        results.get(call_id) or ToolResult(sent, INTERRUPTED, is_error=True)
        for call_id, sent in before.calls.items()
    )


def _answer(result: ToolResult, sent: str) -> ToolResult:
    text = sound(result.text) or (NOTHING if result.is_error else "")
    if text == result.text and sent == result.call_id:
        return result
    return replace(result, call_id=sent, text=text)


def _call(call: ToolCall, sent: str) -> ToolCall:
    name = _word(call.name)[:NAME_CHARACTERS_MAX] or "tool"
    arguments = call.input if _is_sound(call.input) else cast(JsonObject, _sound_values(call.input))
    if arguments is call.input and name == call.name and sent == call.id:
        return call
    return ToolCall(sent, name, arguments)


def _complete_tool_uses(parts: Sequence[Part]) -> set[str]:
    """Return the ids of uses of the provider's own tools that stand beside their results."""
    blocks = [part.block for part in parts if isinstance(part, Thinking)]
    if not blocks:
        return set()
    used = {block.get("id") for block in blocks if _kind(block).endswith("_tool_use")}
    answered = {
        block.get("tool_use_id") for block in blocks if _kind(block).endswith("_tool_result")
    }
    return {one for one in used & answered if isinstance(one, str)}


def _is_replayable(block: JsonObject, complete_ids: set[str]) -> bool:
    match _kind(block):
        case "thinking":
            return isinstance(block.get("thinking"), str) and bool(block.get("signature"))
        case "redacted_thinking":
            return isinstance(block.get("data"), str)
        case kind if kind.endswith("_tool_use"):
            return block.get("id") in complete_ids
        case kind if kind.endswith("_tool_result"):
            return block.get("tool_use_id") in complete_ids
        case _:
            return False


def _kind(block: JsonObject) -> str:
    return str(block.get("type"))


def _word(text: str) -> str:
    return text if _WORD.fullmatch(text) else _NO_WORD.sub("_", text)


def _sound(part: Text) -> Text:
    text = sound(part.text)
    return part if text is part.text else Text(text)


def sound(text: str) -> str:
    """Return the text as valid Unicode. JSON may hold halves of surrogate pairs, which cannot be sent: two
    matching halves are joined, others replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")
    return text


def sound_json(value: Any) -> Any:
    """Return the JSON value with every text in it made valid Unicode."""
    match value:
        case str():
            return sound(value)
        case dict():
            pairs = cast(dict[str, Any], value)
            return {sound(key): sound_json(one) for key, one in pairs.items()}
        case list():
            return [sound_json(one) for one in cast(list[Any], value)]
        case _:
            return value


def _is_sound(value: Any) -> bool:
    match value:
        case str():
            return sound(value) is value
        case dict():
            pairs = cast(dict[str, Any], value)
            return all(map(_is_sound, pairs)) and all(map(_is_sound, pairs.values()))
        case list():
            return all(map(_is_sound, cast(list[Any], value)))
        case _:
            return True


def _sound_values(value: Any) -> Any:
    match value:
        case str():
            return sound(value)
        case dict():
            pairs = cast(dict[str, Any], value)
            return {sound(key): _sound_values(one) for key, one in pairs.items()}
        case list():
            return [_sound_values(one) for one in cast(list[Any], value)]
        case _:
            return value
