"""Line origins: a database of the revision that wrote each line of each file.

`git blame` walks a file's history for each question. This database reads every revision once. It stores
the tip that it has reached. The first caller that asks a question brings it from there to the present
tip. One call of `git log` lists the changes of the new revisions. A line that is equal in two successive
versions keeps its origin. The lines of a file that was only renamed keep theirs too.
So writers do nothing for the database, a crash loses only the time to catch up again, and the database
can be deleted at any moment.

A stamp is stored as far as it was believable when the database first saw its revision. So a stamp from a
clock far ahead makes no line look new for longer than a day. This is the one fact that is lost with the
database: a rebuild sees every revision for the first time.

A merge is the one step that the former version does not explain: its changed files are read from
`git blame`. So are the files between two tips if the old tip is not on the first-parent line of the new
one. If the old tip is no ancestor at all, the database starts from the first revision.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from workspaces.errors import NotFound
from workspaces.history.git.objects import ObjectId
from workspaces.history.history import LOG_ENTRIES_MAX, History
from workspaces.history.line_matching import shared, split_lines
from workspaces.history.line_origin_table import (
    Lines,
    OriginRow,
    believable_stamps,
    connect,
    decode_runs,
    encode_runs,
    ids_of,
    move_tip,
    number_of,
    reset,
    row_of,
    stamps_of,
    tip_of,
)
from workspaces.localfs.rebuildable_database import RebuildableDatabase
from workspaces.localfs.sqlite_file import transaction
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId
from workspaces.timestamp import Stamp

if TYPE_CHECKING:
    from workspaces.history.revision_step import BlobChange, RevisionStep

STEPS_MAX = 500
"""Revisions in one transaction. Other processes get in between, and a crash loses at most these."""

BLOBS_KEPT = 16
"""Split blobs in the cache. The next revision often changes a blob that the last one wrote."""

_T = TypeVar("_T")
_ReadLines = Callable[[ObjectId], list[bytes]]


@dataclass(frozen=True, slots=True)
class Times:
    """The stamps of the first and the newest revision that touched a path, as far as believable."""

    created_at: Stamp
    updated_at: Stamp


class LineOrigins:
    """The line origins of one history. Threads and processes may share the database file."""

    def __init__(self, file: Path, history: History) -> None:
        self._database = RebuildableDatabase(file, connect)
        self._history = history

    def origins(self, path: WorkspacePath) -> list[RevisionId]:
        """Return the origin of each line of the file in the newest revision.

        Raises: NotFound when that revision has no such file."""

        def read(database: sqlite3.Connection) -> list[RevisionId]:
            row = database.execute(
                "SELECT runs FROM origin_file WHERE path = ? AND blob IS NOT NULL", (path,)
            ).fetchone()
            if row is None:
                raise NotFound("file", path)
            lines = decode_runs(row[0])
            ids = ids_of(database, set(lines))
            return [ids[number] for number in lines]

        return self._ask(read)

    def stamps(self, revisions: Collection[RevisionId]) -> dict[RevisionId, Stamp]:
        """Return the stamps to count ages from, for those revisions that are the origin of a line or file.
        Each was limited by `History.believable` when the database first saw its revision."""
        return self._ask(lambda database: believable_stamps(database, revisions))

    def ages(self, path: WorkspacePath, revision: RevisionId) -> list[Stamp]:
        """Return the stamp of each line's origin, for the file as `revision` has it. A line that the newest
        revision no longer has counts as written by `revision` itself.

        Raises: NotFound when the revision has no such file."""
        blob = self._history.find(revision, path)
        if blob is None:
            raise NotFound("file", path)

        def read(database: sqlite3.Connection) -> tuple[str | None, list[Stamp]]:
            row = row_of(database, path)
            if row is None:
                return None, []
            lines = decode_runs(row.runs)
            stamps = stamps_of(database, set(lines))
            return row.blob, [stamps[number] for number in lines]

        newest, stamps = self._ask(read)
        if newest == blob:
            return stamps
        stored = self.stamps({revision}).get(revision)
        at = stored or self._history.believable(self._history.commit(revision).at)
        lines = self._read_lines(blob)
        ages = [at] * len(lines)
        if newest is not None:
            for i, j in shared(self._read_lines(ObjectId(newest)), lines):
                ages[j] = min(at, stamps[i])
        return ages

    def updates(self, directory: str) -> dict[WorkspacePath, Stamp]:
        """Return the stamp of the last change of each path below a directory, in the newest revision or an
        earlier one. Deleted files are included."""
        prefix = f"{directory}/"

        def read(database: sqlite3.Connection) -> dict[WorkspacePath, Stamp]:
            rows = database.execute(
                "SELECT f.path, r.at FROM origin_file f JOIN origin_revision r ON r.number = f.newest"
                " WHERE f.path >= ? AND f.path < ?",
                (prefix, prefix + "\U0010ffff"),
            )
            return {WorkspacePath(path): Stamp(at) for path, at in rows}

        return self._ask(read)

    def times(self, path: WorkspacePath) -> Times:
        """Return when a path was first and last changed. Deleted paths have times too.

        Raises: NotFound when no revision ever touched the path."""

        def read(database: sqlite3.Connection) -> Times:
            row = database.execute(
                "SELECT a.at, b.at FROM origin_file f JOIN origin_revision a ON a.number = f.first"
                " JOIN origin_revision b ON b.number = f.newest WHERE f.path = ?",
                (path,),
            ).fetchone()
            if row is None:
                raise NotFound("file", path)
            return Times(Stamp(row[0]), Stamp(row[1]))

        return self._ask(read)

    def empty(self) -> None:
        """Empty the tables. Other processes that have the file open see that, and read the history again."""
        with self._database.held() as database:
            reset(database)

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
                if tip_of(database) == tip:
                    return read(database)
            self._advance(database, tip)

    def _advance(self, database: sqlite3.Connection, tip: RevisionId | None) -> None:
        """Bring the database towards `tip`. Return early if another process advances it meanwhile; the caller
        then checks again."""
        pending = self._history.steps(tip_of(database), tip) if tip else None
        if pending is None:  # the stored tip is no ancestor: start from the first revision
            reset(database)
            return
        read_lines = lru_cache(BLOBS_KEPT)(self._read_lines)
        for start in range(0, len(pending), STEPS_MAX):
            steps = pending[start : start + STEPS_MAX]
            with transaction(database):
                if tip_of(database) != steps[0].before:
                    return  # another process was faster
                for step in steps:
                    _apply_step(database, self._history, step, read_lines)
                move_tip(database, steps[-1].revision)

    def _read_lines(self, blob: ObjectId) -> list[bytes]:
        return split_lines(self._history.read(blob))


def _apply_step(
    database: sqlite3.Connection, history: History, step: RevisionStep, read_lines: _ReadLines
) -> None:
    """Store the origins of every file that the step changes."""
    number = number_of(database, step.revision, history.believable(step.at))
    rows = {change.path: row_of(database, change.path) for change in step.changes}
    removed = {
        change.before: rows[change.path]
        for change in step.changes
        if change.before is not None and change.after is None
    }
    for change in step.changes:
        row = rows[change.path]
        first, newest = row.first if row else number, number
        lines: Lines = []
        if not step.is_plain or (row.blob if row else None) != change.before:
            # the stored version does not explain the new one: ask git
            lines = _blame_lines(database, history, step.revision, change)
            first, newest = _first_and_newest(database, history, change.path, number)
        elif change.after is not None:
            # a new file with the bytes of a removed one was renamed: it keeps that file's origins
            source = row if row and row.blob else removed.get(change.after)
            lines = _carry_origins(read_lines, source, change.after, number)
        database.execute(
            "INSERT OR REPLACE INTO origin_file VALUES (?, ?, ?, ?, ?)",
            (change.path, change.after, first, newest, encode_runs(lines)),
        )


def _carry_origins(
    read_lines: _ReadLines, source: OriginRow | None, after: ObjectId, number: int
) -> Lines:
    new = read_lines(after)
    lines = [number] * len(new)
    if source is not None and source.blob is not None:
        origins = decode_runs(source.runs)
        old = read_lines(ObjectId(source.blob))
        for i, j in shared(old, new):
            lines[j] = origins[i]
    return lines


def _blame_lines(
    database: sqlite3.Connection, history: History, revision: RevisionId, change: BlobChange
) -> Lines:
    if change.after is None:
        return []
    blamed = history.blame(WorkspacePath(change.path), revision)
    return [number_of(database, line.revision, history.believable(line.at)) for line in blamed]


def _first_and_newest(
    database: sqlite3.Connection, history: History, path: str, number: int
) -> tuple[int, int]:
    """Return the numbers of the first and the newest revision that touched a path, from git's log. Used if
    the steps do not show them."""
    revisions = history.log(path=WorkspacePath(path), limit=LOG_ENTRIES_MAX)
    if not revisions:
        return number, number
    ends = (revisions[-1], revisions[0])  # a log goes from the newest to the oldest
    first, newest = (
        number_of(database, revision.id, history.believable(revision.at)) for revision in ends
    )
    return first, newest
