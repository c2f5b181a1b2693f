"""Finds texts that are nearly the same word for word: exactly those that comparing with each text would find.

Two texts are similar if their sets of words have more than four fifths of their union in common. Then each
set has more than four fifths of its words in the other. So with all words in one order, the first common word
is among the first fifth of either text. Only those few words of a text are indexed and looked up, and the
candidates are compared in full. The answer is exact in any order; rare words first make it quick. Word
frequencies change, but the order must not: it is computed once and kept until there are twice as many texts.
Then everything is indexed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from workspaces.search.words import fold, words

K = TypeVar("K", bound=Hashable)

_SHARED, _OF = 4, 5
"""More than 4 of 5 words in common. These are whole numbers, so that exactly 0.8 is never above the limit."""

FIRST_ORDER_TEXTS = 32
"""The number of texts from which the order matters; among fewer any order is quick."""


@dataclass(frozen=True, slots=True)
class Match(Generic[K]):
    key: K
    similarity: float


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, whatever their case, accents, order and punctuation."""
    return frozenset(words(fold(text)))


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard similarity: the common words divided by all words of both; 0 if there are none."""
    union = len(one | other)
    return len(one & other) / union if union else 0.0


def is_similar(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return True if more than four fifths of all words of both are common."""
    common = len(one & other)
    return _OF * common > _SHARED * (len(one) + len(other) - common)


class Similar(Generic[K]):
    """An in-memory index of texts under keys. Only one thread at a time may use it."""

    def __init__(self) -> None:
        self._sets: dict[K, tuple[int, frozenset[str]]] = {}
        """The number of the `put` and the words of each text."""
        self._puts = 0
        self._counts: Counter[str] = Counter()
        """The number of texts that contained each word when the order was computed."""
        self._ordered_at = FIRST_ORDER_TEXTS
        self._keys: dict[str, set[K]] = {}
        """For each word, the texts that it is among the first words of."""

    def put(self, key: K, text: str) -> None:
        """Add a text, or replace the one under this key."""
        self.drop(key)
        new_words = word_set(text)
        self._puts += 1
        self._sets[key] = (self._puts, new_words)
        if len(self._sets) > 2 * self._ordered_at:
            self._order_anew()
        else:
            self._enter(key, new_words)

    def drop(self, key: K) -> None:
        """Remove the text under this key, if there is one."""
        _, removed = self._sets.pop(key, (0, frozenset[str]()))
        for word in self._first(removed):
            keys = self._keys[word]
            keys.discard(key)
            if not keys:
                del self._keys[word]

    def find(self, text: str) -> list[Match[K]]:
        """Return every similar text, the most similar first; equal ones in the order of their `put`."""
        wanted = word_set(text)
        candidates: set[K] = set()
        for word in self._first(wanted):
            candidates |= self._keys.get(word, set())
        matches: list[tuple[float, int, K]] = []
        for key in candidates:
            number, other = self._sets[key]
            if is_similar(wanted, other):
                matches.append((-similarity(wanted, other), number, key))
        return [
            Match(key, -negative) for negative, _, key in sorted(matches, key=lambda one: one[:2])
        ]

    def _enter(self, key: K, new_words: frozenset[str]) -> None:
        for word in self._first(new_words):
            self._keys.setdefault(word, set()).add(key)

    def _first(self, all_words: frozenset[str]) -> list[str]:
        """Return the rarest words. Every similar set contains at least one of them."""
        counts = self._counts
        ordered = sorted(all_words, key=lambda word: (counts[word], word))
        return ordered[: len(all_words) - len(all_words) * _SHARED // _OF]

    def _order_anew(self) -> None:
        self._ordered_at = len(self._sets)
        self._counts = Counter(chain.from_iterable(found for _, found in self._sets.values()))
        self._keys = {}
        for key, (_, found) in self._sets.items():
            self._enter(key, found)
