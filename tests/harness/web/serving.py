"""`harness up` in processes of their own, and a client that asks them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from harness import Harness
from tests.harness.cli.terminal import COMMAND, Terminal
from tests.harness.web.turning import Told, told

WAIT_S = 120.0
TURNS = "/v1/agents/assistant/turns"
GONE = (OSError, HTTPException)
"""What a client sees of a server that was killed."""


@dataclass
class Server:
    process: subprocess.Popen[str]
    url: str
    key: str

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        with self.opened(method, path, body, **headers) as answer:
            return json.load(answer)

    def opened(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        stated = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        stated |= {name.replace("_", "-"): value for name, value in headers.items()}
        request = Request(self.url + path, data, stated, method=method)
        return urlopen(request, timeout=WAIT_S)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(WAIT_S)


@dataclass
class Home:
    terminal: Terminal
    key: str

    @contextmanager
    def served(
        self,
        port: int = 0,
        *,
        log: Path = Path(os.devnull),
        command: tuple[str, ...] = COMMAND,
    ) -> Generator[Server]:
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [*command, "up", "--port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self.terminal.environment(),
                text=True,
            )
        try:
            assert process.stdout is not None
            shown = process.stdout.readline().rstrip("\n")  # with a token, or without
            yield Server(process, shown.partition("/?")[0].rstrip("/"), self.key)
        finally:
            process.kill()
            process.communicate(timeout=WAIT_S)


def home_at(place: Path, **variables: str) -> Home:
    with Harness.open(place) as harness:
        _, key = harness.rooms.keys.create()
    return Home(Terminal(place, variables), key)


def read(answer: Any) -> Iterator[Told]:
    return told(line.decode().rstrip("\n") for line in answer)


def until(steps: Iterator[Told], is_last: Callable[[Told], bool]) -> list[Told]:
    seen: list[Told] = []
    for one in steps:
        seen.append(one)
        if is_last(one):
            return seen
    raise AssertionError(seen)
