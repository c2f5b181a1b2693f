"""A SQLite file whose content can be made again: a cache that no fault of a disk makes unusable.

A damaged file is deleted, and the caller's next question fills a new one. If the disk takes no write, the
database goes on in memory with what it holds.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from workspaces.errors import Unavailable
from workspaces.localfs.sqlite_file import copy_to_memory, is_unwritable, remove

_T = TypeVar("_T")


class RebuildableDatabase:
    """One connection to such a file. Threads may share it; they take turns."""

    def __init__(self, file: Path, connect: Callable[[Path], sqlite3.Connection]) -> None:
        """`connect` opens the file, and makes its tables if they are missing."""
        self.file = file
        self._connect = connect
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def ask(self, read: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return the answer of `read`, which may be called twice: it also writes what is missing.

        Raises: Unavailable if the database cannot be opened, or cannot be used for another reason than the
        two that are mended here.
        """
        with self._lock:
            try:
                return read(self._opened())
            except (sqlite3.OperationalError, OSError) as error:
                is_full = isinstance(error, sqlite3.Error) and is_unwritable(error)
                if self._connection is None or not is_full:
                    raise Unavailable(self.file.name, str(error)) from error
                # the disk takes no write: go on in memory
                self._connection = copy_to_memory(self._connection)
                return read(self._connection)
            except sqlite3.DatabaseError:  # damaged: the caller can make everything in it again
                self._remove()
                return read(self._opened())

    @contextmanager
    def held(self) -> Generator[sqlite3.Connection]:
        """Give the block a connection to write, and nobody else meanwhile. It is a new one: the present one
        may be for reading, or to a copy in memory, because the disk took no write once.

        Raises: Unavailable if the disk still takes none.
        """
        with self._lock:
            self._disconnect()
            try:
                yield self._opened()
            except sqlite3.OperationalError as error:
                raise Unavailable(self.file.name, str(error)) from error

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect(self.file)
        return self._connection

    def _remove(self) -> None:
        self._disconnect()
        remove(self.file)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
