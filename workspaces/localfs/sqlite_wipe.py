"""Remove the bytes of deleted rows from a SQLite file and from its log.

SQLite leaves deleted bytes in free pages, at the ends of used pages, and in the log. `erase_deleted` writes
every page anew and empties the log. Readers of an old state hold it up while they read.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from workspaces.errors import Busy, Unavailable
from workspaces.localfs.sqlite_file import DAMAGED, LOCKED, erase_deleted, explained, is_busy

WAIT_S = 30.0
"""Seconds to wait for transactions of other processes. They take milliseconds."""

_PAUSE_S = 0.01


def wipe(
    file: Path,
    delete: Callable[[sqlite3.Connection], object] = lambda _: None,
) -> None:
    """Let `delete` delete rows, then remove the bytes of all deleted rows. May be repeated.

    Do nothing if there is no file.

    Raises: Busy while other processes use the file for longer than `WAIT_S`. Unavailable.
    """
    if not file.exists():
        return
    give_up_at = time.monotonic() + WAIT_S
    try:
        with closing(sqlite3.connect(file, isolation_level=None, timeout=WAIT_S)) as database:
            database.execute("pragma temp_store = memory")
            delete(database)
            while not erase_deleted(database):
                if time.monotonic() > give_up_at:
                    raise Busy(f"file {file.name}", holder="another process that reads it")
                time.sleep(_PAUSE_S)
    except sqlite3.Error as error:
        if is_busy(error):
            raise Busy(f"file {file.name}", holder="another process") from error
        reason, remedy = explained(error, damaged=(DAMAGED, LOCKED[1]))
        raise Unavailable(f"file {file.name}", reason, remedy=remedy) from error
