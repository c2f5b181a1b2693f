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


def is_busy(error: sqlite3.Error) -> bool:
    return name_of(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def name_of(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "")
