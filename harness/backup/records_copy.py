"""The records of a backup: their copy, what they refer to, and what a restored home must not keep.

The copy is made by SQLite's online backup: one state of the file, while others go on writing.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from harness.backup.reader import YOUNG_S
from workspaces.errors import Refused, Unavailable
from workspaces.ids import AccountId, Namespace, WorkspaceId, namespace
from workspaces.localfs.sqlite_file import explained
from workspaces.storage.records import JsonObject

_WAIT_S = 60.0
_DAMAGED = ("the file is damaged", "`harness admin adopt` makes the records of workspaces again")

_DROPPED = (
    "delete from item where partition like 'conversation-lease:%' and sort = 'pulse'",
    "update item set counter = counter + 1, value = '{\"holder\": null}'"
    " where partition like 'conversation-lease:%' and sort = 'fence'",
    "delete from item where partition = 'jobs-claims'",
    "delete from item where partition like 'session:%'",
    "delete from item where partition like 'allowance:%' and sort like 'slot:%'",
)
"""Leases end with a new generation, so that no earlier holder passes a guard. Nobody is signed in by a
cookie, and no turn counts as running."""

_JOBS_DROPPED = ("webhook", "flush")
"""Notices of the past, and pushes of a machine that no longer is: a restored home syncs everything."""


class StoredReference(NamedTuple):
    """A workspace that the records name."""

    name: Namespace
    workspace: str
    is_shared: bool


def signature_of(file: Path) -> tuple[int, ...]:
    """Return numbers that change with every write to the records, as far as files show it."""
    found: list[int] = []
    for suffix in ("", "-wal"):
        try:
            status = file.with_name(file.name + suffix).stat()
        except FileNotFoundError:
            found += [0, 0, 0]
            continue
        if suffix and status.st_size == 0:
            found += [0, 0, 0]
        else:
            found += [status.st_size, status.st_mtime_ns, status.st_ino]
    return tuple(found)


def is_same(before: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """Return True if the records were not written between two signatures.

    A log that is gone was brought into the file before, or else the file has changed.
    """
    return (
        len(before) == len(now) == 6
        and before[:3] == now[:3]
        and now[3:] in (before[3:], (0, 0, 0))
    )


def copy_records(file: Path, to: Path) -> tuple[int, ...]:
    """Copy the records, as they are at one moment. Return their signature just before that.

    It is empty if they were written a moment before: the next write may then leave the same times.

    Raises: Unavailable.
    """
    try:
        os.close(os.open(to, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        uri = f"{file.absolute().as_uri()}?mode=rw"
        with (
            closing(
                sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None)
            ) as source,
            closing(sqlite3.connect(to, isolation_level=None)) as target,
        ):
            # Bring the log into the file, so that closing it later changes nothing.
            source.execute("pragma wal_checkpoint(passive)").fetchall()
            signature = _settled(signature_of(file))
            source.backup(target)
            target.execute("pragma journal_mode=delete").fetchall()
    except sqlite3.Error as error:
        raise Unavailable(f"record store {file}", *_explained(error)) from error
    except OSError as error:
        raise Unavailable(f"copy of {file}", error.strerror or str(error)) from error
    return signature


class RecordsCopy:
    """A copy of the records, for reading."""

    def __init__(self, file: Path) -> None:
        """Open the copy.

        Raises: Refused if SQLite finds it damaged.
        """
        self._database = sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            found = self._database.execute("pragma quick_check(1)").fetchone()
            self._database.execute("select count(*) from item").fetchone()
        except sqlite3.Error as error:
            self.close()
            raise Refused("state.db", None, f"cannot be read ({error})") from error
        if found != ("ok",):
            self.close()
            raise Refused("state.db", None, f"is damaged ({found[0]})")

    def close(self) -> None:
        self._database.close()

    def large_values(self) -> Iterator[tuple[str, str]]:
        """Yield each record that refers to a large value, with the name of the value."""
        rows = self._database.execute(
            "select partition, sort, value from item where value like '%\"large\"%'"
        )
        for partition, sort, text in rows:
            with suppress(ValueError, RecursionError):
                name = _large(json.loads(text))
                if name is not None:
                    yield f"{partition}/{sort}", name

    def workspaces(self) -> Iterator[StoredReference]:
        """Yield the workspaces of all accounts."""
        rows = self._database.execute(
            "select partition, value from item"
            " where partition like 'account:%' and sort like 'workspace:%'"
        )
        for partition, text in rows:
            with suppress(ValueError, LookupError, TypeError, RecursionError):
                record: Any = json.loads(text)
                account_id = AccountId(partition.removeprefix("account:"))
                config = record.get("config", {})
                provider = config.get("storage", {}).get("provider", "local")
                workspace_id = WorkspaceId(record["id"])
                name = namespace(account_id, workspace_id)
                yield StoredReference(name, str(record["name"]), provider == "s3")


def forget_the_past(file: Path) -> None:
    """Remove what a restored home must not keep: holders, claims, sessions, and notices of the past.

    Raises: Refused if the records are damaged.
    """
    try:
        with closing(sqlite3.connect(file, isolation_level=None)) as database:
            database.execute("begin immediate")
            for statement in _DROPPED:
                database.execute(statement)
            jobs = database.execute(
                "select sort, value from item where partition = 'jobs'"
            ).fetchall()
            for job_id, text in jobs:
                kind = str(json.loads(text)["kind"])
                if kind.partition(":")[0] in _JOBS_DROPPED:
                    database.execute(
                        "delete from item where (partition = 'jobs' and sort = ?)"
                        " or (partition = 'jobs-due' and substr(sort, instr(sort, ':') + 1) = ?)",
                        (job_id, job_id),
                    )
            database.execute("commit")
    except (sqlite3.Error, ValueError, LookupError, TypeError) as error:
        raise Refused("state.db", None, f"cannot be read ({error})") from error


def is_unused(file: Path) -> bool:
    """Return True if there are no records, or the store is empty.

    Raises: Refused if the file cannot be read: it may have been someone's records.
    """
    if not file.exists() or file.stat().st_size == 0:
        return True
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            has_table = database.execute(
                "select count(*) from sqlite_master where name = 'item'"
            ).fetchone()[0]
            return not has_table or database.execute("select 1 from item").fetchone() is None
    except sqlite3.Error as error:
        remedy = "move the file aside, or name an empty home with --home"
        raise Refused(str(file), None, f"cannot be read ({error})", remedy=remedy) from error


def _settled(signature: tuple[int, ...]) -> tuple[int, ...]:
    newest_s = max(signature[1], signature[4]) / 1e9
    return signature if newest_s < time.time() - YOUNG_S else ()


def _large(value: JsonObject) -> str | None:
    """Return the name of the large value that a record, or the event in it, refers to."""
    for one in (value, value.get("event")):
        if isinstance(one, dict):
            fields = cast("JsonObject", one)
            name = fields.get("large")
            if isinstance(name, str) and fields.keys() <= {"id", "large"}:
                return name
    return None


def _explained(error: sqlite3.Error) -> tuple[str]:
    reason, remedy = explained(error, damaged=_DAMAGED)
    return (f"{reason}; {remedy}",)
