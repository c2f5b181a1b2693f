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
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

PASSWORD = "p@ss/word %"
"""With characters that an address must encode."""
USER = "harness"
READY_S_MAX = 120
PACKAGE_USER = "postgres"

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
