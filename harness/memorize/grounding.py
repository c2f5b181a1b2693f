"""Groundings: check them against a conversation, locate quotes, and find out later if they still hold.

A grounding names a message by its position, its id or its raw event, or only quotes it. Positions are those
of the archived text. Quotes are compared by their words, so that line breaks and indentation do not matter.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import accumulate
from typing import Any

from harness.memorize.local.local_message import LocalMessage
from harness.memorize.memorize_request import GroundingRequest
from harness.memory.secrets import redact
from workspaces.errors import Refused

QUOTE_CHARACTERS_MAX = 2_000
SHORT_QUOTE_CHARACTERS_MAX = 200
"""Characters of a quote that stand in the fact's file. The archive has the whole quote."""

RAW_EVENT_CHARACTERS_MAX = 200_000
"""Characters of a raw event that an archive keeps."""

_WORD = re.compile(r"\S+")
_NAMES = ("message_position", "provider_message_uuid", "raw_event_index", "quote")


@dataclass(frozen=True, slots=True)
class Grounding:
    """A moment of a conversation that was checked."""

    message_position: int | None
    """None: it is a raw event that shows no message."""
    provider_message_uuid: str | None
    raw_event_index: int
    start_character: int
    end_character: int
    quote: str
    hash: str
    """SHA-256 of the words from start to end."""
    raw_start_character: int | None = None
    raw_end_character: int | None = None
    raw_event: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    def as_json(self) -> dict[str, Any]:
        """Return all of it, for the archive."""
        raw: dict[str, Any] = {}
        if self.raw_event is not None:
            raw = {
                "raw_start_character": self.raw_start_character,
                "raw_end_character": self.raw_end_character,
                "raw_event": self.raw_event,
            }
        return {
            "message_position": self.message_position,
            "provider_message_uuid": self.provider_message_uuid,
            "raw_event_index": self.raw_event_index,
            "start_character": self.start_character,
            "end_character": self.end_character,
            "quote": self.quote,
            "hash": self.hash,
            **raw,
            "metadata": self.metadata,
        }

    def as_attributes(self) -> dict[str, str]:
        """Return the part that stands in the fact's file. Every value is text, as files are read."""
        place = {} if self.message_position is None else {"message": str(self.message_position)}
        return {
            **place,
            "event": str(self.raw_event_index),
            "start": str(self.start_character),
            "end": str(self.end_character),
            "quote": self.quote[:SHORT_QUOTE_CHARACTERS_MAX],
            "hash": self.hash,
        }


def words_hash(text: str) -> str:
    return sha256(" ".join(_WORD.findall(text)).encode(errors="backslashreplace")).hexdigest()


def holds_quote(text: str, quote: str) -> bool:
    """Return True if the words of the quote stand in the text one after the other."""
    return find_quote(text, quote) is not None


def find_quote(text: str, quote: str) -> tuple[int, int] | None:
    """Return the first place of the quote's words, in code points; None if they do not stand there."""
    wanted = " ".join(_WORD.findall(quote))
    exact = text.find(quote) if wanted else -1
    if exact >= 0:
        start = exact + len(quote) - len(quote.lstrip())
        return start, start + len(quote.strip())
    if not wanted or wanted.partition(" ")[0] not in text:
        return None
    spans = [match.span() for match in _WORD.finditer(text)]
    starts = [0, *accumulate(end - start + 1 for start, end in spans)]
    at = " ".join(text[start:end] for start, end in spans).find(wanted)
    if at < 0:
        return None
    return _in_text(at, starts, spans), _in_text(at + len(wanted) - 1, starts, spans) + 1


def _in_text(place: int, starts: Sequence[int], spans: Sequence[tuple[int, int]]) -> int:
    """Return the place in a text of a character of its words."""
    word = bisect_right(starts, place) - 1
    return spans[word][0] + place - starts[word]


class GroundingCheck:
    """The check of one request's groundings, while the messages of the conversation go by."""

    def __init__(self, requests: Sequence[GroundingRequest]) -> None:
        """Raises: Refused for a grounding that is wrong whatever the conversation says."""
        self.warnings: list[str] = []
        self._open = [
            _OpenGrounding(f"groundings.{number}", request, self.warnings)
            for number, request in enumerate(requests)
        ]

    def see(self, message: LocalMessage) -> None:
        for one in self._open:
            one.see(message)

    def close(self, raw_event: Callable[[int], str | None]) -> tuple[Grounding, ...]:
        """Return the groundings after the last message. `raw_event` returns a raw event by its number.

        Raises: Refused for the first one that fails.
        """
        return tuple(one.close(raw_event) for one in self._open)


class _Misses(Exception):
    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(rule)
        self.field, self.value, self.rule = field, value, rule


class _OpenGrounding:
    """A grounding whose message has not gone by yet."""

    def __init__(self, name: str, request: GroundingRequest, warnings: list[str]) -> None:
        self._name, self._request, self._warnings = name, request, warnings
        self._found: Grounding | None = None
        self._missed: _Misses | None = None
        self._times = 0
        if all(getattr(request, one) is None for one in _NAMES):
            rule = f"names no moment: give one of {', '.join(_NAMES)}"
            raise Refused(name, None, rule)
        self._check_pair("start_character", "end_character")
        self._check_pair("raw_start_character", "raw_end_character")
        if request.raw_start_character is not None and request.raw_event_index is None:
            raise Refused(f"{name}.raw_event_index", None, "is required with raw_start_character")
        has_place = any(getattr(request, one) is not None for one in _NAMES[:3])
        if request.start_character is not None and not has_place:
            raise Refused(f"{name}.message_position", None, "is required with start_character")
        self._quote = self._shortened(request.quote)

    def see(self, message: LocalMessage) -> None:
        if not self._is_meant(message):
            return
        try:
            found = self._grounding(message)
        except _Misses as missed:
            self._missed = self._missed or missed
            return
        self._times += 1
        self._found = self._found or found

    def close(self, raw_event: Callable[[int], str | None]) -> Grounding:
        request = self._request
        raw: str | None = None
        if request.raw_event_index is not None:
            raw = raw_event(request.raw_event_index)
            if raw is None:
                rule = "is no line of the conversation that can be read"
                raise Refused(f"{self._name}.raw_event_index", request.raw_event_index, rule)
            raw = raw[:RAW_EVENT_CHARACTERS_MAX]
        if self._found is None and self._missed is None and raw is not None:
            self._found = self._in_raw_event(raw, request.raw_event_index or 0)
        if self._found is None:
            raise self._refusal()
        if self._times > 1 and request.message_position is None:
            count = f"{self._times:,} messages"
            self._warnings.append(
                f"{self._name}: the quote stands in {count}; the first one is cited"
            )
        return self._found if raw is None else self._with_raw_event(self._found, raw)

    def _is_meant(self, message: LocalMessage) -> bool:
        request = self._request
        return (
            request.message_position in (None, message.position)
            and request.provider_message_uuid in (None, message.uuid)
            and request.raw_event_index in (None, message.raw_index)
        )

    def _grounding(self, message: LocalMessage) -> Grounding:
        """Return the grounding in this message.

        Raises: _Misses.
        """
        start, end = self._span(message.text)
        return Grounding(
            message.position,
            message.uuid,
            message.raw_index,
            start,
            end,
            quote=self._quote or message.text[start:end][:QUOTE_CHARACTERS_MAX],
            hash=words_hash(message.text[start:end]),
            metadata=self._request.metadata or {},
        )

    def _span(self, text: str) -> tuple[int, int]:
        start, end = self._request.start_character, self._request.end_character
        if start is None or end is None:
            if self._quote is None:
                return 0, len(text)
            found = find_quote(text, self._quote)
            if found is None:
                raise _Misses("quote", self._quote, "does not stand in the message")
            return found
        if end > len(text):
            raise _Misses("end_character", end, f"is behind the message, which ends at {len(text)}")
        if self._quote is not None and not holds_quote(text[start:end], self._quote):
            raise _Misses("quote", self._quote, f"does not stand from character {start} to {end}")
        return start, end

    def _in_raw_event(self, raw: str, index: int) -> Grounding:
        """Return the grounding in a raw event that shows no message."""
        start = self._request.raw_start_character or 0
        end = self._request.raw_end_character
        end = min(len(raw), start + QUOTE_CHARACTERS_MAX) if end is None else end
        part = raw[start:end]
        quote = self._quote or part[:QUOTE_CHARACTERS_MAX]
        where = raw if self._request.raw_start_character is None else part
        if self._quote is not None and not holds_quote(where, self._quote):
            rule = "does not stand in the raw event"
            raise Refused(f"{self._name}.quote", self._quote, rule)
        metadata = self._request.metadata or {}
        return Grounding(
            None, None, index, 0, 0, quote=quote, hash=words_hash(quote), metadata=metadata
        )

    def _with_raw_event(self, found: Grounding, raw: str) -> Grounding:
        start, end = self._request.raw_start_character, self._request.raw_end_character
        if end is not None and end > len(raw):
            rule = f"is behind the raw event, which ends at {len(raw)}"
            raise Refused(f"{self._name}.raw_end_character", end, rule)
        return Grounding(
            found.message_position,
            found.provider_message_uuid,
            found.raw_event_index,
            found.start_character,
            found.end_character,
            quote=found.quote,
            hash=found.hash,
            raw_start_character=start,
            raw_end_character=end,
            raw_event=raw,
            metadata=found.metadata,
        )

    def _refusal(self) -> Refused:
        """Return the error for a grounding of which no message holds."""
        request, missed = self._request, self._missed
        if missed is not None:
            return Refused(f"{self._name}.{missed.field}", missed.value, missed.rule)
        given = [one for one in _NAMES if getattr(request, one) is not None]
        if given == ["quote"]:
            rule = "does not stand in any message of the conversation"
        elif len(given) > 1 and given[-1] != "quote":
            rule = f"is not of the message that {given[0]} names, or there is no such message"
        else:
            rule = "is no message of the conversation"
        which = given[0] if given[-1] == "quote" else given[-1]
        return Refused(f"{self._name}.{which}", getattr(request, which), rule)

    def _check_pair(self, first: str, last: str) -> None:
        start, end = getattr(self._request, first), getattr(self._request, last)
        if (start is None) != (end is None):
            missing, other = (first, last) if start is None else (last, first)
            raise Refused(f"{self._name}.{missing}", None, f"is required with {other}")
        if start is not None and start > end:
            raise Refused(f"{self._name}.{last}", end, f"is before {first}, which is {start}")

    def _shortened(self, quote: str | None) -> str | None:
        """Return the quote as an archive would show it, cut to what is kept."""
        if quote is None:
            return None
        if not quote.strip():
            raise Refused(f"{self._name}.quote", quote, "is blank")
        shown = redact(quote)[0]
        if len(shown) > QUOTE_CHARACTERS_MAX:
            self._warnings.append(
                f"{self._name}: the quote was cut to {QUOTE_CHARACTERS_MAX:,} characters"
            )
        return shown[:QUOTE_CHARACTERS_MAX]
