"""Which texts say the same as another, nearly word for word: exactly those that comparing with each
would find.

Two texts are similar when their sets of words have more than four fifths of their union in common. If
so, each set has more than four fifths of its words in the other. So with all words in one order, the
first word that both have stands among the first fifth of either: only those few words of a text are put
into the index and asked for, and what they bring is compared in full. The answer is exact in any order;
rare words first makes it quick. How rare a word is changes, the order must not: it is taken once and
kept until there are twice as many texts, when everything is put in again.
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
"""More than 4 of 5 words in common: whole numbers, so that exactly 0.8 is never over it."""

FIRST_ORDER_TEXTS = 32
"""Among fewer any order is quick."""


@dataclass(frozen=True, slots=True)
class Match(Generic[K]):
    key: K
    similarity: float


def word_set(text: str) -> frozenset[str]:
    """The words of a text, whatever their case, accents, order and punctuation."""
    return frozenset(words(fold(text)))


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard's: the share of the words of both that are common to both; 0 where there are none."""
    union = len(one | other)
    return len(one & other) / union if union else 0.0


class Similar(Generic[K]):
    """Texts under keys, in memory. One thread at a time."""

    def __init__(self) -> None:
        self._sets: dict[K, tuple[int, frozenset[str]]] = {}
        """And the number of the `put`."""
        self._puts = 0
        self._counts: Counter[str] = Counter()
        """In how many texts each word was when the order was taken."""
        self._ordered_at = FIRST_ORDER_TEXTS
        self._keys: dict[str, set[K]] = {}
        """Of each word, the texts that it is among the first of."""

    def put(self, key: K, text: str) -> None:
        """Add a text, or replace the one under this key."""
        self.drop(key)
        found = word_set(text)
        self._puts += 1
        self._sets[key] = (self._puts, found)
        if len(self._sets) > 2 * self._ordered_at:
            self._order_anew()
        else:
            self._enter(key, found)

    def drop(self, key: K) -> None:
        """Of a key that is not there, nothing."""
        _, found = self._sets.pop(key, (0, frozenset[str]()))
        for word in self._first(found):
            keys = self._keys[word]
            keys.discard(key)
            if not keys:
                del self._keys[word]

    def find(self, text: str) -> list[Match[K]]:
        """Every text that is similar, the most similar first; of equals, as they were put."""
        mine = word_set(text)
        asked: set[K] = set()
        for word in self._first(mine):
            asked |= self._keys.get(word, set())
        found: list[tuple[float, int, K]] = []
        for key in asked:
            number, other = self._sets[key]
            common = len(mine & other)
            if _OF * common > _SHARED * (len(mine) + len(other) - common):
                found.append((-similarity(mine, other), number, key))
        return [
            Match(key, -negative) for negative, _, key in sorted(found, key=lambda one: one[:2])
        ]

    def _enter(self, key: K, found: frozenset[str]) -> None:
        for word in self._first(found):
            self._keys.setdefault(word, set()).add(key)

    def _first(self, found: frozenset[str]) -> list[str]:
        """As many as a similar set cannot lack all of."""
        counts = self._counts
        ordered = sorted(found, key=lambda word: (counts[word], word))
        return ordered[: len(found) - len(found) * _SHARED // _OF]

    def _order_anew(self) -> None:
        self._ordered_at = len(self._sets)
        self._counts = Counter(chain.from_iterable(found for _, found in self._sets.values()))
        self._keys = {}
        for key, (_, found) in self._sets.items():
            self._enter(key, found)
