"""Where in a text the words of a query stand, for showing them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from workspaces.search.words import query_terms, terms

_PIECE = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def spans(text: str, query: str) -> Iterator[tuple[int, int]]:
    """From, to; ascending, none within another. A word counts in any of its forms; in a text without
    spaces the longest runs of what was asked for."""
    asked = query_terms(query).keys()
    for piece in _PIECE.finditer(text):
        word = piece[0]
        found = asked & set(terms(word))
        if not found:
            continue
        if word.isascii() or len(found) == len(set(terms(word))):
            yield piece.span()
            continue
        runs = sorted((name for name in found if name in word), key=len, reverse=True)
        if not runs:
            yield piece.span()
            continue
        pattern = re.compile("|".join(map(re.escape, runs)))
        for run in pattern.finditer(word):
            yield piece.start() + run.start(), piece.start() + run.end()
