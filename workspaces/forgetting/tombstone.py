"""A tombstone: a text that must not come back, known by a keyed hash of its words.

It holds the number of words and HMAC-SHA256 of the words joined by one blank. The text itself is not in it.
A text of more than `WINDOW_WORDS_MAX` words is kept as its overlapping windows of that many words. So a
quotation of that length out of it is found too.

A writer checks every window of a text for each number of words that a tombstone of the account has. So there
are at most `WORD_COUNTS_MAX` different numbers.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass

from workspaces.errors import OverLimit, Refused
from workspaces.forgetting.words import words_of
from workspaces.storage.records import JsonObject

WINDOW_WORDS_MAX = 32
"""Words of a window. So many words in a row are nobody else's sentence."""

WORD_COUNTS_MAX = 16
"""Different numbers of words in an account. Each costs a writer one hash per word that it writes."""

TEXT_CHARACTERS_MAX = 4_000

WORDS_MIN = 3
CHARACTERS_MIN = 12
"""A text below both is an ordinary word or two: it would be replaced in places that nobody thought of."""

DIGEST_BYTES = 10
"""Kept of each hash. 80 bits do not collide by accident, and the longest text stays in one entry."""

KEY_BYTES = 32

_ID = re.compile("f_[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class TextTombstone:
    id: str
    """`f_` and 8 hex digits of the hash of all words. The same text has the same id on every machine."""
    words: int
    """Words of each window."""
    digests: tuple[bytes, ...]
    """One for each window. A text of up to `WINDOW_WORDS_MAX` words has one window."""

    @property
    def mark(self) -> str:
        """The text that takes the place of the forgotten one."""
        return f"[forgotten {self.id}]"

    def as_json(self) -> JsonObject:
        return {
            "id": self.id,
            "words": self.words,
            "digests": b64encode(b"".join(self.digests)).decode(),
        }


def tombstone_of(text: str, key: bytes, *, allow_short: bool = False) -> TextTombstone:
    """Make the tombstone of a text.

    Raises: OverLimit for a text that is too long. Refused for one without a word, or, unless `allow_short`,
    with fewer than 3 words and fewer than 12 characters.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        raise OverLimit(
            "forgetting.text", maximum=TEXT_CHARACTERS_MAX, actual=len(text), unit="characters"
        )
    words = words_of(text).texts
    if not words:
        raise Refused("text", None, "the text has no letter and no digit: there is nothing to find")
    if not allow_short and is_short(words):
        raise Refused(
            "text",
            None,
            f"the text has {len(words)} {'word' if len(words) == 1 else 'words'} and "
            f"{sum(map(len, words))} letters and digits, and at least "
            f"{WORDS_MIN} words or {CHARACTERS_MIN} letters and digits are asked for",
            remedy="give more of the text around it, or allow a short text (`--forbid-short`)",
        )
    count = min(len(words), WINDOW_WORDS_MAX)
    windows = (words[n : n + count] for n in range(len(words) - count + 1))
    digests = dict.fromkeys(digest(" ".join(window).encode(), key) for window in windows)
    whole = hmac.digest(key, b"id\0" + " ".join(words).encode(), "sha256")
    return TextTombstone(f"f_{whole[:4].hex()}", count, tuple(digests))


def tombstone_from_json(value: JsonObject) -> TextTombstone:
    """Read what `as_json` gives.

    Raises: ValueError, KeyError or TypeError for anything else.
    """
    tombstone_id, words = value["id"], value["words"]
    if not isinstance(tombstone_id, str) or not _ID.fullmatch(tombstone_id):
        raise ValueError("the id of a tombstone is f_ and 8 hex digits")
    if type(words) is not int or not 1 <= words <= WINDOW_WORDS_MAX:
        raise ValueError(f"a tombstone has 1 to {WINDOW_WORDS_MAX} words")
    data = b64decode(value["digests"], validate=True)
    if not data or len(data) % DIGEST_BYTES or len(data) > TEXT_CHARACTERS_MAX * DIGEST_BYTES:
        raise ValueError(f"the digests of a tombstone are {DIGEST_BYTES} bytes each")
    digests = (data[n : n + DIGEST_BYTES] for n in range(0, len(data), DIGEST_BYTES))
    return TextTombstone(tombstone_id, words, tuple(digests))


def is_short(words: list[str]) -> bool:
    """Return True for a text that is too short to be forgotten without being told to."""
    return len(words) < WORDS_MIN and sum(map(len, words)) < CHARACTERS_MIN


def digest(window: bytes, key: bytes) -> bytes:
    """Return the hash of the words of a window, joined by one blank."""
    return hmac.digest(key, window, "sha256")[:DIGEST_BYTES]


def check_word_counts(tombstones: Iterable[TextTombstone]) -> None:
    """Raise OverLimit if the tombstones of an account have too many different numbers of words."""
    counts = {tombstone.words for tombstone in tombstones}
    if len(counts) > WORD_COUNTS_MAX:
        raise OverLimit(
            "forgetting.word_counts",
            maximum=WORD_COUNTS_MAX,
            actual=len(counts),
            unit="different numbers of words",
        )
