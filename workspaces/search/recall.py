"""Recall over one workspace: its indexes, the scope of a query, and the hits.

There are two indexes: one of the present files, one of the revision that was queried last. The second moves
from revision to revision by the differences between them, as the first follows the files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from workspaces.clock import Clock
from workspaces.errors import OverLimit, Refused
from workspaces.history.history import HEAD, History, View
from workspaces.history.line_origins import LineOrigins
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId
from workspaces.search.embeddings import Embedder
from workspaces.search.index import Index, OnIndexProgress
from workspaces.search.kind import LIMIT_MAX, QUERY_CHARACTERS_MAX, MemoryKind, kind_of
from workspaces.search.provenance import LineSource, Provenance
from workspaces.search.source import LiveTexts, RevisionTexts, TextSource
from workspaces.timestamp import Stamp, moment_of
from workspaces.tree.directory import FileBlobs

_AUTHOR_TRAILERS = ("Agent", "Conversation", "Turn", "Source")
"""Trailers that name the author: `by` may match any of their values."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The limits of a query: which files, and which lines in them."""

    paths: tuple[str, ...] = ()
    """Files, directories, or patterns such as `notes/2026-*`. Empty for every file."""
    kinds: tuple[MemoryKind, ...] = ()
    since: Stamp | None = None
    """Only lines written at this time or later. A line that is in no revision yet counts as newest."""
    by: str | None = None
    """The author: a name, the id of an agent or a conversation, or a source such as `turn`."""

    def includes_path(self, path: str) -> bool:
        return (not self.kinds or kind_of(path) in self.kinds) and (
            not self.paths or any(_matches_path(path, pattern) for pattern in self.paths)
        )

    def includes_line(self, origin: LineSource | None) -> bool:
        if self.since is not None and origin is not None and origin.at < self.since:
            return False
        if self.by is None:
            return True
        if origin is None:  # in no revision yet: no author is known
            return False
        trailers = origin.commit.trailers
        names = [origin.commit.author, *(trailers.get(key, "") for key in _AUTHOR_TRAILERS)]
        return self.by.casefold() in {name.casefold() for name in names}


EVERYTHING = Scope()


@dataclass(frozen=True, slots=True)
class RecallHit:
    """A result of recall: a line, or a list item with the lines that continue it."""

    path: str
    line_number: int
    """Line number, counted from 1."""
    content: str
    score: float
    """About 1 for a line that contains every term of the query. 0 for an empty query."""
    updated_at: Stamp | None
    """None if the line is in no revision yet."""
    author: str | None
    revision: RevisionId | None
    is_named: bool
    """True if only this line holds an id, path or name from the query. It ranks before all others."""
    is_heading: bool
    bears: bool
    """True if the line bears on the query: it is enough for an answer. See `ranking.lowest_shown`."""
    age_days: int | None
    """Whole days since `updated_at`."""
    why: tuple[str, ...]

    @property
    def kind(self) -> MemoryKind:
        return kind_of(self.path)


class Recall:
    """Recall over one workspace. Threads and processes may share the index files."""

    def __init__(
        self,
        file: Path,
        blobs: FileBlobs,
        history: History,
        origins: LineOrigins,
        clock: Clock,
        embedder: Embedder | None = None,
        readable: Callable[[WorkspacePath, bytes], bytes] = lambda _path, data: data,
    ) -> None:
        """`readable` returns the content of a file that counts for readers, from what is on the disk."""
        self._history = history
        self._origins = origins
        self._clock = clock
        self._live = LiveTexts(blobs, clock, readable)
        self._index = Index(file, embedder)
        self._viewed = Index(file.with_name(f"{file.stem}.view.db"), embedder)

    def find(
        self,
        query: str,
        *,
        limit: int = 10,
        view: View = HEAD,
        scope: Scope = EVERYTHING,
        on_progress: OnIndexProgress | None = None,
    ) -> list[RecallHit]:
        """Return the lines that a query is about, best first, without a cut. For an empty query, return the
        first lines.

        Raises: Refused when the limit is out of range; OverLimit when the query is too long."""
        _check(query, limit)
        if view != HEAD:
            view = self._history.resolve(view) or HEAD
        index, source = self._index_of(view)
        provenance = Provenance(self._history, self._origins, view, source)

        def includes_line(path: str, line: int, lines: int) -> bool:
            return scope.includes_line(provenance.of(path, line, lines))

        units = index.find(
            source,
            query,
            limit=limit,
            keep=scope.includes_path if scope.paths or scope.kinds else None,
            only=includes_line if scope.since or scope.by else None,
            on_progress=on_progress,
        )
        now = self._clock.now()
        hits: list[RecallHit] = []
        for unit in units:
            origin = provenance.of(unit.path, unit.line, unit.text.count("\n") + 1)
            commit = origin.commit if origin else None
            hits.append(
                RecallHit(
                    path=unit.path,
                    line_number=unit.line,
                    content=unit.text,
                    score=round(unit.score, 4),
                    updated_at=origin.at if origin else None,
                    author=commit.author if commit else None,
                    revision=commit.id if commit else None,
                    is_named=unit.is_named,
                    is_heading=unit.is_heading,
                    bears=unit.bears,
                    age_days=max(0, (now - moment_of(origin.at)).days) if origin else None,
                    why=unit.why,
                )
            )
        return hits

    @property
    def stale_reason(self) -> str:
        """The reason why the last query was answered from an index that may be out of date, or empty."""
        return self._index.stale_reason or self._viewed.stale_reason

    def catch_up(self, on_progress: OnIndexProgress | None = None) -> int:
        """Index the changed files. Return the number of units in the index afterwards."""
        return self._index.catch_up(self._live, on_progress)

    def empty(self) -> None:
        """Empty the indexes, and erase from their files what was deleted. The next question fills them."""
        self._index.empty()
        self._viewed.empty()

    def close(self) -> None:
        self._index.close()
        self._viewed.close()

    def _index_of(self, view: View) -> tuple[Index, TextSource]:
        if view == HEAD:
            return self._index, self._live
        return self._viewed, RevisionTexts(self._history, RevisionId(view))


def _check(query: str, limit: int) -> None:
    if not 1 <= limit <= LIMIT_MAX:
        raise Refused("limit", limit, f"must be between 1 and {LIMIT_MAX}")
    if len(query) > QUERY_CHARACTERS_MAX:
        raise OverLimit(
            "length of the query",
            maximum=QUERY_CHARACTERS_MAX,
            actual=len(query),
            unit="characters",
        )


def _matches_path(path: str, pattern: str) -> bool:
    pattern = pattern.removeprefix("/").rstrip("/")
    is_inside = path == pattern or path.startswith(f"{pattern}/")
    return is_inside or fnmatchcase(path, pattern) or not pattern
