"""Meaning: how near lines are to a question by an embedder's vectors. Optional, and never required.

An embedder is anything that turns texts into vectors of one length: a callable of the caller's own, an
endpoint. The vector of a text is kept under the digest of the text, so that a line which moves, or stands
in two files, is asked for once; vectors of an embedder with another name are thrown away.

Looking for the nearest of a hundred thousand vectors needs no library: each is also kept as the signs of its
numbers, one bit each, and one `xor` and a count of bits tell how many signs two vectors have in common. The
`NEAREST` by signs are compared in full.

What is found by words and by meaning is fused convexly, a share of one and the rest of the other, both on
scales that do not depend on what else was found.
"""

from __future__ import annotations

import hashlib
import sqlite3
from array import array
from collections.abc import Callable, Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from math import sqrt

from workspaces.errors import Unavailable

Embedder = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""One vector a text, all of one length. Its `name`, if it has one, says which vectors are comparable."""

SHARE = 0.4
"""Of meaning in the score."""

NEAREST = 100
BATCH_TEXTS = 64
"""What endpoints take at once."""

BATCHES_A_QUESTION = 4
"""What is new is embedded before a question is answered, but no more than this: the rest is found by its
words until later questions, or `catch_up`, have got to it."""

_TABLE = (
    "CREATE TABLE IF NOT EXISTS recall_vector"
    " (embedder TEXT, digest BLOB, vector BLOB NOT NULL, PRIMARY KEY (embedder, digest)) WITHOUT ROWID"
)


class EmbeddingIndex:
    """Of the units of one index. Not for several threads at once: the index takes care of that."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._name = str(getattr(embedder, "name", None) or type(embedder).__qualname__)
        self._vectors: dict[bytes, array[float]] = {}
        self._signs: dict[bytes, int] = {}
        self._units: dict[int, bytes] = {}
        self._generation: int | None = None
        self._is_whole = False

    def catch_up(
        self, database: sqlite3.Connection, generation: int, *, batches: int | None
    ) -> None:
        """Have a vector for every unit's text, or for so many batches of those that lack one. Unavailable
        when the embedder fails; what it had answered before is kept."""
        if self._is_whole and generation == self._generation:
            return
        missing = self._look(database, generation)
        todo = missing if batches is None else missing[: batches * BATCH_TEXTS]
        self._is_whole = False
        waiting = iter(todo)
        while batch := list(islice(waiting, BATCH_TEXTS)):
            vectors = self._embedded([text for _, text in batch])
            for (digest, _), vector in zip(batch, vectors, strict=True):
                row = (self._name, digest, vector.tobytes())
                database.execute("INSERT OR REPLACE INTO recall_vector VALUES (?, ?, ?)", row)
                self._keep(digest, vector)
        self._is_whole = len(todo) == len(missing)

    def asked(self, query: str) -> QueryVector:
        """Unavailable when the embedder fails."""
        (vector,) = self._embedded([query])
        return QueryVector(vector, self._units, self._vectors, self._signs)

    def _look(self, database: sqlite3.Connection, generation: int) -> list[tuple[bytes, str]]:
        """The texts that have no vector yet, neither here nor in the file: another process may have asked."""
        rows = database.execute("SELECT id, text FROM recall_unit").fetchall()
        self._units = {unit: _digest(text) for unit, text in rows}
        self._generation = generation
        database.execute(_TABLE)
        database.execute("DELETE FROM recall_vector WHERE embedder <> ?", (self._name,))
        for digest, data in database.execute("SELECT digest, vector FROM recall_vector"):
            if digest not in self._vectors:
                vector = array("f")
                vector.frombytes(data)
                self._keep(digest, vector)
        texts = {self._units[unit]: text for unit, text in rows}
        return [(digest, text) for digest, text in texts.items() if digest not in self._vectors]

    def _keep(self, digest: bytes, vector: array[float]) -> None:
        self._vectors[digest] = vector
        self._signs[digest] = _signs(vector)

    def _embedded(self, texts: list[str]) -> list[array[float]]:
        try:
            answered = [array("f", vector) for vector in self._embedder(texts)]
        except Exception as error:  # the edge to somebody else's code
            raise Unavailable(f"the embedder {self._name}", str(error)) from error
        lengths = {len(vector) for vector in (*answered, *islice(self._vectors.values(), 1))}
        if len(answered) != len(texts) or len(lengths) != 1:
            raise Unavailable(
                f"the embedder {self._name}",
                f"{len(answered)} vectors of lengths {sorted(lengths)} for {len(texts)} texts",
            )
        return [_normal(vector) for vector in answered]


class QueryVector:
    """One question's vector, among those of the units."""

    def __init__(
        self,
        vector: array[float],
        units: Mapping[int, bytes],
        vectors: Mapping[bytes, array[float]],
        signs: Mapping[bytes, int],
    ) -> None:
        self._vector = vector
        self._units = units
        self._vectors = vectors
        self._signs = signs

    def nearest(self, keep: Callable[[int], bool] | None) -> list[int]:
        """Of the units that `keep` keeps, those that could be nearest."""
        mine = _signs(self._vector)
        known = (
            ((mine ^ signs).bit_count(), unit)
            for unit, digest in self._units.items()
            if (signs := self._signs.get(digest)) is not None and (keep is None or keep(unit))
        )
        return [unit for _, unit in nsmallest(NEAREST, known)]

    def similarity(self, unit: int) -> float:
        """1 is the same, 0 has nothing to do with it, or was not embedded yet."""
        vector = self._vectors.get(self._units.get(unit, b""))
        return 0.0 if vector is None else max(0.0, _cosine(self._vector, vector))


def fused(by_words: float, similarity: float) -> float:
    return (1 - SHARE) * by_words + SHARE * similarity


def _normal(vector: array[float]) -> array[float]:
    length = sqrt(sum(number * number for number in vector)) or 1.0
    return array("f", (number / length for number in vector))


def _cosine(one: array[float], other: array[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _signs(vector: array[float]) -> int:
    return int("".join("1" if number > 0 else "0" for number in vector) or "0", 2)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()[:16]
