"""The table of records in PostgreSQL: creating it, and recognising it."""

from __future__ import annotations

from workspaces.errors import Refused
from workspaces.storage.attempts import Throttled
from workspaces.storage.postgres.database import Database, Statement

_COLUMNS = [
    ("partition", "bytea"),
    ("sort", "bytea"),
    ("counter", "bigint"),
    ("value", "bytea"),
    ("expires_at", "double precision"),
]
_ONE_AT_A_TIME: Statement = ("select pg_advisory_xact_lock(hashtext('harness_records'))", ())
_TABLE: Statement = (
    "create table if not exists harness_records ("
    " partition bytea not null, sort bytea not null, counter bigint not null, value bytea not null,"
    " expires_at double precision not null, primary key (partition, sort)"
    ") with (autovacuum_vacuum_scale_factor = 0.05)",  # leases change all the time
    (),
)
_EXPIRY: Statement = (
    "create index if not exists harness_records_expires on harness_records (expires_at)"
    " where expires_at < 'infinity'",
    (),
)
_FOUND: Statement = (
    "select attname::text, format_type(atttypid, atttypmod) from pg_attribute"
    " where attrelid = to_regclass('harness_records') and attnum > 0 and not attisdropped"
    " order by attnum",
    (),
)


def create_table(address: str) -> None:
    """Create the table in the first schema of the search path. An existing table stays as it is.

    Raises: Refused if the address is malformed or an existing table has other columns. Unavailable.
    """
    database = Database(address)
    try:
        with database.connected() as connection:
            (found,) = connection.ask(_FOUND)
            if not found:
                connection.ask(("begin", ()), _ONE_AT_A_TIME, _TABLE, _EXPIRY, ("commit", ()))
                (found,) = connection.ask(_FOUND)
    except Throttled as error:
        raise error.failure from error
    finally:
        database.close()
    if found != _COLUMNS:
        raise Refused(
            "table",
            "harness_records",
            "has other columns",
            remedy="choose another database, or another schema with ?options=-csearch_path%3DNAME",
        )
