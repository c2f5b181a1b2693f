"""The recall index: the units of a source's texts and where their terms occur.

Writers do nothing for the index. A query first compares the states of all texts with the indexed states,
and indexes each changed text at once, from its first changed line on. So a missed event, a crash, an edit
by hand or another process cannot make the index wrong, and the file can be deleted at any moment. Each
batch of files is one transaction: a crash loses at most one batch.

A query reads the tables in one snapshot. The rows cached in memory (`Corpus`) are read again after another
process has written, which the generation number shows.

Each file has its own range of unit numbers, somewhat larger than it needs, so that an added line fits. A
file that outgrows its range moves to the first free one.
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
from workspaces.localfs.sqlite_file import (
    erase_deleted,
    explained,
    is_unwritable,
    remove,
    transaction,
)
from workspaces.search import exact, ranking
from workspaces.search.batch import IndexBatch, digest
from workspaces.search.embeddings import BATCHES_A_QUESTION, Embedder, EmbeddingIndex, QueryVector
from workspaces.search.ranking import SECTION_MARK, Corpus, Scored
from workspaces.search.source import UNSURE, TextSource
from workspaces.search.table import (
    FileRow,
    connect,
    empty,
    generation_of,
    next_generation,
    postings_of,
    rows_of,
    texts_of,
)
from workspaces.search.words import query_terms

BATCH_UNITS = 4096
"""Units in one transaction: some hundred milliseconds, in which other processes wait to write."""

ROUNDS_MAX = 3
"""Rounds of indexing before a query. A text that changes in each round is found in a slightly older state."""

QUERY_TERMS_MAX = 64
"""Terms of a query that count. A longer query is a text, and its first words say what it is about."""

_T = TypeVar("_T")

_Read = Callable[[sqlite3.Connection, QueryVector | None], _T]

OnIndexProgress = Callable[[int, int], None]
"""Called with the number of indexed files and the number of files to index."""


@dataclass(frozen=True, slots=True)
class ScoredUnit:
    """A unit that matches a query, with its score."""

    path: str
    line: int
    text: str
    score: float
    is_named: bool
    """True if only this unit holds an id, path or name from the query."""
    is_heading: bool
    bears: bool
    """True if the score says that the unit bears on the query. With an embedder always: similarity of meaning
    has no such score."""
    why: tuple[str, ...]
    """The reasons for the match, in words. Empty for an empty query."""


class Index:
    """The recall index of one source. Threads and processes may share the file."""

    def __init__(self, file: Path, embedder: Embedder | None = None) -> None:
        self._file = file
        self._embeddings = None if embedder is None else EmbeddingIndex(embedder)
        self._embedder_error = ""
        """Why the embedder failed in the last query, or empty."""
        self.stale_reason = ""
        """Why the index could not be brought up to date for the last query, or empty."""
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
        on_progress: OnIndexProgress | None = None,
    ) -> list[ScoredUnit]:
        """Index the changed texts, then return the best `limit` units. For an empty query, return the first
        units by name and line. `keep` selects texts by name. `only` selects units by name, first line and
        number of lines."""
        query_words = dict(list(query_terms(query).items())[:QUERY_TERMS_MAX])

        def read(database: sqlite3.Connection, vector: QueryVector | None) -> list[ScoredUnit]:
            if not query.strip():
                units = self._list_units(database, keep)
            else:
                depth = limit if only is None else None
                units = self._rank_units(database, query, query_words, keep, vector, depth)
            wanted = (
                unit
                for unit in units
                if only is None or only(unit.path, unit.line, unit.text.count("\n") + 1)
            )
            return list(islice(wanted, limit))

        return self._ask(source, read, query=query, on_progress=on_progress)

    def catch_up(self, source: TextSource, on_progress: OnIndexProgress | None = None) -> int:
        """Index the changed texts. Return the number of units in the index afterwards."""

        def read(_: sqlite3.Connection, __: QueryVector | None) -> int:
            return self._corpus.size

        return self._ask(source, read, on_progress=on_progress)

    def empty(self) -> None:
        """Empty the tables, and erase from the file what any cache in it has deleted. Other processes that
        have the file open see that, and index the texts again.

        Raises: Unavailable if the file cannot be written, or another process keeps reading it.
        """
        with self._lock:
            if self._connection is None and not self._file.exists():
                return
            try:
                is_erased = self._empty(self._database())
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise Unavailable(f"the recall index {self._file.name}", str(error)) from error
                self._remove()  # damaged
                return
            if not is_erased:
                raise Unavailable(f"the recall index {self._file.name}", "another process reads it")

    def _empty(self, database: sqlite3.Connection) -> bool:
        with transaction(database):
            empty(database)
            next_generation(database)
        return erase_deleted(database)

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _rank_units(
        self,
        database: sqlite3.Connection,
        query: str,
        query_words: Mapping[str, str],
        keep: Callable[[str], bool] | None,
        vector: QueryVector | None,
        limit: int | None,
    ) -> Iterable[ScoredUnit]:
        wanted = chain.from_iterable((term, SECTION_MARK + term) for term in query_words)
        postings = postings_of(database, wanted)
        named = exact.named_units(
            query, query_words, postings, lambda unit: _text_of(database, unit)[1]
        )
        candidates = None if limit is None else max(ranking.CANDIDATES, 3 * limit)
        for one in ranking.rank(
            list(query_words),
            postings,
            self._corpus,
            keep=keep,
            named=named,
            query_vector=vector,
            candidates=candidates,
        ):
            line, text = _text_of(database, one.unit)
            why = _explain(one, query_words, self._embedder_error, self.stale_reason)
            yield ScoredUnit(
                one.path,
                line,
                text,
                one.score,
                is_named=one.is_named,
                is_heading=one.is_heading,
                bears=vector is not None
                or one.is_named
                or ranking.bears(one.score, self._corpus.size),
                why=why,
            )

    def _list_units(
        self, database: sqlite3.Connection, keep: Callable[[str], bool] | None
    ) -> Iterable[ScoredUnit]:
        for path, row in self._corpus.rows.items():
            if keep is None or keep(path):
                listed = texts_of(database, row.base, row.base + len(row.traits))
                for traits, (line, text) in zip(row.traits, listed, strict=True):
                    is_heading = bool(traits & ranking.HEADING_TRAIT)
                    yield ScoredUnit(
                        path,
                        line,
                        text,
                        0.0,
                        is_named=False,
                        is_heading=is_heading,
                        bears=True,
                        why=(),
                    )

    def _ask(
        self,
        source: TextSource,
        read: _Read[_T],
        *,
        query: str = "",
        on_progress: OnIndexProgress | None = None,
    ) -> _T:
        with self._lock:
            try:
                return self._answer(source, read, query, on_progress)
            except sqlite3.OperationalError as error:
                raise Unavailable(
                    f"the recall index {self._file.name}",
                    str(error),
                    remedy="check that the home directory is writable; the files are unaffected",
                ) from error
            except sqlite3.DatabaseError:  # damaged: rebuild it, the texts hold everything in it
                self._remove()
                return self._answer(source, read, query, on_progress)

    def _answer(
        self,
        source: TextSource,
        read: _Read[_T],
        query: str,
        on_progress: OnIndexProgress | None,
    ) -> _T:
        database = self._database()
        self.stale_reason = ""
        try:
            self._catch_up(database, source, on_progress)
        except sqlite3.OperationalError as error:
            if not is_unwritable(error):
                raise
            self.stale_reason, _ = explained(error, damaged=("", ""))
        batches = BATCHES_A_QUESTION if on_progress is None else None
        vector = self._embed_query(database, query, batches)
        with transaction(database, "DEFERRED"):
            self._refresh_corpus(database)
            return read(database, vector)

    def _embed_query(
        self, database: sqlite3.Connection, query: str, batches: int | None
    ) -> QueryVector | None:
        """Embed new texts and the query. If the embedder fails, return None: the query is answered by its
        words only, and the reasons of the hits say so."""
        self._embedder_error = ""
        if self._embeddings is None:
            return None
        try:
            if not self.stale_reason:
                self._embeddings.catch_up(database, self._generation, batches=batches)
            return self._embeddings.embed_query(query) if query.strip() else None
        except Unavailable as failure:
            self._embedder_error = str(failure)
            return None
        except sqlite3.OperationalError as error:  # the disk takes no new vectors
            if not is_unwritable(error):
                raise
            self._embedder_error, _ = explained(error, damaged=("", ""))
            return None

    def _catch_up(
        self, database: sqlite3.Connection, source: TextSource, on_progress: OnIndexProgress | None
    ) -> None:
        for _ in range(ROUNDS_MAX):
            states = source.states()
            with transaction(database, "DEFERRED"):
                self._refresh_corpus(database)
                changed = [
                    path
                    for path in _changed_states(states, self._corpus.rows)
                    if self._needs_indexing(source, path, states.get(path))
                ]
            if not changed:
                return
            self._index_texts(database, source, states, changed, on_progress)

    def _refresh_corpus(self, database: sqlite3.Connection) -> None:
        generation = generation_of(database)
        if generation != self._generation:
            self._corpus = Corpus(rows_of(database))
            self._generation = generation

    def _needs_indexing(self, source: TextSource, path: str, state: str | None) -> bool:
        """Return True if a text whose state differs must be indexed. A text with an unsure state is read
        first, because its bytes are usually the same."""
        row = self._corpus.rows.get(path)
        if state is None:  # removed
            return True
        if row is not None and not state.startswith(UNSURE):  # certainly changed
            return True
        data = source.read(path)
        return (row is not None) if data is None else (row is None or row.digest != digest(data))

    def _index_texts(
        self,
        database: sqlite3.Connection,
        source: TextSource,
        states: Mapping[str, str],
        changed: list[str],
        on_progress: OnIndexProgress | None,
    ) -> None:
        """Index changed texts in batches. Texts that another process has indexed meanwhile are indexed again,
        with the same result."""
        waiting = list(reversed(changed))
        while waiting:
            with transaction(database):
                self._refresh_corpus(database)
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
            if on_progress is not None:
                on_progress(len(changed) - len(waiting), len(changed))

    def _database(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._file)
        return self._connection

    def _remove(self) -> None:
        self._disconnect()
        remove(self._file)

    def _disconnect(self) -> None:
        self._generation, self._corpus = -1, Corpus({})
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _changed_states(states: Mapping[str, str], rows: Mapping[str, FileRow]) -> list[str]:
    changed = [
        path
        for path, state in states.items()
        if state.startswith(UNSURE) or (row := rows.get(path)) is None or row.state != state
    ]
    return changed + [path for path in rows if path not in states]


def _text_of(database: sqlite3.Connection, unit: int) -> tuple[int, str]:
    return texts_of(database, unit, unit + 1)[0]


def _explain(
    one: Scored, query_words: Mapping[str, str], embedder_error: str, stale_reason: str
) -> tuple[str, ...]:
    def listed(terms: list[str]) -> str:
        return ", ".join(sorted({query_words[term] for term in terms}))

    reasons = one.reasons()
    match = "exact match" if one.is_named else "match" if reasons.own else ""
    sentences = [
        ": ".join(part for part in (match, listed(reasons.own)) if part),
        "begins with a name from the query" if reasons.is_subject else "",
        f"under a match for: {listed(reasons.above)}" if reasons.above else "",
        f"next to a match for: {listed(reasons.near)}" if reasons.near else "",
        f"similar meaning ({one.similarity:.2f})" if one.similarity else "",
        f"(found by words only: {embedder_error})" if embedder_error else "",
        f"(the index may be out of date: {stale_reason})" if stale_reason else "",
    ]
    return tuple(sentence for sentence in sentences if sentence)
