"""Compare lines with a query by an embedder's vectors. Optional; recall also works without an embedder.

An embedder is anything that turns texts into vectors of one length: a callable of the caller, or an
endpoint. A vector is stored under the digest of its text. So a line that moves, or that two files contain,
is embedded once. Vectors of an embedder with another name are deleted.

Finding the nearest of a hundred thousand vectors needs no library. Each vector is also kept as the signs of
its numbers, one bit each. One `xor` and a bit count give the number of signs in which two vectors differ.
The `NEAREST` vectors by signs are then compared in full.

The score by words and the similarity are combined convexly: a share of one and the rest of the other. Both
scales are independent of the other results.
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
"""Returns one vector for each text, all of one length. Vectors of embedders with the same `name` attribute
are comparable; without one the type's name counts."""

SHARE = 0.4
"""Share of the similarity in the score."""

NEAREST = 100
BATCH_TEXTS = 64
"""Texts in one call: as many as endpoints accept at once."""

BATCHES_A_QUESTION = 4
"""Most batches of new texts to embed before a query is answered. The rest is found by words only, until
later queries or `catch_up` embed it."""

_TABLE = (
    "CREATE TABLE IF NOT EXISTS recall_vector"
    " (embedder TEXT, digest BLOB, vector BLOB NOT NULL, PRIMARY KEY (embedder, digest)) WITHOUT ROWID"
)


class EmbeddingIndex:
    """The vectors of one index's units. Not thread-safe: the index calls it under its lock."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._name = str(getattr(embedder, "name", None) or type(embedder).__qualname__)
        self._vectors: dict[bytes, array[float]] = {}
        self._signs: dict[bytes, int] = {}
        self._units: dict[int, bytes] = {}
        self._generation: int | None = None
        self._is_complete = False

    def catch_up(
        self, database: sqlite3.Connection, generation: int, *, batches: int | None
    ) -> None:
        """Embed every unit's text that has no vector yet, or at most `batches` batches of them.

        Raises: Unavailable when the embedder fails. Vectors that it returned before are kept."""
        if self._is_complete and generation == self._generation:
            return
        missing = self._load_vectors(database, generation)
        todo = missing if batches is None else missing[: batches * BATCH_TEXTS]
        self._is_complete = False
        waiting = iter(todo)
        while batch := list(islice(waiting, BATCH_TEXTS)):
            vectors = self._embed([text for _, text in batch])
            for (digest, _), vector in zip(batch, vectors, strict=True):
                row = (self._name, digest, vector.tobytes())
                database.execute("INSERT OR REPLACE INTO recall_vector VALUES (?, ?, ?)", row)
                self._remember(digest, vector)
        self._is_complete = len(todo) == len(missing)

    def embed_query(self, query: str) -> QueryVector:
        """Embed a query.

        Raises: Unavailable when the embedder fails."""
        (vector,) = self._embed([query])
        return QueryVector(vector, self._units, self._vectors, self._signs)

    def _load_vectors(
        self, database: sqlite3.Connection, generation: int
    ) -> list[tuple[bytes, str]]:
        """Load the vectors that other processes have stored. Return the texts that have none, here or in the
        file."""
        rows = database.execute("SELECT id, text FROM recall_unit").fetchall()
        self._units = {unit: _digest(text) for unit, text in rows}
        self._generation = generation
        database.execute(_TABLE)
        database.execute("DELETE FROM recall_vector WHERE embedder <> ?", (self._name,))
        for digest, data in database.execute("SELECT digest, vector FROM recall_vector"):
            if digest not in self._vectors:
                vector = array("f")
                vector.frombytes(data)
                self._remember(digest, vector)
        texts = {self._units[unit]: text for unit, text in rows}
        return [(digest, text) for digest, text in texts.items() if digest not in self._vectors]

    def _remember(self, digest: bytes, vector: array[float]) -> None:
        self._vectors[digest] = vector
        self._signs[digest] = _signs(vector)

    def _embed(self, texts: list[str]) -> list[array[float]]:
        try:
            vectors = [array("f", vector) for vector in self._embedder(texts)]
        except Exception as error:  # the embedder is the caller's code
            raise Unavailable(f"the embedder {self._name}", str(error)) from error
        lengths = {len(vector) for vector in (*vectors, *islice(self._vectors.values(), 1))}
        if len(vectors) != len(texts) or len(lengths) != 1:
            raise Unavailable(
                f"the embedder {self._name}",
                f"returned {len(vectors)} vectors of lengths {sorted(lengths)} for {len(texts)} texts",
            )
        return [_normalize(vector) for vector in vectors]


class QueryVector:
    """The vector of one query, with the vectors of the units to compare it with."""

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
        """Return the units that could be nearest by their signs. `keep` selects the units to consider."""
        query_signs = _signs(self._vector)
        distances = (
            ((query_signs ^ signs).bit_count(), unit)
            for unit, digest in self._units.items()
            if (signs := self._signs.get(digest)) is not None and (keep is None or keep(unit))
        )
        return [unit for _, unit in nsmallest(NEAREST, distances)]

    def similarity(self, unit: int) -> float:
        """Return the similarity of a unit: 1 if it means the same, 0 if unrelated or not embedded yet."""
        vector = self._vectors.get(self._units.get(unit, b""))
        return 0.0 if vector is None else max(0.0, _cosine(self._vector, vector))


def fuse(by_words: float, similarity: float) -> float:
    return (1 - SHARE) * by_words + SHARE * similarity


def _normalize(vector: array[float]) -> array[float]:
    length = sqrt(sum(number * number for number in vector)) or 1.0
    return array("f", (number / length for number in vector))


def _cosine(one: array[float], other: array[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _signs(vector: array[float]) -> int:
    return int("".join("1" if number > 0 else "0" for number in vector) or "0", 2)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()[:16]
