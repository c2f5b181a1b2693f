"""Turn a text into its terms: the words that an index stores and a query looks for.

Words are folded (case, accents, widths), split where their script splits words, and stemmed. Scripts
without spaces have no word boundaries. There each pair of neighbouring characters is a term, and so is each
character, so that a query of one character finds it. Indic vowel signs are no letters in Unicode, but they
belong to the word.

Stop words stay in the index, but are left out of a query that has other words: "will" is a name too.
Leaving them out gains 3 points of recall@10 on a public benchmark.

An *exact* term has a form that prose does not have: an id, a path, an address, a version. It is stored
whole, in addition to the words in it, with a prefix that no word can begin with.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from itertools import filterfalse

from workspaces.forgetting.words import UNSPACED
from workspaces.search.date import date_words, may_have_dates
from workspaces.search.stem import LETTERS_MAX, WORDS_KEPT, stem

EXACT = "="
"""Prefix of an exact term: an id, path or address."""

EXACT_CHARACTERS_MAX = 200

_STOP_WORDS = """
a about above after again against all also am an and any are as at be because been before being
below between both but by can cannot could did do does doing down during each few for from further
get got had has have having he her here hers herself him himself his how i if in into is it its
itself just me might more most must my myself no nor not now of off on once only or other our ours
ourselves out over own same shall she should so some such than that the their theirs them themselves
then there these they this those through to too under until up us very was we were what when where
which while who whom whose why will with would you your yours yourself yourselves
ain aren couldn didn doesn don hadn hasn haven isn mustn needn shan shouldn wasn weren won wouldn
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

_INDIC = "\u0900-\u0963\u0966-\u0dff"
_WORD = re.compile(
    rf"[{UNSPACED}]+|(?:(?![{UNSPACED}])(?:[^\W_]|[{_INDIC}\u200c\u200d]))+"
    rf"(?:['’](?:s|d|ll|re|ve|m|t)\b)?"
)
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")
_LETTERS = {code: " " for code in range(128) if not chr(code).isalnum()}
"""For ASCII, spaces for all that is in no word. This is several times as fast as a pattern."""
_PLAIN_ENDING = re.compile(r"'(?<=[a-z0-9]')(?:s|d|ll|re|ve|m|t)\b")
_MARKS = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670]")
_APOSTROPHE = re.compile("['’]")

_CHUNK = re.compile(r"[^\s\"“”„«»'‘’`<>()\[\]{},;!|*]+")
_SPACED = dict.fromkeys(map(ord, "\"'`<>()[]{},;!|*"), " ")
"""For ASCII, spaces for what ends a chunk."""
_EDGE = ".:?…-–—=_/\\#~+"
_INNER = re.compile(r"\w[./:@_\\#-]+\w|[^\W\d_][0-9]|[0-9][^\W\d_]|(?!(?:19|20)[0-9]{2}\b)[0-9]{4}")
_PROSE = re.compile(r"[0-9]+(?:st|nd|rd|th|am|pm|s|h|m)|[0-9]{4}([-/.])[0-9]{1,2}\1[0-9]{1,2}")
"""Numbers in prose, such as 3rd or 5pm, and days, which have their own terms (`date`)."""
_JOINED = re.compile(r"[^\W\d_]+(?:[-.:][^\W\d_]+)+")
"""Joined words of prose, such as well-known or e.g: no exact names, except for …"""
_FILE_NAME = re.compile(r"[\w-]{2,}\.[a-z0-9]{1,5}")
"""… names that look like file names."""
_LINE_NUMBER = re.compile(r"(?::[0-9]+){1,2}$")


def fold(text: str) -> str:
    """Fold a text, so that letters that a reader takes for the same become equal."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFKC", _MARKS.sub("", decomposed))


def words(folded: str) -> list[str]:
    """Return the words of a folded text as written, without the ending after an apostrophe. For scripts
    without spaces, return characters and pairs of characters."""
    if folded.isascii():
        return _PLAIN_ENDING.sub("", folded).translate(_LETTERS).split()
    found: list[str] = []
    for match in _WORD.finditer(folded):
        word = match[0]
        if _IS_UNSPACED.match(word):
            found += word
            found += (word[n : n + 2] for n in range(len(word) - 1))
        else:
            found.append(_APOSTROPHE.split(word, maxsplit=1)[0])
    return found


def terms(text: str) -> dict[str, int]:
    """Return every term of a text to index, each with the number of times that it occurs."""
    folded = fold(text)
    found = Counter(words(folded))
    counts: dict[str, int] = {}
    get = counts.get
    for word, count in found.items():
        term = _term(word)
        counts[term] = get(term, 0) + count
    for term in map(stem, date_words(folded)) if may_have_dates(folded, found) else ():
        counts[term] = get(term, 0) + 1
    for name in exact_names(folded):
        counts[EXACT + name] = 1
    return counts


@lru_cache(WORDS_KEPT)
def _term(word: str) -> str:
    return word if word in STOP_WORDS else stem(word)


def query_terms(query: str) -> dict[str, str]:
    """Return the terms of a query, each with the query's word that it stands for. Exact names come first,
    then words in their order."""
    folded = fold(query)
    query_words = words(folded)
    paired = {character for word in query_words if len(word) == 2 for character in word}
    content_words = [
        word
        for word in query_words
        if word not in STOP_WORDS and not (word in paired and _IS_UNSPACED.match(word))
    ]
    by_term = {EXACT + name: name for name in exact_names(folded)}
    for word in (*content_words, *date_words(folded)):
        by_term.setdefault(stem(word), word)
    return by_term or {word: word for word in query_words}  # only stop words: look for them


def exact_names(folded: str) -> list[str]:
    """Return the ids, paths, addresses, versions and long numbers in a folded text. For a path, also return
    it without a trailing line number, and its last part."""
    chunks = folded.translate(_SPACED).split() if folded.isascii() else _CHUNK.findall(folded)
    if len(_nameless) > WORDS_KEPT:
        _nameless.clear()
    names: set[str] = set()
    for chunk in set(filterfalse(_nameless.__contains__, chunks)):
        if len(chunk) > LETTERS_MAX:  # one that hardly comes again
            names.update(_names_in(chunk))
        elif found := _known_names_in(chunk):
            names.update(found)
        else:
            _nameless.add(chunk)
    return sorted(names)


_nameless: set[str] = set()
"""Chunks without a name, as most are. Leaving them out is faster than looking at each again."""


def _names_in(chunk: str) -> tuple[str, ...]:
    name = chunk.strip(_EDGE)
    if not 2 <= len(name) <= EXACT_CHARACTERS_MAX or not _is_exact_name(name):
        return ()
    shorter = _LINE_NUMBER.sub("", name)
    last = shorter.rpartition("/")[2]
    return (name, *(part for part in (shorter, last) if _is_exact_name(part)))


_known_names_in = lru_cache(WORDS_KEPT)(_names_in)


def _is_exact_name(name: str) -> bool:
    if not _INNER.search(name) or _PROSE.fullmatch(name):
        return False
    return _JOINED.fullmatch(name) is None or _FILE_NAME.fullmatch(name) is not None
