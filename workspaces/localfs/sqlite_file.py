"""Open and use SQLite files: the part that all modules with an SQLite file share. Each has its own tables.

A reader of a WAL database needs a file beside it, which a full disk or a read-only one cannot take. Then the
database is opened as it lies on the disk: nobody else writes it there either. What a reader wants to bring up
to date first, it brings up to date in a copy in memory.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

WAIT_S = 30.0
"""Seconds to wait for another process that brings a rebuildable database up to date. It lets others in after
each transaction."""

_PAUSE_S = 0.005


def use_log(database: sqlite3.Connection, *, wait_s: float) -> None:
    """Switch to WAL. This step fails at once if other processes take it too, whatever the busy timeout is: 65
    of 900 openings of new files did, with six processes at a time."""
    give_up_at = time.monotonic() + wait_s
    while True:
        try:
            database.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > give_up_at:
                raise
        time.sleep(_PAUSE_S)


class ReadOnlyConnection(sqlite3.Connection):
    """A connection to a database that cannot be written now. It shows the database as it is on the disk."""


def open_for_reading(file: Path) -> ReadOnlyConnection:
    """Open a database that cannot be written now.

    Raises: sqlite3.OperationalError if it cannot be read either, or if a process left changes beside it that
    only a writer could bring in.
    """
    log = file.with_name(f"{file.name}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    ways = ("mode=ro",) if has_log else ("mode=ro", "mode=ro&immutable=1")
    for way in ways:
        database = sqlite3.connect(
            f"{file.absolute().as_uri()}?{way}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            factory=ReadOnlyConnection,
        )
        try:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            database.close()
            if way == ways[-1]:
                raise
        else:
            return database
    raise AssertionError  # the last way returns or raises


def open_rebuildable(
    file: Path, prepare: Callable[[sqlite3.Connection], None]
) -> sqlite3.Connection:
    """Open a database whose content can be made again. `prepare` makes its tables, if they are missing.

    If the disk takes no write, the database is opened for reading. If that does not work, it is in memory.
    """

    def writable() -> sqlite3.Connection:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        return sqlite3.connect(file, isolation_level=None, timeout=WAIT_S, check_same_thread=False)

    def in_memory() -> sqlite3.Connection:
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

    def prepared(database: sqlite3.Connection) -> sqlite3.Connection:
        try:
            if not isinstance(database, ReadOnlyConnection):
                use_log(database, wait_s=WAIT_S)
                database.execute("PRAGMA synchronous=NORMAL")
            prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    try:
        return prepared(writable())
    except sqlite3.OperationalError as error:
        if not is_unwritable(error):
            raise
    try:
        return prepared(open_for_reading(file))
    except sqlite3.OperationalError:  # no file, or one of another format
        return prepared(in_memory())


def copy_to_memory(database: sqlite3.Connection) -> sqlite3.Connection:
    """Return a copy of a database in memory, which can be changed, and close the original."""
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database.backup(copy)
    database.close()
    return copy


@contextmanager
def transaction(database: sqlite3.Connection, kind: str = "IMMEDIATE") -> Generator[None]:
    """Run the block as one transaction: all of it or nothing, even if the commit fails."""
    database.execute(f"BEGIN {kind}")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def remove(file: Path) -> None:
    """Delete a database that no process has open, and the files that SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


def erase_deleted(database: sqlite3.Connection) -> bool:
    """Remove from the files what deleted and replaced rows have left in them. Return False if a reader keeps
    a part of the log: then the call must be repeated."""
    database.execute("PRAGMA secure_delete=ON")
    database.execute("VACUUM")
    is_busy_now, _, _ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not is_busy_now


def is_damaged(file: Path) -> bool:
    """Return True if SQLite cannot read the whole file. A missing file is not damaged.

    Raises: sqlite3.Error if the file cannot be examined, for example because it is locked.
    """
    if not file.exists():
        return False
    try:
        database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return database.execute("pragma quick_check(1)").fetchone() != ("ok",)
        finally:
            database.close()
    except sqlite3.DatabaseError as error:
        if name_of(error).startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            return True
        raise


def move_aside(file: Path, to: Path) -> None:
    """Rename a database that no process has open, with the files that SQLite keeps beside it."""
    for suffix in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            file.with_name(file.name + suffix).rename(to.with_name(to.name + suffix))


DAMAGED = "the file is damaged"
LOCKED = ("the file is locked by another process", "end the process that holds it, then try again")


def explained(error: sqlite3.Error, *, damaged: tuple[str, str]) -> tuple[str, str]:
    """Return the meaning of an error, and a remedy. `damaged` is that pair for a damaged file."""
    name = name_of(error)
    if is_busy(error):
        return LOCKED
    if name.startswith("SQLITE_FULL"):
        return "the disk is full", "free some space and try again; nothing was written in part"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return "the file cannot be written", "check that the home exists and belongs to you"
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return damaged
    if name.startswith("SQLITE_IOERR"):
        # also a disk too full for the WAL file
        return (
            f"the disk reports an error ({name})",
            "check that the disk has space and works, then try again",
        )
    return str(error), "try again; if it fails again, run `harness doctor`"


def is_unwritable(error: sqlite3.Error) -> bool:
    """Return True if the disk does not take a write: it is full, read-only, or broken."""
    kinds = ("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_IOERR")
    return name_of(error).startswith(kinds)


def is_busy(error: sqlite3.Error) -> bool:
    return name_of(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def name_of(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "")
