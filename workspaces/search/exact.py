"""Find the units that a query names exactly: an id, path or name that only one unit holds. They rank first.

A user who asks for `mem_3209` or for "Project Nightingale" wants that line, whatever other words the query
has and however well they match elsewhere. Three things count as a name: an exact term (an id, a path or an
address), a run of words that the query writes with capitals, and the whole query. A name that several units
hold names none of them; then the ranking decides.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from workspaces.search.table import NOWHERE, Posting
from workspaces.search.words import EXACT, STOP_WORDS, fold, query_terms, words

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")

READ_MAX = 64
"""Units to read when looking for one name. A name that so many units may hold is not rare."""


def named_units(
    query: str,
    query_words: Mapping[str, str],
    postings: Mapping[str, Posting],
    text_of: Callable[[int], str],
) -> set[int]:
    """Return the units that the query names."""
    named: set[int] = set()
    for term in query_words:
        if term.startswith(EXACT):
            holders = postings.get(term, NOWHERE).units
            named.update(holders if len(holders) == 1 else ())
    for phrase in _phrases(query):
        holders = _holders(phrase, postings, text_of)
        named.update(holders if len(holders) == 1 else ())
    return named


def _phrases(query: str) -> list[str]:
    """Return the whole query, and every run of its words that is written with capitals."""
    runs: list[list[str]] = [[]]
    for number, word in enumerate(_WORD.findall(query)):
        is_name = word[0].isupper() and word.casefold() not in STOP_WORDS
        if is_name and (number > 0 or not word.istitle()):
            runs[-1].append(word)
        elif runs[-1]:
            runs.append([])
    return [query.strip(), *(" ".join(run) for run in runs if run)]


def _holders(
    phrase: str, postings: Mapping[str, Posting], text_of: Callable[[int], str]
) -> list[int]:
    """Return up to two units that hold the phrase, word for word. Return none after READ_MAX reads."""
    lists = [postings.get(term, NOWHERE).units for term in query_terms(phrase)]
    if not lists:
        return []
    lists.sort(key=len)
    rarest, *others = lists
    common = (unit for unit in rarest if all(_has(units, unit) for units in others))
    wanted = _spaced(phrase)
    holders: list[int] = []
    for read, unit in enumerate(common):
        if len(holders) > 1 or read == READ_MAX:
            return holders if len(holders) > 1 else []
        if wanted in _spaced(text_of(unit)):
            holders.append(unit)
    return holders


def _has(units: Sequence[int], unit: int) -> bool:
    at = bisect_left(units, unit)
    return at < len(units) and units[at] == unit


def _spaced(text: str) -> str:
    return f" {' '.join(words(fold(text)))} "
