"""Find texts that must not come back, and put marks in their place.

A matcher hashes every window of as many words as a tombstone has, and looks the hash up. The time is linear
in the text: one hash for each word and each number of words. A matcher that only looks at a change takes the
changed lines, and so many words on both sides that a window over their edge is found.

A mark takes the place of the words, from the first letter to the last. What stands around them stays. Line
ends between them stay as well, so the numbers of later lines do not change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

from workspaces.forgetting.tombstone import DIGEST_BYTES, TextTombstone
from workspaces.forgetting.words import words_of

_LINE_END = re.compile(r"\r?\n|\r")
_BLOCK_BYTES = 64


class FoundText(NamedTuple):
    """A place of a text that a tombstone covers."""

    start: int
    end: int
    tombstone_id: str


class Matcher:
    """The tombstones of an account, ready to be looked for. Threads may share one."""

    def __init__(self, tombstones: Iterable[TextTombstone], key: bytes) -> None:
        by_count: dict[int, dict[bytes, str]] = {}
        for tombstone in tombstones:
            ids = by_count.setdefault(tombstone.words, {})
            for digest in tombstone.digests:
                ids.setdefault(digest, tombstone.id)
        self._by_count = by_count
        self.words_max = max(by_count, default=0)
        """The words of the longest window that is looked for."""
        # HMAC in its two halves: copying a hash that knows the key is twice as fast as beginning anew
        padded = (key if len(key) <= _BLOCK_BYTES else sha256(key).digest()).ljust(
            _BLOCK_BYTES, b"\0"
        )
        self._inner = sha256(bytes(byte ^ 0x36 for byte in padded))
        self._outer = sha256(bytes(byte ^ 0x5C for byte in padded))

    def __bool__(self) -> bool:
        """Return True if there is anything to look for."""
        return bool(self._by_count)

    def find(self, text: str) -> list[FoundText]:
        """Return all places in their order. Places that overlap are one, under the id of the first."""
        return merged_places(self.find_each(text))

    def find_each(self, text: str) -> list[FoundText]:
        """Return every place, also those that overlap. They are in no order."""
        if not self._by_count:
            return []
        words = words_of(text)
        if not words.texts:
            return []
        found: list[FoundText] = []
        joined, begins, finishes = _joined(words.texts)
        inner, outer = self._inner, self._outer
        for count, ids in self._by_count.items():
            ends = islice(finishes, count - 1, None)
            for number, (begin, end) in enumerate(zip(begins, ends, strict=False)):
                half = inner.copy()
                half.update(joined[begin:end])
                whole = outer.copy()
                whole.update(half.digest())
                tombstone_id = ids.get(whole.digest()[:DIGEST_BYTES])
                if tombstone_id is not None:
                    start, finish = words.starts[number], words.ends[number + count - 1]
                    found.append(FoundText(start, finish, tombstone_id))
        return found

    def find_changed(self, before: str, after: str) -> list[FoundText]:
        """Return the places in `after` that a change has made. Places in lines that stay are not among them.

        A place counts as changed if one of its lines is new, or the lines between which it stands.
        """
        if not self._by_count or before == after:
            return []
        start, end, old_start, old_end = _changed_part(before, after)
        around = self.words_max - 1
        start, end = _words_before(after, start, around), _words_after(after, end, around)
        found = self.find(after[start:end])
        if not found:
            return []
        # A place in lines that were there before is no change, even if lines around it are new.
        old_start = _words_before(before, old_start, around)
        old_end = _words_after(before, old_end, around)
        old = before[old_start:old_end]
        known = Counter(lines_of(old, place) for place in self.find(old))
        changed: list[FoundText] = []
        for place in found:
            lines = lines_of(after[start:end], place)
            if known[lines] > 0:
                known[lines] -= 1
            else:
                changed.append(
                    FoundText(place.start + start, place.end + start, place.tombstone_id)
                )
        return changed

    def replaced(self, text: str) -> str:
        """Return the text with a mark in the place of each forgotten one. The number of lines stays."""
        return with_marks(text, self.find(text))


def mark_of(rule_id: str) -> str:
    """Return the text that takes the place of a forgotten or forbidden one."""
    return f"[{'forgotten' if rule_id.startswith('f_') else 'forbidden'} {rule_id}]"


def with_marks(text: str, found: Sequence[FoundText]) -> str:
    """Return the text with a mark in each place. The places are in order and do not overlap."""
    parts: list[str] = []
    at = 0
    for start, end, tombstone_id in found:
        parts += (
            text[at:start],
            mark_of(tombstone_id),
            *_LINE_END.findall(text, start, end),
        )
        at = end
    return "".join((*parts, text[at:]))


def _joined(words: list[str]) -> tuple[bytes, list[int], list[int]]:
    """Return the words joined by one blank, as bytes, and where each begins and ends there."""
    encoded = [word.encode() for word in words]
    begins: list[int] = []
    finishes: list[int] = []
    at = 0
    for word in encoded:
        begins.append(at)
        at += len(word)
        finishes.append(at)
        at += 1
    return b" ".join(encoded), begins, finishes


def bytes_with_marks(data: bytes, find: Callable[[str], Sequence[FoundText]]) -> bytes | None:
    """Return the bytes of a file with a mark in each place. Return None for a file that must go whole.

    A file goes whole if it is no UTF-8 and holds a forgotten text in an encoding that can be read.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None if any(find(text) for text in readings(data)) else data
    found = find(text)
    return with_marks(text, found).encode() if found else data


def merged_places(found: list[FoundText]) -> list[FoundText]:
    """Return the places in order. Places that overlap become one, under the id of the first."""
    found.sort(key=lambda place: (place.start, -place.end))
    merged: list[FoundText] = []
    for place in found:
        if merged and place.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = FoundText(last.start, max(last.end, place.end), last.tombstone_id)
        else:
            merged.append(place)
    return merged


def _changed_part(before: str, after: str) -> tuple[int, int, int, int]:
    """Return the begin and end of the changed part of `after`, and then those of `before`.

    The lines that both texts share at their beginning and at their end are left out.
    """
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    first = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        first += 1
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    begin = sum(map(len, new[:first]))
    tail = sum(map(len, new[len(new) - last :]))
    return begin, len(after) - tail, begin, len(before) - tail


def _words_before(text: str, place: int, count: int) -> int:
    """Return the begin of the `count` words before a place."""
    return _reach(text, place, count, backwards=True)


def _words_after(text: str, place: int, count: int) -> int:
    """Return the end of the `count` words after a place."""
    return _reach(text, place, count, backwards=False)


def _reach(text: str, place: int, count: int, *, backwards: bool) -> int:
    """Return the far edge of `count` words on one side of a place.

    It looks at twice as much until there are so many words. The outermost one
    may be cut, so one more is wanted.
    """
    if count == 0:
        return place
    size = 16 * count
    while True:
        edge = max(0, place - size) if backwards else min(len(text), place + size)
        if edge in (0, len(text)):
            return edge
        part = text[edge:place] if backwards else text[place:edge]
        words = words_of(part)
        if len(words.texts) > count + 1:
            return edge + words.starts[-count - 1] if backwards else place + words.ends[count]
        size *= 2


def lines_of(text: str, place: FoundText) -> tuple[str, str]:
    """Return the whole lines that a place touches, with the id of its tombstone."""
    start = text.rfind("\n", 0, place.start) + 1
    end = text.find("\n", place.end)
    return place.tombstone_id, text[start : end if end >= 0 else len(text)]


def readings(data: bytes) -> Iterable[str]:
    """Yield the texts that bytes may be meant as which are no UTF-8."""
    yield data.decode("utf-8", "ignore")
    yield data.decode("latin-1")
    if b"\0" in data or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        yield data.decode("utf-16-le", "ignore")
        yield data.decode("utf-16-be", "ignore")
        yield data[1:].decode("utf-16-le", "ignore")  # text that begins at an odd byte
        yield data[1:].decode("utf-16-be", "ignore")
