"""Locations of stores: turns text such as "s3://bucket/prefix" into a store. Only this file names adapters.

    blobs     file:/absolute/directory · s3://bucket/prefix · memory:
    records   sqlite:file · dynamodb:table · postgresql://user@host/database · memory:
    bucket    s3://bucket/prefix

An adapter is imported when a location needs it: a command without S3 does not wait for boto3.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from workspaces.clock import Clock
from workspaces.errors import Refused, Unavailable
from workspaces.paths import broken_rule
from workspaces.storage.blobs import BlobStore
from workspaces.storage.postgres.address import is_address, shown
from workspaces.storage.records import RecordStore

if TYPE_CHECKING:
    from workspaces.remote.bucket import SharedBucket
    from workspaces.storage.s3.blobs import S3Blobs

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")

BLOB_FORMS = "file:/directory, s3://bucket/prefix or memory:"
RECORD_FORMS = "sqlite:file, dynamodb:table, postgresql://user@host/database or memory:"


def blobs_at(location: str, *, field: str = "storage") -> BlobStore:
    """Return the blob store at `location`, the value of the setting `field`.

    In a directory it creates two directories: `blobs` with the files under their names, and `staging`.

    Raises: Refused if `location` is invalid. Unavailable if the directories cannot be created.
    """
    kind, colon, place = location.partition(":")
    match kind:
        case "file":
            return _files(_absolute(place, location, field))
        case "s3":
            return _s3(place, location, field)
        case "memory" if colon and not place:
            from workspaces.storage.in_memory import MemoryBlobs

            return MemoryBlobs()
        case _:
            raise Refused(field, location, f"must be {BLOB_FORMS}")


def bucket_at(location: str) -> SharedBucket:
    """Return the bucket in which machines share their workspaces.

    Raises: Refused if `location` does not have the form s3://bucket/prefix.
    """
    from workspaces.remote.bucket import SharedBucket

    kind, _, rest = location.partition(":")
    if kind != "s3":
        raise Refused("s3", location, "must be written s3://bucket/prefix")
    return SharedBucket(location, _s3(rest, location, "s3"))


def are_shared(records: str) -> bool:
    """Return True if other machines can use these records too."""
    return records.startswith("dynamodb:") or is_address(records)


def is_database(records: str) -> bool:
    """Return True if a PostgreSQL server keeps these records."""
    return is_address(records)


def shown_records(records: str) -> str:
    """Return the location of records for a person, without a password."""
    return shown(records)


def local_file(records: str, base: Path) -> Path | None:
    """Return the file of a record store on this machine; None for another kind of store."""
    kind, _, place = records.partition(":")
    return base / place if kind == "sqlite" and place else None


def records_at(
    location: str, *, base: Path | None = None, clock: Clock | None = None
) -> RecordStore:
    """Return the record store at `location`. A relative file is below `base`, if that is given.

    Raises: Refused if `location` is invalid.
    """
    kind, colon, place = location.partition(":")
    match kind:
        case "sqlite" if place:
            from workspaces.storage.sqlite import SqliteRecords

            file = str(base / place) if base else place
            return SqliteRecords(_absolute(file, location, "records"), clock=clock)
        case "dynamodb" if _TABLE.fullmatch(place):
            from workspaces.storage.dynamodb.records import DynamoRecords

            return DynamoRecords(place, clock=clock)
        case "postgresql" | "postgres" if is_address(location):
            from workspaces.storage.postgres.records import PostgresRecords

            return PostgresRecords(location, clock=clock)
        case "memory" if colon and not place:
            from workspaces.storage.in_memory import MemoryRecords

            return MemoryRecords(clock)
        case _:
            raise Refused("records", shown(location), f"must be {RECORD_FORMS}")


def make_record_table(table: str) -> None:
    """Create the DynamoDB table that `dynamodb:<table>` needs. Return when it is usable.

    Raises: Refused if the name is invalid or an existing table has other keys.
    """
    if not _TABLE.fullmatch(table):
        raise Refused("table", table, "must be 3 to 255 letters, digits, '.', '_' and '-'")
    from workspaces.storage.dynamodb.table import create_table

    create_table(table)


def make_postgres_table(address: str) -> None:
    """Create the table that `postgresql://…` needs.

    Raises: Refused if the address is malformed or an existing table has other columns. Unavailable.
    """
    if not is_address(address):
        raise Refused(
            "records", shown(address), "is not postgresql://user:password@host:port/database"
        )
    from workspaces.storage.postgres.table import create_table

    create_table(address)


def _files(directory: Path) -> BlobStore:
    from workspaces.tree.directory import FileBlobs

    root, staging = directory / "blobs", directory / "staging"
    try:
        for path in (root, staging):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"directory {directory}",
            error.strerror or str(error),
            remedy="name a directory that you can write",
        ) from error
    return FileBlobs(root, staging)


def _s3(place: str, location: str, field: str) -> S3Blobs:
    if not place.startswith("//"):
        raise Refused(field, location, "must be written s3://bucket/prefix")
    bucket, _, prefix = place.removeprefix("//").removesuffix("/").partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise Refused(
            field, location, "must name a bucket: 3 to 63 lower-case letters, digits, dots, hyphens"
        )
    broken = broken_rule(prefix) if prefix else None
    if broken is not None:
        raise Refused(field, location, f"has a prefix that {broken}")

    from workspaces.storage.s3.blobs import S3Blobs

    return S3Blobs(bucket, prefix)


def _absolute(place: str, location: str, field: str) -> Path:
    path = Path(place)
    if not path.is_absolute() or "\0" in place:
        raise Refused(field, location, "must have an absolute path after the colon")
    return path
