"""Redaction: puts a mark in the place of each forgotten phrase in stored text and stored JSON.

A value of a record is JSON with two kinds of strings: text that someone wrote, and words of this program
(`role`, `status`, ids). Only text is redacted, because a short phrase may equal such a word. A list of
strings is read as lines, so a phrase across two of them is found.

JSON inside a text has its line ends and quotes escaped. A phrase across such an escape is found in a copy of
the text in which blanks stand for each escape, as many as it has characters. So positions in both are equal.

A block that a provider signed must not be changed. If it holds a phrase, it goes as a whole.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, Protocol, cast

from harness.context.receipt import REDACTED
from workspaces.forgetting.matcher import FoundText, mark_of, merged_places, with_marks
from workspaces.storage.records import JsonObject

_PROGRAM_KEYS = """
type role kind status id at turn event tool_use_id call for large digest body hash version revision snapshot
source purpose reason model provider agentId userId accountId workspaceId conversationId turnId runId chainId
conversation createdAt updatedAt startedAt finishedAt resetAt day process holder mark signature language
"""
PROGRAM_KEYS = frozenset(_PROGRAM_KEYS.split())
"""Keys whose values may be words of this program. Such a value stays if it looks like one."""

NAME_KEYS = frozenset(("name", "key", "fullKey", "conversationKey", "externalId"))
"""Keys whose values other records refer to. Only a person can rename them."""

FREE_KEYS = frozenset(("input", "data", "metadata", "outcomeFields"))
"""Keys of JSON that others wrote. Every string and every key in it is text."""

_PROGRAM_WORD = re.compile(r"[A-Za-z0-9_.:/+-]*")
_ESCAPE = re.compile(r"\\+(?:u(?P<code>[0-9a-fA-F]{4})|[\"\\/bfnrt])")
_UNSEEN = "\u200b"
"""A character that words leave out."""


class TextFinder(Protocol):
    """The phrases to forget. The matcher of tombstones is one."""

    def find(self, text: str) -> list[FoundText]:
        """Return all places in their order. They do not overlap."""
        ...

    def replaced(self, text: str) -> str:
        """Return the text with a mark in each place."""
        ...


class RedactedText(NamedTuple):
    """A text, with the number of phrases that were replaced in it."""

    text: str
    phrases: int


def redacted_hash(tombstone_id: str) -> str:
    """Return the words in the place of a hash that would let a short text be guessed."""
    return f"{REDACTED}{tombstone_id}"


def redact_text(text: str, finder: TextFinder) -> RedactedText:
    """Replace each phrase by its mark. The number of lines stays."""
    places = all_places(text, finder)
    return RedactedText(with_marks(text, places) if places else text, len(places))


class JsonRedactor:
    """Redacts the text in one JSON value, and counts the phrases."""

    def __init__(self, finder: TextFinder, *, has_names: bool = True) -> None:
        """Take the phrases. With `has_names`, names in the value stay, and phrases in them are counted."""
        self._finder = finder
        self._has_names = has_names
        self.count = 0
        self.names = 0
        """Phrases in names, which stay."""

    def text(self, text: str) -> str:
        redacted = redact_text(text, self._finder)
        self.count += redacted.phrases
        return redacted.text

    def object(self, value: JsonObject) -> JsonObject:
        return cast("JsonObject", self._value(value, "", is_free=False))

    def _value(self, value: Any, key: str, *, is_free: bool) -> Any:
        match value:
            case str() if self._has_names and not is_free and key in NAME_KEYS:
                self.names += len(all_places(value, self._finder))
                return value
            case str():
                stays = not is_free and key in PROGRAM_KEYS and _PROGRAM_WORD.fullmatch(value)
                return value if stays else self.text(value)
            case list():
                return self._list(cast("list[Any]", value), key, is_free=is_free)
            case dict():
                return self._object(cast("JsonObject", value), is_free=is_free)
            case _:
                return value

    def _object(self, value: JsonObject, *, is_free: bool) -> JsonObject:
        if "signature" in value and not is_free:  # a block that a provider signed
            return self._signed(value)
        if not is_free and "quote" in value and "hash" in value:
            return self._grounding(value)
        free = {key: is_free or key in FREE_KEYS for key in value}
        return {
            self.text(key) if is_free else key: self._value(one, key, is_free=free[key])
            for key, one in value.items()
        }

    def _signed(self, block: JsonObject) -> JsonObject:
        places = all_places(json.dumps(block, ensure_ascii=False), self._finder)
        if not places:
            return block
        self.count += len(places)
        return {"type": "text", "text": mark_of(places[0].tombstone_id)}

    def _grounding(self, value: JsonObject) -> JsonObject:
        """Redact a quote. The hash of its words goes with it."""
        places = all_places(str(value["quote"]), self._finder)
        if not places:
            return value
        return {**value, "quote": self.text(value["quote"]), "hash": redacted_hash(places[0][2])}

    def _list(self, values: list[Any], key: str, *, is_free: bool) -> list[Any]:
        if len(values) > 1 and all(isinstance(one, str) for one in values):
            lines = cast("list[str]", values)
            if not any("\n" in one for one in lines):
                return self.text("\n".join(lines)).split("\n")
        return [self._value(one, key, is_free=is_free) for one in values]


def redact_bytes(data: bytes, finder: TextFinder) -> tuple[bytes, int]:
    """Redact a text file. Bytes that are no UTF-8 stay as they are around the marks."""
    text = data.decode(errors="surrogateescape")
    redacted = redact_text(text, finder)
    return redacted.text.encode(errors="surrogateescape"), redacted.phrases


def all_places(text: str, finder: TextFinder) -> list[FoundText]:
    """Return the places of the phrases in the text, and in the text without JSON escapes."""
    places = finder.find(text)
    if "\\" not in text:
        return places
    return merged_places([*places, *finder.find(without_escapes(text))])


def without_escapes(text: str) -> str:
    """Return the text with blanks, or a letter, in the place of each escape of JSON. It is as long as
    before."""
    return _ESCAPE.sub(_blank, text)


def _blank(escape: re.Match[str]) -> str:
    """Return as many characters as the escape has: its character, if it is one of a word, or blanks."""
    width = escape.end() - escape.start()
    code = escape.group("code")
    if code is None:
        return " " * width
    return chr(int(code, 16)) + _UNSEEN * (width - 1)
