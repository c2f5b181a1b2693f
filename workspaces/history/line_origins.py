"""Origins: which revision wrote each line of each file, kept at hand.

`git blame` walks a file's history for each question; here every revision is looked at once. The
database remembers the tip it has come to, and whoever asks first brings it from there to the present
one: one call of `git log` names what the new revisions changed, and where a line is equal in two
successive versions it keeps its origin. A file that was only given another name keeps its lines'.
So writers do nothing for it, a crash loses nothing but the time to catch up again, and the whole can
be thrown away at any moment.

A stamp is kept as it could be believed when the database met its revision: one from a clock far ahead
makes nothing young for longer than a day. This is the one thing that is lost with the database: who
builds it again meets every revision anew.

A merge is the one step where the former version does not tell all: its changed files are asked of
`git blame`. So are the files between two tips when the old one is not on the first-parent line of
the new one; and when it is no ancestor at all, everything starts anew.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from workspaces.errors import NotFound, Unavailable
from workspaces.history.git.objects import ObjectId
from workspaces.history.history import LOG_ENTRIES_MAX, History
from workspaces.history.line_matching import shared, split_lines
from workspaces.history.line_origin_table import (
    Lines,
    OriginRow,
    believable_stamps,
    connected,
    decoded,
    encoded,
    ids_of,
    move_tip,
    number_of,
    reset,
    row_of,
    stamps_of,
    tip_of,
)
from workspaces.history.revision_step import BlobChange, RevisionStep
from workspaces.localfs.sqlite_file import remove, transaction
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId
from workspaces.timestamp import Stamp

STEPS_MAX = 500
"""Revisions in one transaction: others come in between, and a crash loses no more than these."""

BLOBS_KEPT = 16
"""What one revision wrote is what the next one changed."""

_T = TypeVar("_T")
_ReadLines = Callable[[ObjectId], list[bytes]]


@dataclass(frozen=True, slots=True)
class Times:
    """The stamps of the first and of the newest revision that touched a path, as far as believable."""

    created_at: Stamp
    updated_at: Stamp


class LineOrigins:
    """Threads and processes may share the file."""

    def __init__(self, file: Path, history: History) -> None:
        self._file = file
        self._history = history
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def origins(self, path: WorkspacePath) -> list[RevisionId]:
        """One for each line of the file in the newest revision. NotFound when it has no such file."""

        def read(database: sqlite3.Connection) -> list[RevisionId]:
            row = database.execute(
                "SELECT runs FROM origin_file WHERE path = ? AND blob IS NOT NULL", (path,)
            ).fetchone()
            if row is None:
                raise NotFound("file", path)
            lines = decoded(row[0])
            ids = ids_of(database, set(lines))
            return [ids[number] for number in lines]

        return self._ask(read)

    def stamps(self, revisions: Collection[RevisionId]) -> dict[RevisionId, Stamp]:
        """The stamps that ages are counted from (`believable`, when each revision was met here), of those
        revisions that some line or file has come from."""
        return self._ask(lambda database: believable_stamps(database, revisions))

    def ages(self, path: WorkspacePath, revision: RevisionId) -> list[Stamp]:
        """For each line of the file as a revision has it, the stamp of its origin. A line that the
        newest revision no longer has counts as written by that revision itself. NotFound."""
        blob = self._history.find(revision, path)
        if blob is None:
            raise NotFound("file", path)

        def read(database: sqlite3.Connection) -> tuple[str | None, list[Stamp]]:
            row = row_of(database, path)
            if row is None:
                return None, []
            lines = decoded(row.runs)
            stamps = stamps_of(database, set(lines))
            return row.blob, [stamps[number] for number in lines]

        newest, stamps = self._ask(read)
        if newest == blob:
            return stamps
        met = self.stamps({revision}).get(revision)
        at = met or self._history.believable(self._history.commit(revision).at)
        lines = self._read_lines(blob)
        ages = [at] * len(lines)
        if newest is not None:
            for i, j in shared(self._read_lines(ObjectId(newest)), lines):
                ages[j] = min(at, stamps[i])
        return ages

    def updates(self, directory: str) -> dict[WorkspacePath, Stamp]:
        """When each file below a directory was last changed, in the newest revision or before."""
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
        """Also of a path that is no more. NotFound when no revision ever touched it."""

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

    def rebuild(self) -> None:
        """Forget everything, and come from the first revision to the newest one again."""
        with self._lock:
            reset(self._connected())
        self._ask(lambda _: None)

    def forget(self) -> None:
        """Leave nothing behind: the history is going away."""
        with self._lock:
            self._remove()

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _ask(self, read: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._lock:
            try:
                return self._caught_up(read)
            except (sqlite3.OperationalError, OSError) as error:
                raise Unavailable(self._file.name, str(error)) from error
            except sqlite3.DatabaseError:  # damaged: it holds nothing that is not in the history
                self._remove()
                return self._caught_up(read)

    def _caught_up(self, read: Callable[[sqlite3.Connection], _T]) -> _T:
        database = self._connected()
        while True:
            tip = self._history.tip()
            with transaction(database, "DEFERRED"):  # what is read belongs to the tip that was seen
                if tip_of(database) == tip:
                    return read(database)
            self._advance(database, tip)

    def _advance(self, database: sqlite3.Connection, tip: RevisionId | None) -> None:
        """As far as nobody else goes at the same time; then the caller looks again."""
        ahead = self._history.steps(tip_of(database), tip) if tip else None
        if ahead is None:
            reset(database)
            return
        read_lines = lru_cache(BLOBS_KEPT)(self._read_lines)
        for start in range(0, len(ahead), STEPS_MAX):
            steps = ahead[start : start + STEPS_MAX]
            with transaction(database):
                if tip_of(database) != steps[0].before:
                    return  # another process was faster
                for step in steps:
                    _take(database, self._history, step, read_lines)
                move_tip(database, steps[-1].revision)

    def _read_lines(self, blob: ObjectId) -> list[bytes]:
        return split_lines(self._history.read(blob))

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            self._connection = connected(self._file)
        return self._connection

    def _remove(self) -> None:
        self._disconnect()
        remove(self._file)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _take(
    database: sqlite3.Connection, history: History, step: RevisionStep, read_lines: _ReadLines
) -> None:
    """Bring every file that the step touches to where the step leads."""
    number = number_of(database, step.revision, history.believable(step.at))
    rows = {change.path: row_of(database, change.path) for change in step.changes}
    moved = {
        change.before: rows[change.path]
        for change in step.changes
        if change.before is not None and change.after is None
    }
    for change in step.changes:
        row = rows[change.path]
        first, newest = row.first if row else number, number
        lines: Lines = []
        if not step.is_plain or (row.blob if row else None) != change.before:
            lines = _blamed(database, history, step.revision, change)
            first, newest = _touched(database, history, change.path, number)
        elif change.after is not None:
            source = row if row and row.blob else moved.get(change.after)
            lines = _followed(read_lines, source, change.after, number)
        database.execute(
            "INSERT OR REPLACE INTO origin_file VALUES (?, ?, ?, ?, ?)",
            (change.path, change.after, first, newest, encoded(lines)),
        )


def _followed(
    read_lines: _ReadLines, source: OriginRow | None, after: ObjectId, number: int
) -> Lines:
    new = read_lines(after)
    lines = [number] * len(new)
    if source is not None and source.blob is not None:
        origins = decoded(source.runs)
        old = read_lines(ObjectId(source.blob))
        for i, j in shared(old, new):
            lines[j] = origins[i]
    return lines


def _blamed(
    database: sqlite3.Connection, history: History, revision: RevisionId, change: BlobChange
) -> Lines:
    if change.after is None:
        return []
    blamed = history.blame(WorkspacePath(change.path), revision)
    return [number_of(database, line.revision, history.believable(line.at)) for line in blamed]


def _touched(
    database: sqlite3.Connection, history: History, path: str, number: int
) -> tuple[int, int]:
    """The first and the newest revision that touched a path, where the steps do not tell."""
    found = history.log(path=WorkspacePath(path), limit=LOG_ENTRIES_MAX)
    if not found:
        return number, number
    ends = (found[-1], found[0])  # a log goes from the newest to the oldest
    first, newest = (
        number_of(database, revision.id, history.believable(revision.at)) for revision in ends
    )
    return first, newest
