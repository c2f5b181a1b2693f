"""Find the words of a query in a text, to highlight them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from workspaces.search.words import query_terms, terms

_PIECE = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def spans(text: str, query: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each match, ascending and without overlap. A word matches in any of its
    forms. In a script without spaces, the longest runs of query terms match."""
    wanted = query_terms(query).keys()
    for piece in _PIECE.finditer(text):
        word = piece[0]
        matches = wanted & set(terms(word))
        if not matches:
            continue
        if word.isascii() or len(matches) == len(set(terms(word))):
            yield piece.span()
            continue
        runs = sorted((name for name in matches if name in word), key=len, reverse=True)
        if not runs:
            yield piece.span()
            continue
        pattern = re.compile("|".join(map(re.escape, runs)))
        for run in pattern.finditer(word):
            yield piece.start() + run.start(), piece.start() + run.end()
