"""SQLite files: what all that keep something in one do alike. Their tables are their own."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_PAUSE_S = 0.005


def use_log(database: sqlite3.Connection, *, wait_s: float) -> None:
    """Step to WAL. This step alone fails at once when others take it too, whatever the busy timeout
    says: 65 of 900 openings of new files did, six processes at a time."""
    give_up_at = time.monotonic() + wait_s
    while True:
        try:
            database.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > give_up_at:
                raise
        time.sleep(_PAUSE_S)


@contextmanager
def transaction(database: sqlite3.Connection, kind: str = "IMMEDIATE") -> Generator[None]:
    """All of it or nothing, also when it is the end that fails."""
    database.execute(f"BEGIN {kind}")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def remove(file: Path) -> None:
    """A database that nobody has open, with what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


DAMAGED = "the file is damaged"
LOCKED = ("it is locked by another process", "end the process that holds it, then try again")


def explained(error: sqlite3.Error, *, damaged: tuple[str, str]) -> tuple[str, str]:
    """What it means, and a remedy. `damaged`: both, for a file that is."""
    name = name_of(error)
    if is_busy(error):
        return LOCKED
    if name.startswith("SQLITE_FULL"):
        return "the disk is full", "free some space and try again; nothing was half-written"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return "it cannot be written", "check that the home exists and belongs to you"
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return damaged
    if name.startswith("SQLITE_IOERR"):
        # also a disk too full for what WAL keeps beside the file
        return f"the disk fails ({name})", "check that the disk has space and works, then try again"
    return str(error), "try again; if it stays so, run `harness doctor`"


def is_busy(error: sqlite3.Error) -> bool:
    return name_of(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def name_of(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "")
