"""Waiting calls of one account, such as writers behind a held writer lock, do not slow other accounts."""

from __future__ import annotations

import inspect
import json
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import pytest

from harness.bootstrap.authentication import admin_key
from harness.runtime.fair_share import _SHARES, SOON_MAX
from harness.web.app import routes
from tests.harness.web.wire import Running, answer, is_closed, running, send, until
from workspaces.coordination.writer_lock import WriterLock
from workspaces.ids import AccountId, Namespace, WorkspaceId, namespace

ROUNDS = 25
"""Of one read and one write each."""

MEASURED_S_MAX = 4.0
"""Less than the time after which a waiting writer gives up."""

ATTEMPTS = 3
"""Something else may have kept the machine busy in one of them."""

SLOWER_MAX = 2.0
QUICK_S = 0.05
"""What takes less is quick enough, however quick it was when nobody waited."""


@dataclass(frozen=True)
class Tenant:
    """An account with one workspace."""

    server: Running
    key: str
    workspace_id: str
    namespace: Namespace

    @classmethod
    def new(cls, server: Running, name: str) -> Tenant:
        home = server.harness.settings.home
        made = post(server, admin_key(home), "/accounts", {"name": name})
        workspace = post(server, made["key"], "/accounts/me/workspaces", {"name": "w"})
        name = namespace(AccountId(made["id"]), WorkspaceId(workspace["id"]))
        return cls(server, made["key"], workspace["id"], name)

    @property
    def lock(self) -> WriterLock:
        return WriterLock(self.server.harness.settings.home.lock(self.namespace))

    def request(self, method: str, what: str, data: bytes = b"") -> bytes:
        path = f"/v1/workspaces/{self.workspace_id}/{what}"
        own = {"Authorization": f"Bearer {self.key}", "Content_Length": str(len(data))}
        return self.server.head(method, path, **own) + data

    def ask(self, wire: socket.socket, method: str, what: str, data: bytes = b"") -> int:
        assert send(wire, self.request(method, what, data))
        return answer(wire).status

    def times(self) -> list[float]:
        """Return how long each of some reads and writes took, in seconds."""
        took: list[float] = []
        end = time.monotonic() + MEASURED_S_MAX
        with self.server.connected() as wire:
            for number in range(ROUNDS):
                if took and time.monotonic() > end:
                    break
                data = f"{number} {time.monotonic()}".encode()
                for method, sent in (("PUT", data), ("GET", b"")):
                    begun = time.perf_counter()
                    assert self.ask(wire, method, "files/mine.md", sent) in {200, 201}
                    took.append(time.perf_counter() - begun)
        return took

    @contextmanager
    def searches_waiting(self, count: int) -> Iterator[None]:
        """Send requests that wait for the index, which is not a wait for a lock file."""
        tasks = self.server.server.server_state.tasks
        index = self.server.harness.settings.home.search(self.namespace)
        with ExitStack() as stack:
            wires = [stack.enter_context(self.server.connected()) for _ in range(count)]
            assert self.ask(wires[0], "GET", "recall?query=tea") == 200
            assert self.ask(wires[0], "PUT", "files/tea.md", b"- tea\n") == 201
            until(lambda: not tasks)
            with closing(sqlite3.connect(index, isolation_level=None)) as database:
                database.execute("BEGIN IMMEDIATE")
                for wire in wires:
                    send(wire, self.request("GET", "recall?query=tea"))
                until(lambda: len(tasks) == count)
                yield
                assert len(tasks) >= count, "they did not wait"
            assert [answer(wire).status for wire in wires] == [200] * count

    @contextmanager
    def writers_waiting(self, count: int, method: str = "PUT") -> Iterator[list[socket.socket]]:
        """Send requests that wait for the writer lock. All are answered once it is free."""
        with ExitStack() as stack:
            wires = [stack.enter_context(self.server.connected()) for _ in range(count)]
            with self.lock.hold("the test"):
                for wire in wires:
                    send(wire, self.request(method, "files/theirs.md"))
                until(lambda: calls_waiting() == count)
                yield wires
                assert calls_waiting() == count
            for wire in wires:
                if not is_hung_up(wire):
                    assert answer(wire).status in {"PUT": {201, 200}, "DELETE": {404}}[method]


def calls_waiting() -> int:
    """Return how many calls wait for a lock, of all accounts and loops."""
    shares = [share for of_loop in list(_SHARES.values()) for share in list(of_loop.values())]
    return sum(share.waiting for share in shares)


def post(server: Running, key: str, path: str, fields: dict[str, str]) -> dict[str, str]:
    data = json.dumps(fields).encode()
    own = {"Authorization": f"Bearer {key}", "Content_Length": str(len(data))}
    got = server.ask(server.head("POST", path, **own) + data)
    assert got.status == 201, got
    return json.loads(got.body)


def is_hung_up(wire: socket.socket) -> bool:
    return wire.fileno() < 0


def p95(times: list[float]) -> float:
    return quantiles(times, n=20)[-1]


def shown(times: list[float]) -> str:
    return f"p50 {median(times):.4f} p95 {p95(times):.4f} max {max(times):.4f}"


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_eighty_waiting_writers_of_one_account_do_not_slow_another_account(
    tmp_path: Path, method: str
) -> None:
    seen: list[str] = []
    with running(tmp_path / "home") as server:
        busy, other = Tenant.new(server, "busy"), Tenant.new(server, "other")
        for _ in range(ATTEMPTS):
            idle = other.times()
            with busy.writers_waiting(80, method):
                beside = other.times()
            seen.append(f"alone: {shown(idle)}; beside: {shown(beside)}")
            if p95(beside) < max(QUICK_S, SLOWER_MAX * p95(idle)):
                return
    pytest.fail("; ".join(seen))


def test_waiting_searches_use_only_the_thread_share_of_their_own_account(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "home") as server:
        busy, other = Tenant.new(server, "busy"), Tenant.new(server, "other")
        with busy.searches_waiting(2 * SOON_MAX), server.connected() as wire:
            assert other.ask(wire, "PUT", "files/mine.md", b"x") == 201
            assert other.ask(wire, "GET", "files/mine.md") == 200


def test_a_stopping_server_answers_all_waiting_writers(tmp_path: Path) -> None:
    with running(tmp_path / "home") as server:
        busy = Tenant.new(server, "busy")
        with server.connected() as idle, busy.writers_waiting(20):
            server.server.should_exit = True
            assert is_closed(idle)


def test_disconnected_waiting_writers_leave_the_writer_lock_free(tmp_path: Path) -> None:
    with running(tmp_path / "home") as server:
        busy = Tenant.new(server, "busy")
        with busy.writers_waiting(20) as wires:
            for wire in wires:
                wire.close()
        until(lambda: not server.server.server_state.tasks)
        assert calls_waiting() == 0
        with busy.lock.hold("the test", wait_s=0), server.connected() as wire:
            assert busy.ask(wire, "GET", "files/theirs.md") == 200


def test_every_route_is_a_coroutine_function() -> None:
    """What is no coroutine function, the framework runs in one stock of threads for all accounts."""
    for route in routes():
        calls = [route.endpoint, *(one.call for one in route.dependant.dependencies)]
        for call in calls:
            function = call if inspect.isroutine(call) else type(call).__call__
            assert inspect.iscoroutinefunction(function), (route.path, call)
