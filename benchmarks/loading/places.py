"""Where servers keep what they share: one home, or records of all machines and files in S3."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.dynamodb_server import REGION
from tests.harness.cli.terminal import ROOT, Terminal
from tests.postgres_server import postgres_in
from tests.servers import BUCKET, free_port, seaweedfs_in, wait_until_answered

TABLE = "records"
WAIT_S = 60.0


@dataclass(frozen=True)
class Place:
    """The homes of the servers, one for each: the same one, or one of its own."""

    homes: tuple[Terminal, ...]
    key: str


@dataclass(frozen=True)
class Stores:
    """The programs that the command line names."""

    ministack: str | None = None


Opened = Generator[Place]


@contextmanager
def sqlite(directory: Path, servers: int, stores: Stores) -> Opened:
    """One home, whose records all servers share."""
    del stores
    home = Terminal(directory / "home", {})
    yield Place((home,) * servers, _key(home))


@contextmanager
def dynamodb(directory: Path, servers: int, stores: Stores) -> Opened:
    """Records in moto's DynamoDB, a home for each server, files in S3."""
    del stores
    command = [sys.executable, "-m", "benchmarks.loading.moto_server"]
    with _started(command, directory / "moto.log") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with _on_dynamodb(directory, servers, url) as place:
            yield place


@contextmanager
def ministack(directory: Path, servers: int, stores: Stores) -> Opened:
    """Records in ministack's DynamoDB. It is installed elsewhere, because its requirements are not ours."""
    assert stores.ministack is not None
    port = str(free_port())
    variables = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": port, "HOME": str(directory)}
    variables |= {"TMPDIR": str(directory), "PATH": os.defpath}
    command = [stores.ministack]
    with _started(command, directory / "ministack.log", variables) as process:
        url = f"http://127.0.0.1:{port}"
        if not wait_until_answered(process, f"{url}/_localstack/health"):
            raise RuntimeError((directory / "ministack.log").read_text()[-2000:])
        with _on_dynamodb(directory, servers, url) as place:
            yield place


@contextmanager
def postgresql(directory: Path, servers: int, stores: Stores) -> Opened:
    """Records in a PostgreSQL that flushes to the disk, a home for each server, files in S3."""
    del stores
    # The path of a socket must be short.
    with (
        tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as place,
        postgres_in(Path(place), fsync="on", full_page_writes="on") as server,
        _sharing(directory, servers, {"HARNESS_RECORDS": server.address()}) as homes,
    ):
        homes[0]("admin", "init-postgres").done()
        yield Place(homes, _key(homes[0]))


PLACES: Mapping[str, Callable[[Path, int, Stores], object]] = {
    "sqlite": sqlite,
    "dynamodb": dynamodb,
    "ministack": ministack,
    "postgresql": postgresql,
}


@contextmanager
def _on_dynamodb(directory: Path, servers: int, url: str) -> Opened:
    variables = {
        "AWS_ENDPOINT_URL_DYNAMODB": url,
        "AWS_DEFAULT_REGION": REGION,
        "HARNESS_RECORDS": f"dynamodb:{TABLE}",
    }
    with _sharing(directory, servers, variables) as homes:
        homes[0]("admin", "init-dynamodb", TABLE).done()
        yield Place(homes, _key(homes[0]))


@contextmanager
def _sharing(
    directory: Path, servers: int, variables: Mapping[str, str]
) -> Generator[tuple[Terminal, ...]]:
    (directory / "weed").mkdir()
    with seaweedfs_in(directory / "weed") as s3:
        shared = {**s3.environment(), **variables, "HARNESS_S3": f"s3://{BUCKET}/load"}
        yield tuple(Terminal(directory / f"home{number}", shared) for number in range(servers))


def _key(home: Terminal) -> str:
    return str(home("key", "create", "--json").done().json["key"])


@contextmanager
def _started(
    command: list[str], log: Path, variables: Mapping[str, str] | None = None
) -> Generator[subprocess.Popen[str]]:
    """Start a store, and end it by its own process id."""
    with ExitStack() as stack:
        process = subprocess.Popen(
            command,
            cwd=ROOT if variables is None else log.parent,
            env=None if variables is None else dict(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if variables is None else subprocess.DEVNULL,
            stderr=stack.enter_context(log.open("w")),
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=WAIT_S)
