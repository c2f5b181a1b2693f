"""What a query names exactly: an id, a path or a name that stands in one unit alone. It ranks first.

Whoever asks for `mem_3209` or for "Project Nightingale" wants that line, whatever other words the query
has and however well they fit elsewhere. Three things count as a name: what is spelled like an id, a path
or an address (an exact term), a run of words that the query writes with capitals, and the whole query.
One that stands in several units names none of them; then the ranking decides.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from workspaces.search.table import NOWHERE, Posting
from workspaces.search.words import EXACT, STOP_WORDS, fold, query_terms, words

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")

READ_MAX = 64
"""Units whose text is looked at to find one name; a name that so many may hold is no rare one."""


def named(
    query: str,
    asked: Mapping[str, str],
    postings: Mapping[str, Posting],
    text_of: Callable[[int], str],
) -> set[int]:
    """The units that the query names."""
    found: set[int] = set()
    for term in asked:
        if term.startswith(EXACT):
            holders = postings.get(term, NOWHERE).units
            found.update(holders if len(holders) == 1 else ())
    for phrase in _phrases(query):
        holders = _holders(phrase, postings, text_of)
        found.update(holders if len(holders) == 1 else ())
    return found


def _phrases(query: str) -> list[str]:
    """The whole query, and every run of its words that is written with capitals."""
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
    """Up to two units that hold the phrase, word for word."""
    lists = [postings.get(term, NOWHERE).units for term in query_terms(phrase)]
    if not lists:
        return []
    lists.sort(key=len)
    rarest, *others = lists
    common = (unit for unit in rarest if all(_has(units, unit) for units in others))
    wanted = _spaced(phrase)
    found: list[int] = []
    for read, unit in enumerate(common):
        if len(found) > 1 or read == READ_MAX:
            return found if len(found) > 1 else []
        if wanted in _spaced(text_of(unit)):
            found.append(unit)
    return found


def _has(units: Sequence[int], unit: int) -> bool:
    at = bisect_left(units, unit)
    return at < len(units) and units[at] == unit


def _spaced(text: str) -> str:
    return f" {' '.join(words(fold(text)))} "
