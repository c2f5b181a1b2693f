"""Recall over one workspace: its indexes, what limits a question, and what is told of a line.

There are two indexes: one of the files as they lie there, one of whichever revision was asked for last;
that one moves from revision to revision by what differs between them, as the first moves with the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from workspaces.clock import Clock
from workspaces.errors import OverLimit, Refused
from workspaces.history.history import HEAD, History, View
from workspaces.history.line_origins import LineOrigins
from workspaces.revision import RevisionId
from workspaces.search.embeddings import Embedder
from workspaces.search.index import Index, OnIndexProgress
from workspaces.search.kind import MemoryKind, kind_of
from workspaces.search.provenance import LineSource, Provenance
from workspaces.search.source import LiveTexts, RevisionTexts, TextSource
from workspaces.timestamp import Stamp
from workspaces.tree.directory import FileBlobs

LIMIT_MAX = 100
QUERY_CHARACTERS_MAX = 10_000
"""More is no question; a message to an agent may be as long as a page."""

_SAID_BY = ("Agent", "Conversation", "Turn", "Source")
"""Trailers that say who wrote: each value is a name that `by` may ask for."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a question is limited to."""

    paths: tuple[str, ...] = ()
    """Files, directories, or patterns such as `notes/2026-*`; none: everything."""
    kinds: tuple[MemoryKind, ...] = ()
    since: Stamp | None = None
    """Lines written then or later; what is in no revision yet is newer than everything."""
    by: str | None = None
    """Who wrote it: a name, the id of an agent or a conversation, or a source such as `turn`."""

    def keeps(self, path: str) -> bool:
        return (not self.kinds or kind_of(path) in self.kinds) and (
            not self.paths or any(_lies_in(path, place) for place in self.paths)
        )

    def wants(self, origin: LineSource | None) -> bool:
        if self.since is not None and origin is not None and origin.at < self.since:
            return False
        if self.by is None:
            return True
        commit = origin.commit if origin else None
        said = (
            [commit.author, *(commit.trailers.get(key, "") for key in _SAID_BY)] if commit else []
        )
        return self.by.casefold() in {name.casefold() for name in said}


EVERYTHING = Scope()


@dataclass(frozen=True, slots=True)
class RecallHit:
    """What was found: a line, or a list item with the lines that continue it."""

    path: str
    line_number: int
    """From 1."""
    content: str
    score: float
    """1 is about what a line has that says everything that was asked for; 0 for an empty query."""
    updated_at: Stamp | None
    """None: not in a revision yet."""
    author: str | None
    revision: RevisionId | None
    is_named: bool
    """It alone holds an id, path or name that was asked for: it comes before all others."""
    why: tuple[str, ...]


class Recall:
    """Threads and processes may share the files."""

    def __init__(
        self,
        file: Path,
        blobs: FileBlobs,
        history: History,
        origins: LineOrigins,
        clock: Clock,
        embedder: Embedder | None = None,
    ) -> None:
        self._history = history
        self._origins = origins
        self._live = LiveTexts(blobs, clock)
        self._index = Index(file, embedder)
        self._viewed = Index(file.with_name(f"{file.stem}.view.db"), embedder)

    def find(
        self, query: str, *, limit: int = 10, view: View = HEAD, scope: Scope = EVERYTHING
    ) -> list[RecallHit]:
        """The lines that a query is about, best first; of an empty query the first ones, in order."""
        _check(query, limit)
        if view != HEAD:
            view = self._history.resolve(view) or HEAD
        index, source = self._seen(view)
        provenance = Provenance(self._history, self._origins, view, source)

        def wants(path: str, line: int, lines: int) -> bool:
            return scope.wants(provenance.of(path, line, lines))

        found = index.find(
            source,
            query,
            limit=limit,
            keep=scope.keeps if scope.paths or scope.kinds else None,
            only=wants if scope.since or scope.by else None,
        )
        told: list[RecallHit] = []
        for one in found:
            origin = provenance.of(one.path, one.line, one.text.count("\n") + 1)
            commit = origin.commit if origin else None
            told.append(
                RecallHit(
                    *(one.path, one.line, one.text, round(one.score, 4)),
                    updated_at=origin.at if origin else None,
                    author=commit.author if commit else None,
                    revision=commit.id if commit else None,
                    is_named=one.is_named,
                    why=one.why,
                )
            )
        return told

    def catch_up(self, told: OnIndexProgress | None = None) -> int:
        """Index what has changed in the files; how many units there are then."""
        return self._index.catch_up(self._live, told)

    def forget(self) -> None:
        """Leave nothing behind: the workspace is going away."""
        self._index.forget()
        self._viewed.forget()

    def _seen(self, view: View) -> tuple[Index, TextSource]:
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


def _lies_in(path: str, place: str) -> bool:
    place = place.removeprefix("/").rstrip("/")
    return path == place or path.startswith(f"{place}/") or fnmatchcase(path, place) or not place
