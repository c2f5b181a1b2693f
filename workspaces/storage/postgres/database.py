"""Connections to one PostgreSQL database. Only this file uses the driver; it translates its exceptions.

A pool lends each connection to one thread at a time, as that of the SQLite file does. It is our own, because
the driver's pool connects in threads of its own and tells a caller only that its time is up, not why. What a
caller needs is the server's own reason, at once. Connections belong to the process that opened them. A forked
child finds none and opens its own.

Nothing waits for ever. The server ends a transaction that waits for a lock or whose client is silent. The
client gives up a server that does not answer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, LiteralString, NamedTuple, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from workspaces.errors import Unavailable
from workspaces.storage.attempts import AnswerLost, Throttled
from workspaces.storage.postgres.address import check_form, refused, secrets_of, shown
from workspaces.storage.records import STORE_NAME

CONNECTIONS_MAX = 10
"""Connections of one process. A server allows a hundred in all unless it is told otherwise."""

WAIT_FOR_CONNECTION_S = 20.0
CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 35.0
"""Longer than the server's own limits, whose reasons tell more."""

WAIT_FOR_LOCK = "20s"
STATEMENT = "30s"
SILENT_CLIENT = "10s"
"""A client that stops in the middle of a batch holds the locks of its items for so long and no longer."""

VERSION_MIN = 13
"""The first with `pg_xact_status`; older ones get no corrections any more."""

_DEFAULTS = {
    "application_name": "workspace-harness",
    "client_encoding": "UTF8",  # of names and messages; keys and values are bytes
    "connect_timeout": str(CONNECT_TIMEOUT_S),
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
_PREPARE = """
select pg_postmaster_start_time()::text, version(),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('lock_timeout', %s, false),
    set_config('statement_timeout', %s, false),
    set_config('idle_in_transaction_session_timeout', %s, false),
    set_config('synchronous_commit', case current_setting('synchronous_commit')
        when 'off' then 'on' else current_setting('synchronous_commit') end, false)
"""
"""A returned write is durable, whatever the server's own setting says. It may say more than `on`."""

_REPEAT = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.OutOfMemory,  # of locks
    errors.InvalidSqlStatementName,  # a proxy has dropped what was prepared
)
_ENDED = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleInTransactionSessionTimeout,
)
"""The last words of a connection, which may arrive before its end does."""

_TABLE_REMEDY = "run `harness admin init-postgres`, or check the database and its search_path"
_AGAIN = "try again in a moment"

T = TypeVar("T")
ResultRow = tuple[Any, ...]
Statement = tuple[LiteralString, Sequence[Any]]


class TransactionId(NamedTuple):
    """A transaction, for the question what became of it."""

    number: str
    server_start: str
    """A number means something else on a server that another one has replaced."""


class DatabaseConnection(psycopg.Connection[ResultRow]):
    """A connection that gives up a silent server."""

    server_start = ""

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        try:
            return super().wait(gen, interval, timeout or ANSWER_TIMEOUT_S)
        except errors._WaitTimeout as error:  # pyright: ignore[reportPrivateUsage]
            self.pgconn.finish()
            raise psycopg.OperationalError("the server does not answer") from error

    def ask(self, *statements: Statement) -> list[list[ResultRow]]:
        """Send all statements at once. Return their rows."""
        if len(statements) == 1:
            cursors = [self._cursor(statements[0])]
        else:
            with self.pipeline():
                cursors = [self._cursor(statement) for statement in statements]
        return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

    def begin(self, *statements: Statement) -> list[list[ResultRow]]:
        """Begin a transaction with these statements, in one request. Return their rows.

        They are not sent as a pipeline. At its end the driver asks for a flush, and after that PostgreSQL no
        longer measures how long its client is silent in a transaction.
        """
        text = "; ".join(("begin", *(text for text, _ in statements)))
        cursor = psycopg.ClientCursor(self)
        cursor.execute(text, [argument for _, arguments in statements for argument in arguments])
        return [cursor.fetchall() for _ in statements if cursor.nextset()]

    def _cursor(self, statement: Statement) -> psycopg.Cursor[ResultRow]:
        text, arguments = statement
        return self.cursor(binary=True).execute(text, arguments or None)


class _Pool:
    """The connections of one process that no thread uses, and the places for those that are in use."""

    def __init__(self) -> None:
        self.idle: list[DatabaseConnection] = []
        self.places = threading.BoundedSemaphore(CONNECTIONS_MAX)


class Database:
    """The connections to one database."""

    def __init__(self, address: str) -> None:
        """Read the address. Nothing is connected yet.

        Raises: Refused if the address is malformed.
        """
        check_form(address)
        try:
            given = conninfo_to_dict(address)
            defaults = {name: value for name, value in _DEFAULTS.items() if name not in given}
            self._address = make_conninfo(address, **defaults)
        except psycopg.ProgrammingError:  # its text may repeat what must not be shown
            rule = "has an option that PostgreSQL's client does not know, or a part that it cannot read"
            raise refused(address, rule) from None
        self.name = f"PostgreSQL ({shown(address)})"
        self._secrets = secrets_of(address)
        self._pools: dict[int, _Pool] = {}
        self._is_closed = False

    @contextmanager
    def connected(self) -> Generator[DatabaseConnection]:
        """Lend a connection.

        Raises: AnswerLost if it breaks. Throttled if a statement failed and should be sent again.
        Unavailable.
        """
        pool = self._pools.setdefault(os.getpid(), _Pool())
        if not pool.places.acquire(timeout=WAIT_FOR_CONNECTION_S):
            raise self.unavailable("all connections of this process are in use", _AGAIN)
        connection: DatabaseConnection | None = None
        try:
            connection = self._idle(pool) or self._connect()
            yield connection
        except psycopg.Error as error:
            if connection is not None and connection.closed:
                _close_all(pool)  # those that the server has ended with this one
            raise self._translated(error, connection) from error
        finally:
            if connection is not None:
                self._give_back(pool, connection)
            pool.places.release()

    def has_committed(self, transaction: TransactionId) -> bool | None:
        """Return True if a transaction whose end was not heard of was committed, None if it has not ended.

        Raises: Unavailable if this server cannot know.
        """
        with self.connected() as connection:
            if connection.server_start != transaction.server_start:
                raise self.unknown()
            question = "select pg_xact_status(%s::xid8)"
            (((status,),),) = connection.ask((question, (transaction.number,)))
        if status is None:
            raise self.unknown()
        return None if status == "in progress" else status == "committed"

    def close(self) -> None:
        """Close the connections of this process. Running calls end normally; later calls are refused."""
        self._is_closed = True
        if (pool := self._pools.get(os.getpid())) is not None:
            _close_all(pool)

    def unavailable(self, reason: str, remedy: str | None = None) -> Unavailable:
        for secret in self._secrets:
            reason = reason.replace(secret, "…")
        return Unavailable(self.name, reason, remedy=remedy, store=STORE_NAME)

    def unknown(self) -> Unavailable:
        return self.unavailable(
            "the connection broke in the middle of a write, which may have happened",
            "read the records again before continuing",
        )

    def foreign(self) -> Unavailable:
        return self.unavailable(
            "it contains an item that this program did not write", _TABLE_REMEDY
        )

    def _idle(self, pool: _Pool) -> DatabaseConnection | None:
        while pool.idle:
            try:
                connection = pool.idle.pop()
            except IndexError:  # another thread took the last one
                return None
            if not connection.closed:
                return connection
        return None

    def _give_back(self, pool: _Pool, connection: DatabaseConnection) -> None:
        is_idle = connection.info.transaction_status == TransactionStatus.IDLE
        if is_idle and not self._is_closed:
            pool.idle.append(connection)
        else:
            connection.close()

    def _connect(self) -> DatabaseConnection:
        if self._is_closed:
            raise self.unavailable("it has been closed")
        try:
            connection = DatabaseConnection.connect(self._address, autocommit=True)
        except psycopg.Error as error:
            raise self._no_connection(str(error)) from error
        version = connection.info.server_version // 10_000
        if version < VERSION_MIN:
            connection.close()
            raise self.unavailable(f"it has version {version}; {VERSION_MIN} or newer is needed")
        try:
            (((connection.server_start, product, *_),),) = connection.ask(
                (_PREPARE, (WAIT_FOR_LOCK, STATEMENT, SILENT_CLIENT))
            )
            if not product.startswith("PostgreSQL"):
                remedy = "name a PostgreSQL server: others may accept its locks and not keep them"
                raise self.unavailable(f"it is another product ({product[:40]})", remedy)
        except BaseException:
            connection.close()
            raise
        return connection

    def _no_connection(self, reason: str) -> Unavailable:
        reason = " ".join(reason.split())
        if "FATAL" in reason:  # the server answered, and refused
            remedy = "check user, password and database in HARNESS_RECORDS, PGPASSWORD or the password file"
        else:
            remedy = "check that the server runs, and its host and port in HARNESS_RECORDS"
        return self.unavailable(reason, remedy)

    def _translated(self, error: psycopg.Error, connection: DatabaseConnection | None) -> Exception:
        """Return the exception for an error of the driver."""
        if connection is None or connection.closed or isinstance(error, _ENDED):
            reason = " ".join(str(error).split()) or "the connection broke"
            return AnswerLost(self.unavailable(f"no answer came: {reason}", _AGAIN))
        reason = error.diag.message_primary or str(error)
        match error:
            case _ if isinstance(error, _REPEAT):
                return Throttled(self.unavailable(f"it is busy ({reason})", _AGAIN))
            case errors.LockNotAvailable() | errors.QueryCanceled():
                return self.unavailable("too many writers change the same item", _AGAIN)
            case errors.UndefinedTable() | errors.InvalidSchemaName():
                return self.unavailable("its table does not exist", _TABLE_REMEDY)
            case errors.UndefinedColumn() | errors.InvalidColumnReference():
                return self.unavailable("its table has other columns", _TABLE_REMEDY)
            case errors.InsufficientPrivilege():
                remedy = "grant select, insert, update and delete on the table to this user"
                return self.unavailable(reason, remedy)
            case errors.ReadOnlySqlTransaction():
                remedy = "name the primary server, or add target_session_attrs=read-write"
                return self.unavailable("it takes no writes", remedy)
            case _:
                return self.unavailable(f"{reason} ({error.sqlstate or type(error).__name__})")


def _close_all(pool: _Pool) -> None:
    with suppress(IndexError):
        while True:
            pool.idle.pop().close()
