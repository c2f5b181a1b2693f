"""Two servers that share records and S3, each with a home of its own: a file is one register for both.

Fifty clients read and write over HTTP, with conditions and without. Half of the time a bash command and an
editor write the same files. Under SOAK there are ten thousand operations.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness import Harness
from tests.dynamodb_server import REGION, dynamodb, dynamodb_url, make_table
from tests.harness.cli.terminal import COMMAND
from tests.harness.web import reads_without_asking
from tests.harness.web.linearizable import Operation, is_linearizable
from tests.harness.web.serving import Home, Server, home_at
from tests.servers import BUCKET, S3Server
from workspaces.ids import new_id, version_of
from workspaces.revision import Author

__all__ = ["dynamodb", "dynamodb_url"]

SOAK = bool(os.environ.get("SOAK"))
OPERATIONS = 10_000 if SOAK else 400
CLIENTS = 50
FILES = 20
ANSWER_S_MAX = 120
IDLE_S_MAX = 1.0
SHELL = Author("shell", "agent_1", "turn", {"Agent": "agent_1", "Conversation": "conv_1 c1"})


@dataclass
class Pair:
    """Two servers and the workspace `shared` of both."""

    homes: tuple[Home, Home]
    servers: tuple[Server, Server]
    workspace_id: str

    def path(self, name: str) -> str:
        return f"/v1/workspaces/{self.workspace_id}/files/{name}"


@pytest.fixture
def homes(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    seaweedfs: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Home, Home]:
    """Their records are in DynamoDB, unless a test asks for PostgreSQL."""
    shared = {**seaweedfs.environment(), "HARNESS_S3": f"s3://{BUCKET}/{new_id('test')}"}
    if getattr(request, "param", "dynamodb") == "postgres":
        shared["HARNESS_RECORDS"] = request.getfixturevalue("postgres_address")
    else:
        url, table = request.getfixturevalue("dynamodb_url"), new_id("table")
        make_table(url, table)
        shared |= {
            "AWS_ENDPOINT_URL_DYNAMODB": url,
            "AWS_DEFAULT_REGION": REGION,
            "HARNESS_RECORDS": f"dynamodb:{table}",
        }
    for name, value in shared.items():
        monkeypatch.setenv(name, value)
    return home_at(tmp_path / "a", **shared), home_at(tmp_path / "b", **shared)


@pytest.fixture
def pair(homes: tuple[Home, Home]) -> Iterator[Pair]:
    with opened(homes) as pair:
        yield pair


@contextmanager
def opened(homes: tuple[Home, Home], *, second: tuple[str, ...] = COMMAND) -> Generator[Pair]:
    a, b = homes
    with Harness.open(a.terminal.home) as harness:
        workspace_id = harness.rooms.workspaces.create("shared").record.id
    with a.served() as first, b.served(command=second) as other:
        yield Pair(homes, (first, other), workspace_id)


@dataclass
class Answer:
    status: int
    etag: str | None
    body: bytes
    headers: Any


class Client:
    """One connection to each server, kept open. The answers become operations."""

    def __init__(self, pair: Pair, histories: dict[str, list[Operation]], seed: int) -> None:
        self._pair = pair
        self._histories = histories
        self._rng = random.Random(seed)
        self._connections: dict[int, HTTPConnection] = {}
        self._used_at: dict[int, float] = {}
        self._known: dict[str, str | None] = {}
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.number = 0
        self.seed = seed

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *reason: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def act(self) -> None:
        name = f"{self._rng.randrange(FILES)}.md"
        server = self._rng.randrange(2)
        deed = self._rng.choices(
            [self.read, self.write, self.swap, self.create, self.remove, self.remove_known],
            [50, 20, 18, 4, 4, 4],
        )[0]
        deed(server, name)

    def read(self, server: int, name: str) -> None:
        begin = time.monotonic()
        answer = self.ask(server, "GET", name)
        if answer is not None and answer.status in {200, 404}:
            value = version_of(answer.body) if answer.status == 200 else None
            assert answer.status == 404 or answer.etag == f'"{value}"'
            self._known[name] = value
            self._tell(name, Operation("read", "done", begin, time.monotonic(), value))

    def write(self, server: int, name: str) -> None:
        self._put(server, name, {}, is_conditional=False)

    def swap(self, server: int, name: str) -> None:
        known = self._known.get(name)
        if known is None:
            return self.create(server, name)
        return self._put(server, name, {"If-Match": f'"{known}"'}, expects=known)

    def create(self, server: int, name: str) -> None:
        self._put(server, name, {"If-None-Match": "*"})

    def remove(self, server: int, name: str) -> None:
        self._delete(server, name, {}, is_conditional=False)

    def remove_known(self, server: int, name: str) -> None:
        known = self._known.get(name)
        if known is not None:
            self._delete(server, name, {"If-Match": f'"{known}"'}, expects=known)

    def _put(
        self,
        server: int,
        name: str,
        headers: dict[str, str],
        *,
        expects: str | None = None,
        is_conditional: bool = True,
    ) -> None:
        self.number += 1
        data = f"client {self.seed} wrote {self.number}\n".encode()
        begin = time.monotonic()
        answer = self.ask(server, "PUT", name, headers, data)
        status = None if answer is None else answer.status
        self._note("write", name, begin, status, version_of(data), expects, is_conditional)
        if status in {200, 201}:
            self._known[name] = version_of(data)

    def _delete(
        self,
        server: int,
        name: str,
        headers: dict[str, str],
        *,
        expects: str | None = None,
        is_conditional: bool = True,
    ) -> None:
        begin = time.monotonic()
        answer = self.ask(server, "DELETE", name, headers)
        status = None if answer is None else answer.status
        self._note("delete", name, begin, status, None, expects, is_conditional)

    def _note(
        self,
        kind: Any,
        name: str,
        begin: float,
        status: int | None,
        value: str | None,
        expects: str | None,
        is_conditional: bool,
    ) -> None:
        outcome: Any = "open"
        if status in {200, 201}:
            outcome = "done"
        elif status in {404, 412}:
            outcome = "refused"
        was_there = None if outcome != "done" else (status == 200)
        one = Operation(
            kind,
            outcome,
            begin,
            time.monotonic(),
            value,
            expects,
            is_conditional=is_conditional,
            was_there=was_there,
        )
        self._tell(name, one)

    def _tell(self, name: str, one: Operation) -> None:
        self._histories[name].append(one)

    def ask(
        self,
        server: int,
        method: str,
        name: str,
        headers: dict[str, str] | None = None,
        data: bytes | None = None,
    ) -> Answer | None:
        """The answer; None if it was lost."""
        at = self._pair.servers[server]
        connection = self._connections.get(server)
        used_at, self._used_at[server] = self._used_at.get(server, 0.0), time.monotonic()
        if connection is not None and time.monotonic() - used_at > IDLE_S_MAX:
            connection.close()  # the server may be closing it at this moment
            connection = None
        if connection is None:
            address = urlsplit(at.url).netloc
            connection = self._connections[server] = HTTPConnection(address, timeout=ANSWER_S_MAX)
        stated = {"Authorization": f"Bearer {at.key}", **(headers or {})}
        try:
            connection.request(method, self._pair.path(name), data, stated)
            answer: HTTPResponse = connection.getresponse()
            body = answer.read()
        except (OSError, HTTPException):
            self._connections.pop(server).close()
            self.statuses[method, 0] += 1
            return None
        self.statuses[method, answer.status] += 1
        assert answer.status in {200, 201, 404, 412, 503}, (method, name, answer.status, body)
        return Answer(answer.status, answer.getheader("ETag"), body, answer.headers)


@dataclass
class Traffic:
    histories: dict[str, list[Operation]] = field(
        default_factory=lambda: defaultdict[str, list[Operation]](list)
    )
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    seconds: float = 0.0

    def unlinearizable(self, *, has_others: bool = False) -> list[str]:
        return [
            name
            for name, history in sorted(self.histories.items())
            if not is_linearizable(history, has_others=has_others)
        ]


def run(pair: Pair, operations: int, clients: int = CLIENTS, *, seed: int = 0) -> Traffic:
    """Let the clients work, each one operation after another."""
    traffic = Traffic()
    begin = time.monotonic()

    def work(number: int) -> Client:
        with Client(pair, traffic.histories, seed * 1_000 + number) as client:
            for _ in range(operations // clients):
                client.act()
        return client

    with ThreadPoolExecutor(clients) as pool:
        for client in pool.map(work, range(clients)):
            traffic.statuses += client.statuses
    traffic.seconds = time.monotonic() - begin
    return traffic


class Others:
    """A bash command that holds the writer lock in one home, and an editor without it in the other."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._stop = threading.Event()
        self.saved: list[str] = []
        self._threads = [
            threading.Thread(target=self._loop, args=(work,))
            for work in (self._commands(), self._saves())
        ]

    def __enter__(self) -> Others:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(ANSWER_S_MAX)

    def _loop(self, work: Iterator[None]) -> None:
        for _ in work:
            if self._stop.wait(0.3):
                break

    def _commands(self) -> Iterator[None]:
        rng = random.Random(1)
        with Harness.open(self._pair.homes[0].terminal.home) as harness:
            place = harness.rooms.workspaces.get("shared")
            for number in range(10**6):
                line, name = f"bash {number} says so", f"{rng.randrange(FILES)}.md"
                with place.command(SHELL):
                    script = f"echo '{line}' >> {name}; sleep 0.05"
                    subprocess.run(["bash", "-c", script], cwd=place.root, check=True)
                self.saved.append(line)
                yield

    def _saves(self) -> Iterator[None]:
        rng = random.Random(2)
        with Harness.open(self._pair.homes[1].terminal.home) as harness:
            root = harness.rooms.workspaces.get("shared").root
        for number in range(10**6):
            line, name = f"editor {number} says so", f"{rng.randrange(FILES)}.md"
            file, beside = root / name, root.parent / f"{name}.{number}.tmp"
            before = file.read_text() if file.exists() else ""
            beside.write_text(f"{before}{line}\n")
            beside.rename(file)
            self.saved.append(line)
            yield


def settled(homes: tuple[Home, Home]) -> list[str]:
    """Sync both homes until both agree. Return the histories, as text."""
    machines = [Harness.open(home.terminal.home) for home in homes]
    try:
        for machine in (*machines, *machines):
            machine.rooms.workspaces.sync("shared").run()
        places = [machine.rooms.workspaces.get("shared") for machine in machines]
        trees = [{path: one.version for path, one in p.tree.scan().files.items()} for p in places]
        assert trees[0] == trees[1]
        return [
            _everything(machine, place.namespace)
            for machine, place in zip(machines, places, strict=True)
        ]
    finally:
        for machine in machines:
            machine.close()


def _everything(machine: Harness, namespace: Any) -> str:
    directory = machine.settings.home.history(namespace)
    git = ["git", f"--git-dir={directory}", "log", "-p", "-m", "--text", "--format=%H", "main"]
    return subprocess.run(git, capture_output=True, check=True).stdout.decode(errors="replace")


@pytest.mark.parametrize("homes", ["postgres"], indirect=True)
def test_a_write_at_one_server_is_seen_at_the_other_and_decides_there(pair: Pair) -> None:
    with Client(pair, defaultdict[str, list[Operation]](list), 0) as client:
        made = client.ask(0, "PUT", "a.md", data=b"one\n")
        assert made is not None and made.status == 201
        read = client.ask(1, "GET", "a.md")
        assert read is not None and (read.status, read.body) == (200, b"one\n")
        replaced = client.ask(1, "PUT", "a.md", data=b"two\n")
        assert replaced is not None and replaced.status == 200
        stale = client.ask(0, "PUT", "a.md", {"If-Match": str(made.etag)}, b"stale\n")
        assert stale is not None and stale.status == 412
    listed = [server.ask("GET", pair.path("")[:-1])["files"] for server in pair.servers]
    assert [[one["path"] for one in files if one["path"] == "a.md"] for files in listed] == [
        ["a.md"],
        ["a.md"],
    ]


def test_files_are_linearizable_registers_of_two_servers(pair: Pair) -> None:
    traffic = run(pair, OPERATIONS // 2)
    assert traffic.unlinearizable() == [], traffic.statuses
    print(traffic.statuses, f"{traffic.seconds:.1f} s")


@pytest.mark.parametrize("homes", ["postgres"], indirect=True)
def test_no_save_is_lost_while_others_write_the_same_files(pair: Pair) -> None:
    with Others(pair) as others:
        traffic = run(pair, OPERATIONS // 2, seed=1)
    print(traffic.statuses, f"{traffic.seconds:.1f} s", len(others.saved), "saves")
    assert traffic.unlinearizable(has_others=True) == [], traffic.statuses
    for server in pair.servers:
        server.kill()
    assert others.saved
    for history in settled(pair.homes):
        missing = [line for line in others.saved if f"+{line}\n" not in history]
        assert missing == []


def test_a_server_that_reads_without_asking_is_caught(homes: tuple[Home, Home]) -> None:
    mutant = (sys.executable, str(Path(reads_without_asking.__file__)))
    with opened(homes, second=mutant) as pair:
        for seed in range(3):
            if run(pair, OPERATIONS // 4, seed=seed).unlinearizable():
                return
    raise AssertionError("the mutant was not caught")
