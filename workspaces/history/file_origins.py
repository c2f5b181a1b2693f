"""File origins: for each file, when it came to be, when it last changed, and who is to be believed for it.

A file holds no time, no author and no source: the history knows them. This database reads each revision
once and keeps an *event* for each file that a revision changed. The origin of a file follows from the set
of its events alone, not from the order in which they were read:

- it was updated by the newest event that gave it its present bytes;
- its body comes from the newest event that made or adopted its present body;
- it was created by the first event after its newest deletion.

"Newest" is by place, which grows along every line of descent. So two machines with one history agree, a
merge that takes one side's file keeps that side's origin, and a rebuilt database equals the old one.

Whoever asks brings the database up to date. Writers do nothing for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from workspaces.errors import NotFound
from workspaces.history.file_origin_table import (
    FileEvent,
    FileOrigin,
    OriginChanges,
    OriginMark,
    connect,
    empty,
    events_of,
    mark_of,
    move_tip,
    origin_of,
    origins_below,
    put_events,
    put_origins,
    tip_of,
)
from workspaces.history.git.commit import Commit
from workspaces.history.git.objects import ObjectId, blob_id
from workspaces.history.history import History
from workspaces.history.source import (
    TRUST,
    Source,
    adopted_path,
    body_of,
    source_of,
    stated_origin,
)
from workspaces.localfs.rebuildable_database import RebuildableDatabase
from workspaces.localfs.sqlite_file import transaction
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId
from workspaces.timestamp import Stamp, moment_of

if TYPE_CHECKING:
    from workspaces.history.combined_log import CombinedChange, RevisionFiles

BODIES_KEPT = 4096
"""Bodies in the cache while revisions are read. The next revision of a file begins with its last body."""

PATHS_LOOKED_UP_MAX = 50
"""Most files looked up one by one in the newest revision. For more, its whole tree is read."""

_OTHERS = ("recall_", "origin_", "file_", "sqlite_")
"""How the names of tables begin that have an owner of their own."""

_T = TypeVar("_T")
_BodyOf = Callable[[str, ObjectId], str]


class FileOrigins:
    """The file origins of one history. Threads and processes may share the database file."""

    def __init__(self, file: Path, history: History) -> None:
        """`file` is the namespace's search database. Other caches of what files say lie there too."""
        self.file = file
        self._database = RebuildableDatabase(file, connect)
        self._history = history

    def origin_of(self, path: WorkspacePath) -> FileOrigin:
        """Return the origin of a file of the newest revision.

        Raises: NotFound when that revision has no such file."""
        origin = self._ask(lambda database: origin_of(database, path))
        if origin is None:
            raise NotFound("file", path)
        return origin

    def below(self, directory: str) -> dict[WorkspacePath, FileOrigin]:
        """Return the origin of every file below a directory of the newest revision, ascending by path. `""`
        is the root."""
        origins = self._ask(lambda database: origins_below(database, directory))
        return {path: origin for path, origin in origins.items() if origin is not None}

    def changes(self, directory: str, since: OriginMark | None) -> OriginChanges:
        """Return the origins below a directory that differ from those at a mark, and the mark to ask with the
        next time."""

        def read(database: sqlite3.Connection) -> OriginChanges:
            mark = mark_of(database)
            is_whole = since is None or since.life != mark.life
            after = -1 if since is None or is_whole else since.advance
            files = origins_below(database, directory, after=after)
            return OriginChanges(tip_of(database), mark, files, is_whole)

        return self._ask(read)

    def empty(self) -> None:
        """Empty the tables, and those of other caches of what files say. Other processes that have the file
        open see that, and read the history again."""
        with self._database.held() as database, transaction(database):
            empty(database)
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (table,) in tables.fetchall():
                if not table.startswith(_OTHERS) and not table.endswith("_state"):
                    database.execute(f'DELETE FROM "{table}"')  # noqa: S608 - a table of this file

    def close(self) -> None:
        self._database.close()

    def _ask(self, read: Callable[[sqlite3.Connection], _T]) -> _T:
        return self._database.ask(lambda database: self._read_at_tip(database, read))

    def _read_at_tip(
        self, database: sqlite3.Connection, read: Callable[[sqlite3.Connection], _T]
    ) -> _T:
        while True:
            tip = self._history.tip()
            with transaction(database, "DEFERRED"):  # one snapshot: the rows belong to this tip
                known = tip_of(database)
                if known == tip:
                    return read(database)
            self._advance(database, known, tip)

    def _advance(
        self, database: sqlite3.Connection, known: RevisionId | None, tip: RevisionId | None
    ) -> None:
        """Bring the database to `tip`, unless another process moves it meanwhile. The caller then checks
        again."""
        from workspaces.history.combined_log import revisions_since

        revisions = revisions_since(self._history, known, tip) if tip else None
        if tip is None or revisions is None:  # another history: start from its first revision
            with transaction(database):
                empty(database)
            return
        with transaction(database):
            if tip_of(database) != known:
                return  # another process was faster
            bodies = lru_cache(BODIES_KEPT)(self._read_body)
            events = _Events(database, self._history, bodies)
            for revision in revisions:
                events.add(revision)
            paths = events.paths
            if known and any(len(one.commit.parents) > 1 for one in revisions):
                # a merge may have taken a file back to the state that only its other parent had
                paths |= self._history.differences(known, tip).keys()
            blobs = self._blobs_at(tip, paths)
            origins = [
                origin
                for path in paths
                if (blob := blobs.get(path)) and (origin := _origin(path, blob, events.of(path)))
            ]
            put_events(database, events.new)
            put_origins(database, origins, paths - {origin.path for origin in origins})
            move_tip(database, tip)

    def _blobs_at(self, tip: RevisionId, paths: set[str]) -> Mapping[str, ObjectId | None]:
        if len(paths) > PATHS_LOOKED_UP_MAX:
            return dict(self._history.tree(tip).items())
        return {path: self._history.find(tip, WorkspacePath(path)) for path in paths}

    def _read_body(self, path: str, blob: ObjectId) -> str:
        if not path.endswith((".md", ".markdown")):
            return blob
        data = self._history.read(blob)
        body = body_of(path, data)
        return blob if len(body) == len(data) else blob_id(body)


class _Events:
    """The events of new revisions, and those that the database has of the same files."""

    def __init__(self, database: sqlite3.Connection, history: History, body_of: _BodyOf) -> None:
        self._database = database
        self._history = history
        self._body_of = body_of
        self._of: dict[str, dict[RevisionId, FileEvent]] = {}
        self._added: dict[tuple[str, RevisionId], None] = {}

    @property
    def paths(self) -> set[str]:
        return {path for path, _ in self._added}

    @property
    def new(self) -> list[FileEvent]:
        return [self._of[path][revision] for path, revision in self._added]

    def of(self, path: str) -> Sequence[FileEvent]:
        return list(self._known(path).values())

    def add(self, revision: RevisionFiles) -> None:
        """Add the events of one revision. Those of its ancestors are there already."""
        commit = revision.commit
        for change in revision.files:
            self._put(self._event(commit, change))
        adopted = adopted_path(commit.trailers)
        if adopted is not None and (adopted, commit.id) not in self._added:
            blob = self._history.find(commit.id, adopted)
            if blob is not None:
                self._put(self._adoption(commit, adopted, blob))

    def _event(self, commit: Commit, change: CombinedChange) -> FileEvent:
        path, after = change.path, change.after
        body = self._body_of(path, after) if after else None
        before = [self._body_of(path, blob) for blob in change.before if blob]
        source, author = source_of(commit.trailers), commit.author_id
        if len(commit.parents) > 1 and body is not None and body not in before:
            source, author = self._least_trusted(commit, path, before) or (source, author)
        at = created_at = commit.at
        place = _place(commit.committed, at)
        stated = stated_origin(commit.trailers, path) if after else None
        if (
            stated is not None
        ):  # the file came before its history: what the store said is its origin
            at, created_at = stated.updated_at, stated.created_at
            source, author = stated.source, stated.author
            place = _place(int(moment_of(at).timestamp()), at)
        return FileEvent(
            path,
            commit.id,
            place,
            is_change=True,
            blob=after,
            body=body,
            is_new_body=body is not None and (stated is not None or body not in before),
            at=at,
            created_at=created_at,
            source=source,
            author=author,
        )

    def _adoption(self, commit: Commit, path: WorkspacePath, blob: ObjectId) -> FileEvent:
        return FileEvent(
            path,
            commit.id,
            _place(commit.committed, commit.at),
            is_change=False,
            blob=blob,
            body=self._body_of(path, blob),
            is_new_body=True,
            at=commit.at,
            created_at=commit.at,
            source=source_of(commit.trailers),
            author=commit.author_id,
        )

    def _least_trusted(
        self, commit: Commit, path: str, bodies: Sequence[str]
    ) -> tuple[Source, str] | None:
        """Return the least believed source of the bodies that a merge mixes, and its author."""
        found = [event for body in bodies if (event := self._origin_of_body(commit.id, path, body))]
        if not found:
            return None
        least = min(found, key=lambda event: (TRUST[event.source], event.place, event.revision))
        return least.source, least.author

    def _origin_of_body(self, merge: RevisionId, path: str, body: str) -> FileEvent | None:
        candidates = [
            event
            for event in self._known(path).values()
            if event.is_new_body and event.body == body
        ]
        if (
            len(candidates) > 1
        ):  # one of them may lie on another line, which this merge does not contain
            candidates = [
                event for event in candidates if self._history.descends(merge, event.revision)
            ]
        return max(candidates, key=_order, default=None)

    def _known(self, path: str) -> dict[RevisionId, FileEvent]:
        known = self._of.get(path)
        if known is None:
            events = events_of(self._database, path)
            known = self._of[path] = {event.revision: event for event in events}
        return known

    def _put(self, event: FileEvent) -> None:
        self._known(event.path)[event.revision] = event
        self._added[event.path, event.revision] = None


def _origin(path: str, blob: ObjectId, events: Sequence[FileEvent]) -> FileOrigin | None:
    """Return the origin of a file with these bytes, from all its events."""
    changes = [event for event in events if event.is_change]
    updates = [event for event in changes if event.blob == blob]
    if not updates:
        return None
    update = max(updates, key=_order)
    said = [event for event in events if event.is_new_body and event.body == update.body]
    speaker = max(said, key=_order, default=update)
    # a file that one side deleted while the other changed it never ended
    present = [event for event in changes if event.blob is not None]
    deleted = max((event.place for event in changes if event.blob is None), default="")
    life = [event for event in present if event.place > deleted] or present
    return FileOrigin(
        WorkspacePath(path),
        blob,
        update.revision,
        created_at=min(update.at, *(event.created_at for event in life)),
        updated_at=update.at,
        source=speaker.source,
        author=speaker.author,
    )


def _order(event: FileEvent) -> tuple[str, RevisionId]:
    return event.place, event.revision


def _place(committed: int, at: Stamp) -> str:
    return f"{committed:014d} {at}"
