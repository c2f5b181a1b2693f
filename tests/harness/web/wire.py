"""A real server on a real port, and bare sockets to talk to it badly."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Harness
from harness.models.port import Model
from harness.web.app import create_app
from harness.web.server import Server, listen
from tests.harness.web.site import captured_log

WAIT_S_MAX = 120.0
"""For what must come: only a server that hangs is ever waited for so long."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, str]:
        return json.loads(self.body)["error"]


@dataclass(frozen=True)
class Running:
    harness: Harness
    server: Server
    port: int
    key: str
    log: Any

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), WAIT_S_MAX) as wire:
            yield wire

    def head(self, method: str, path: str, **headers: str) -> bytes:
        stated = {"Host": f"127.0.0.1:{self.port}", "Authorization": f"Bearer {self.key}"}
        stated |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{n}: {v}" for n, v in stated.items()), "", ""]
        return "\r\n".join(lines).encode()

    def ask(self, data: bytes) -> Answer:
        with self.connected() as wire:
            send(wire, data)
            return answer(wire)

    @property
    def is_well(self) -> bool:
        return self.ask(self.head("GET", "/healthz")).status == 200

    @property
    def files(self) -> str:
        return f"/v1/workspaces/{self.harness.workspaces.get('notes').record.id}/files"


@contextmanager
def running(home: Path, *, model: Model | None = None, **options: Any) -> Iterator[Running]:
    with Harness.open(home, model=model) as harness, captured_log() as log:
        _, key = harness.rooms.keys.create()
        listening = listen("127.0.0.1", 0)
        server = Server(create_app(harness, **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Running(harness, server, listening.getsockname()[1], key, log)
        finally:
            server.should_exit = True
            thread.join(WAIT_S_MAX)
        assert not thread.is_alive()


def send(wire: socket.socket, data: bytes) -> bool:
    """Whether it could all be sent: a server that has answered may close before it has read."""
    try:
        wire.sendall(data)
    except OSError:
        return False
    return True


def answer(wire: socket.socket) -> Answer:
    """The next one on this connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += received(wire)
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += received(wire)
    return Answer(int(first.split(" ")[1]), headers, body)


def received(wire: socket.socket) -> bytes:
    data = wire.recv(65536)
    assert data, "the server hung up without an answer"
    return data


def is_closed(wire: socket.socket) -> bool:
    """Whether the server hangs up; waits for it."""
    try:
        while wire.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def until(true: Any) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
