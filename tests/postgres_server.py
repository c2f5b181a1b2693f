"""A PostgreSQL server for tests, on a Unix socket of its own, started when the first test asks for it.

Nothing that it holds is worth a flush to the disk. Under pytest-xdist every worker has its own server, and
every test a schema of its own. PostgreSQL refuses to run as root: there, it runs as the user of its package.
Where it is not installed its tests are skipped, visibly; in CI (`CI=true`) that is an error.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

PASSWORD = "p@ss/word %"
"""With characters that an address must encode."""
USER = "harness"
READY_S_MAX = 120
PACKAGE_USER = "postgres"

_COMMIT = b"\0commit\0"
"""As it is sent until the driver has prepared it, at its sixth use."""

_SCHEMAS = (f"test_{number}" for number in itertools.count())
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "autovacuum": "off",
    "listen_addresses": "",
    "port": "5432",
    "lc_messages": "C",
}


@dataclass(frozen=True, slots=True)
class PostgresServer:
    directory: Path
    process: subprocess.Popen[bytes]

    @property
    def socket(self) -> Path:
        return self.directory / ".s.PGSQL.5432"

    def address(
        self,
        schema: str = "public",
        *,
        user: str = USER,
        password: str = PASSWORD,
        host: str | None = None,
    ) -> str:
        """With the password in it, as people write it."""
        place = quote(str(self.directory), safe="") if host is None else host
        options = quote(f"-csearch_path={schema}", safe="")
        secret = quote(password, safe="")
        return f"postgresql://{user}:{secret}@{place}/postgres?options={options}"

    def run(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Arrange and look at what the product does not, as the owner of the server."""
        import psycopg

        with psycopg.connect(self.address(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), arguments or None)
            return cursor.fetchall() if cursor.description else []

    def new_schema(self) -> str:
        schema = next(_SCHEMAS)
        self.run(f"create schema {schema}")
        return schema


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with (
        tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as name,  # a socket's path is short
        postgres_in(Path(name)) as server,
    ):
        yield server


@pytest.fixture
def postgres_address(postgres: PostgresServer) -> str:
    """Of an empty table of its own."""
    from workspaces.storage.postgres.table import create_table

    address = postgres.address(postgres.new_schema())
    create_table(address)
    return address


def schema_of(address: str) -> str:
    return unquote(address).rpartition("search_path=")[2]


@contextmanager
def postgres_in(directory: Path, **settings: str) -> Iterator[PostgresServer]:
    """A server that keeps all it has in `directory`."""
    data, log = directory / "data", directory / "log"
    (directory / "password").write_text(PASSWORD)
    if os.geteuid() == 0:
        user = pwd.getpwnam(PACKAGE_USER)
        for path in (directory, directory / "password"):
            os.chown(path, user.pw_uid, user.pw_gid)
        directory.chmod(0o755)
    options = ["--no-sync", "--no-instructions", "--encoding=SQL_ASCII", "--no-locale"]
    options += ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={directory}/password"]
    made = subprocess.run(
        [*_as_package_user(), _program("initdb"), *options, "-D", str(data)],
        capture_output=True,
        text=True,
        timeout=READY_S_MAX,
        check=False,
        cwd=directory,
    )
    assert made.returncode == 0, made.stderr
    given = {**_SETTINGS, **settings, "unix_socket_directories": str(directory)}
    command = [*_as_package_user(), _program("postgres"), "-D", str(data)]
    command += [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    server = PostgresServer(directory, process)
    try:
        _wait_until_ready(server, log)
        yield server
    finally:
        process.send_signal(signal.SIGQUIT)  # at once: nothing is to be kept
        process.wait(timeout=READY_S_MAX)


def _wait_until_ready(server: PostgresServer, log: Path) -> None:
    import psycopg

    end = time.monotonic() + READY_S_MAX
    while True:
        try:
            psycopg.connect(server.address()).close()
            return
        except psycopg.OperationalError as error:
            is_over = server.process.poll() is not None or time.monotonic() > end
            if is_over:
                raise RuntimeError(f"postgres did not start: {log.read_text()}") from error
        time.sleep(0.02)


def _as_package_user() -> list[str]:
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam(PACKAGE_USER)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


def _program(name: str) -> str:
    """The newest that is installed. Debian keeps the programs of each version in a directory of its own."""
    places = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda one: float(one.parent.name)
    )
    found = shutil.which(name, path=os.pathsep.join(map(str, reversed(places)))) or shutil.which(
        name
    )
    if found is None:
        text = "postgresql is not installed"
        if os.environ.get("CI"):
            pytest.fail(text, pytrace=False)
        pytest.skip(text)
    return found


class PostgresWire:
    """Carries connections to the server. `next_ends` says what becomes of the next batches:

    "cut" ends the connection before the commit reaches the server; "lost" lets it commit and drops the
    answer;
    "" is carried through, as everything is once the list is empty.
    """

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.next_ends: list[str] = []
        self.commits = 0

    def carry(self, client: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as there, suppress(OSError):
            there.connect(str(self._server.socket))
            back = threading.Thread(target=_pump, args=(there, client))
            back.start()
            try:
                self._forward(client, there)
            finally:
                for end in (there, client):
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                back.join(timeout=READY_S_MAX)

    def _forward(self, client: socket.socket, there: socket.socket) -> None:
        while data := client.recv(2**20):
            end = ""
            if _COMMIT in data:
                self.commits += 1
                end = self.next_ends.pop(0) if self.next_ends else ""
            if end == "cut":
                return
            if end == "lost":
                client.shutdown(socket.SHUT_WR)  # the client hears no more
                there.sendall(data)
                return
            there.sendall(data)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(2**20):
            target.sendall(data)


@contextmanager
def wire_to(server: PostgresServer) -> Iterator[tuple[PostgresWire, str]]:
    """A wire, and the host and port at which it listens."""
    wire = PostgresWire(server)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            wire.carry(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield wire, f"127.0.0.1:{listener.server_address[1]}"
        listener.shutdown()
        thread.join(timeout=READY_S_MAX)
