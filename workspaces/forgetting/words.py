"""The words of a text as a forgetting compares them, each with its place in the text.

A text is folded (NFKC, casefold), characters without a shape are dropped, and what remains is split into
runs of letters and digits. Scripts that write no spaces between words have no runs: there each character is
a word. So two texts have the same words if they differ in case, blanks, line ends, punctuation or Markdown
marks.

Folding changes the length of a text. So it is folded in the smallest pieces that fold alone: a character and
the marks that follow it. Every word of a piece has the piece's place in the original text.

Letters are those of the Unicode tables of this Python. A character that is newer than them is no letter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from workspaces.invisible_characters import SHAPELESS

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\uac00-\ud7af"  # Hangul: written with spaces, but with the grammar glued to the words
)
"""Scripts without word boundaries, for a class of a regular expression."""

_PLAIN_WORD = re.compile("[0-9A-Za-z]+")
_CHUNK = re.compile("[0-9A-Za-z\x80-\U0010ffff]+")
"""Text between ASCII separators. Most chunks are one word of ASCII."""
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")
_JAMO = re.compile("[\u1160-\u11ff\u3131-\u318e\ud7b0-\ud7fb\uffa0-\uffdc]")
"""Later parts of a Hangul syllable. They fold together with what stands before them."""
_SOUND_MARKS = "\uff9e\uff9f"
"""Letters by category, but they fold into marks of the kana before them."""
_CHUNK_CHARACTERS_KEPT = 40
_CHUNKS_KEPT = 10_000


class PlacedWords(NamedTuple):
    """The words of a text in their order. Word `n` stands at `starts[n]:ends[n]` of the text."""

    texts: list[str]
    starts: list[int]
    ends: list[int]


class _ChunkWord(NamedTuple):
    text: str
    start: int
    end: int


def words_of(text: str) -> PlacedWords:
    """Return the words of a text with their places in it. This takes time linear in its length."""
    found = PlacedWords([], [], [])
    if text.isascii():
        # one pass over the text in small letters finds both words and places
        for match in _PLAIN_WORD.finditer(text.lower()):
            found.texts.append(match[0])
            found.starts.append(match.start())
            found.ends.append(match.end())
        return found
    for match in _CHUNK.finditer(text):
        chunk, offset = match[0], match.start()
        if chunk.isascii():
            found.texts.append(chunk.lower())
            found.starts.append(offset)
            found.ends.append(match.end())
            continue
        kept = len(chunk) <= _CHUNK_CHARACTERS_KEPT
        for word, start, end in _known_words(chunk) if kept else _chunk_words(chunk):
            found.texts.append(word)
            found.starts.append(offset + start)
            found.ends.append(offset + end)
    return found


def folded(text: str) -> str:
    """Return the words of a text joined by one blank: the form whose hash a tombstone keeps."""
    return " ".join(words_of(text).texts)


def _chunk_words(chunk: str) -> tuple[_ChunkWord, ...]:
    """Return the words of a chunk, piece by piece."""
    found: list[_ChunkWord] = []
    letters: list[str] = []
    begin = end = 0
    for start, stop in _pieces(chunk):
        piece = _fold(chunk[start:stop])
        for character in piece:
            if _IS_UNSPACED.match(character):
                _close(found, letters, begin, end)
                letters, begin, end = [character], start, stop
            elif character.isalnum():
                if letters and _IS_UNSPACED.match(letters[0]):
                    _close(found, letters, begin, end)
                    letters = []
                begin = begin if letters else start
                letters.append(character)
                end = stop
            elif letters and unicodedata.category(character).startswith("M"):
                letters.append(character)  # a mark that has no composed form with its letter
                end = stop
            else:
                _close(found, letters, begin, end)
                letters = []
    _close(found, letters, begin, end)
    return tuple(found)


_known_words = lru_cache(_CHUNKS_KEPT)(_chunk_words)


def _close(found: list[_ChunkWord], letters: list[str], begin: int, end: int) -> None:
    if letters:
        found.append(_ChunkWord("".join(letters), begin, end))


def _pieces(chunk: str) -> Iterator[tuple[int, int]]:
    """Yield the places of a chunk that fold alone: a character with the marks and shapeless ones after it."""
    start = 0
    for place, character in enumerate(chunk):
        if place > start and not _continues(character):
            yield start, place
            start = place
    yield start, len(chunk)


@lru_cache(_CHUNKS_KEPT)
def _continues(character: str) -> bool:
    return (
        unicodedata.category(character)[0] == "M"
        or character in _SOUND_MARKS
        or _JAMO.match(character) is not None
        or _is_ignorable(character)
    )


@lru_cache(_CHUNKS_KEPT)
def _is_ignorable(character: str) -> bool:
    return (
        character in SHAPELESS
        or unicodedata.category(character) == "Cf"
        or character == "\ufe0f"  # SHAPELESS leaves it out: it turns a sign into an emoji
    )


def _fold(piece: str) -> str:
    """Fold a piece. Folding twice reaches the few characters whose folded form can be folded again."""
    if len(piece) == 1:
        return _fold_character(piece)
    seen = "".join(character for character in piece if not _is_ignorable(character))
    return _folded_twice(seen)


@lru_cache(_CHUNKS_KEPT)
def _fold_character(character: str) -> str:
    return "" if _is_ignorable(character) else _folded_twice(character)


def _folded_twice(text: str) -> str:
    for _ in range(2):
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(character for character in text if not _is_ignorable(character))
