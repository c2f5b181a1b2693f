"""An index: the units of a source's texts, where their terms occur, and finding them.

Writers do nothing for it. Whoever asks a question first has the states of all texts compared with those
that were indexed, and what differs is indexed on the spot, from the first line on that is different. So
a missed event, a crash, an edit by hand or another process cannot make it wrong, and it can be thrown
away at any moment. Each batch of files is one transaction: a crash loses no more than that.

What is read of the tables while a question is answered belongs to one state of them; what is remembered
of them (`Corpus`) is read again when another process has written, which a number tells.

A file has a range of numbers of its own, somewhat larger than it needs, so that a line that is added
finds room. A file that outgrows its range moves to the first one that is free.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from workspaces.errors import Unavailable
from workspaces.localfs.sqlite_file import remove, transaction
from workspaces.search import exact, ranking
from workspaces.search.batch import IndexBatch, digest
from workspaces.search.embeddings import BATCHES_A_QUESTION, Embedder, EmbeddingIndex, QueryVector
from workspaces.search.ranking import SECTION_MARK, Corpus, Scored
from workspaces.search.source import UNSURE, TextSource
from workspaces.search.table import (
    FileRow,
    connected,
    generation_of,
    next_generation,
    postings_of,
    rows_of,
    texts_of,
)
from workspaces.search.words import query_terms

BATCH_UNITS = 4096
"""In one transaction: some hundred milliseconds, in which other processes wait to write."""

ROUNDS_MAX = 3
"""Texts that change as often while they are indexed are found as they were a moment ago."""

QUERY_TERMS_MAX = 64
"""A longer query is a text; its first words say what it is about."""

_T = TypeVar("_T")

_Read = Callable[[sqlite3.Connection, QueryVector | None], _T]

OnIndexProgress = Callable[[int, int], None]
"""How many files are done, of how many."""


@dataclass(frozen=True, slots=True)
class ScoredUnit:
    """One unit that a query is about."""

    path: str
    line: int
    text: str
    score: float
    is_named: bool
    """It alone holds an id, path or name that the query holds."""
    why: tuple[str, ...]
    """In words, what speaks for it; nothing for an empty query."""


class Index:
    """Threads and processes may share the file."""

    def __init__(self, file: Path, embedder: Embedder | None = None) -> None:
        self._file = file
        self._meaning = None if embedder is None else EmbeddingIndex(embedder)
        self._without_meaning = ""
        """Why the embedder could not be asked the last time."""
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._generation = -1
        self._corpus = Corpus({})

    def find(
        self,
        source: TextSource,
        query: str,
        *,
        limit: int,
        keep: Callable[[str], bool] | None = None,
        only: Callable[[str, int, int], bool] | None = None,
    ) -> list[ScoredUnit]:
        """The best `limit` units, after what has changed was indexed. Of an empty query the first ones, by
        name and line. `keep` judges a text's name, `only` a unit by name, first line and number of lines."""
        asked = dict(list(query_terms(query).items())[:QUERY_TERMS_MAX])

        def answer(database: sqlite3.Connection, meant: QueryVector | None) -> list[ScoredUnit]:
            if not query.strip():
                found = self._listed(database, keep)
            else:
                depth = limit if only is None else None
                found = self._ranked(database, query, asked, keep, meant, depth)
            wanted = (
                one
                for one in found
                if only is None or only(one.path, one.line, one.text.count("\n") + 1)
            )
            return list(islice(wanted, limit))

        return self._ask(source, answer, query=query)

    def catch_up(self, source: TextSource, told: OnIndexProgress | None = None) -> int:
        """Index what has changed; how many units there are then."""

        def answer(_: sqlite3.Connection, __: QueryVector | None) -> int:
            return self._corpus.size

        return self._ask(source, answer, told=told)

    def forget(self) -> None:
        """Leave nothing behind: what it was made from is going away."""
        with self._lock:
            self._remove()

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _ranked(
        self,
        database: sqlite3.Connection,
        query: str,
        asked: Mapping[str, str],
        keep: Callable[[str], bool] | None,
        meant: QueryVector | None,
        limit: int | None,
    ) -> Iterable[ScoredUnit]:
        wanted = chain.from_iterable((term, SECTION_MARK + term) for term in asked)
        postings = postings_of(database, wanted)
        named = exact.named(query, asked, postings, lambda unit: _text_of(database, unit)[1])
        candidates = None if limit is None else max(ranking.CANDIDATES, 3 * limit)
        for one in ranking.rank(
            list(asked),
            postings,
            self._corpus,
            keep=keep,
            named=named,
            meant=meant,
            candidates=candidates,
        ):
            line, text = _text_of(database, one.unit)
            why = _why(one, asked, self._without_meaning)
            yield ScoredUnit(one.path, line, text, one.score, one.is_named, why)

    def _listed(
        self, database: sqlite3.Connection, keep: Callable[[str], bool] | None
    ) -> Iterable[ScoredUnit]:
        for path, row in self._corpus.rows.items():
            if keep is None or keep(path):
                for line, text in texts_of(database, row.base, row.base + len(row.traits)):
                    yield ScoredUnit(path, line, text, 0.0, False, ())

    def _ask(
        self,
        source: TextSource,
        read: _Read[_T],
        *,
        query: str = "",
        told: OnIndexProgress | None = None,
    ) -> _T:
        with self._lock:
            try:
                return self._answered(source, read, query, told)
            except sqlite3.OperationalError as error:
                raise Unavailable(
                    f"the recall index {self._file.name}",
                    str(error),
                    remedy="check that the home can be written; the files themselves are fine",
                ) from error
            except sqlite3.DatabaseError:  # damaged: it holds nothing that is not in the texts
                self._remove()
                return self._answered(source, read, query, told)

    def _answered(
        self, source: TextSource, read: _Read[_T], query: str, told: OnIndexProgress | None
    ) -> _T:
        database = self._connected()
        self._catch_up(database, source, told)
        batches = BATCHES_A_QUESTION if told is None else None
        meant = self._meant(database, query, batches)
        with transaction(database, "DEFERRED"):
            self._look(database)
            return read(database, meant)

    def _meant(
        self, database: sqlite3.Connection, query: str, batches: int | None
    ) -> QueryVector | None:
        """A question is answered by its words alone when the embedder fails, and the answer says so."""
        self._without_meaning = ""
        if self._meaning is None:
            return None
        try:
            self._meaning.catch_up(database, self._generation, batches=batches)
            return self._meaning.asked(query) if query.strip() else None
        except Unavailable as failure:
            self._without_meaning = str(failure)
            return None

    def _catch_up(
        self, database: sqlite3.Connection, source: TextSource, told: OnIndexProgress | None
    ) -> None:
        for _ in range(ROUNDS_MAX):
            states = source.states()
            with transaction(database, "DEFERRED"):
                self._look(database)
                suspects = _suspects(states, self._corpus.rows)
                news = [path for path in suspects if self._is_news(source, path, states.get(path))]
            if not news:
                return
            self._take(database, source, states, news, told)

    def _look(self, database: sqlite3.Connection) -> None:
        generation = generation_of(database)
        if generation != self._generation:
            self._corpus = Corpus(rows_of(database))
            self._generation = generation

    def _is_news(self, source: TextSource, path: str, state: str | None) -> bool:
        """Whether a text whose state differs has to be indexed: what is too young to be sure of mostly is
        what it was."""
        row = self._corpus.rows.get(path)
        if state is None:
            return True
        if row is not None and not state.startswith(UNSURE):
            return True
        data = source.read(path)
        return (row is not None) if data is None else (row is None or row.digest != digest(data))

    def _take(
        self,
        database: sqlite3.Connection,
        source: TextSource,
        states: Mapping[str, str],
        news: list[str],
        told: OnIndexProgress | None,
    ) -> None:
        """In batches. What another process has done meanwhile is done once more, to the same end."""
        waiting = list(reversed(news))
        while waiting:
            with transaction(database):
                self._look(database)
                batch = IndexBatch(database, dict(self._corpus.rows))
                while waiting and batch.size < BATCH_UNITS:
                    path = waiting.pop()
                    state = states.get(path)
                    data = None if state is None else source.read(path)
                    if state is None or data is None:
                        batch.drop(path)
                    else:
                        batch.put(path, state, data)
                batch.finish()
                generation = next_generation(database)
            self._corpus, self._generation = Corpus(dict(sorted(batch.rows.items()))), generation
            if told is not None:
                told(len(news) - len(waiting), len(news))

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connected(self._file)
        return self._connection

    def _remove(self) -> None:
        self._disconnect()
        remove(self._file)

    def _disconnect(self) -> None:
        self._generation, self._corpus = -1, Corpus({})
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _suspects(states: Mapping[str, str], rows: Mapping[str, FileRow]) -> list[str]:
    changed = [
        path
        for path, state in states.items()
        if state.startswith(UNSURE) or (row := rows.get(path)) is None or row.state != state
    ]
    return changed + [path for path in rows if path not in states]


def _text_of(database: sqlite3.Connection, unit: int) -> tuple[int, str]:
    return texts_of(database, unit, unit + 1)[0]


def _why(one: Scored, asked: Mapping[str, str], without_meaning: str) -> tuple[str, ...]:
    def told(names: list[str]) -> str:
        return ", ".join(sorted({asked[name] for name in names}))

    reasons = one.reasons()
    match = "exact match" if one.is_named else "match" if reasons.own else ""
    said = [
        ": ".join(part for part in (match, told(reasons.own)) if part),
        "begins with a name from the query" if reasons.is_subject else "",
        f"under a match for: {told(reasons.above)}" if reasons.above else "",
        f"next to a match for: {told(reasons.near)}" if reasons.near else "",
        f"similar meaning ({one.similarity:.2f})" if one.similarity else "",
        f"(matched by words alone: {without_meaning})" if without_meaning else "",
    ]
    return tuple(reason for reason in said if reason)
