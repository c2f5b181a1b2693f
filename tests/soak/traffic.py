"""What people and programs do to a server all day, at a steady pace.

Each client makes a workspace and an agent, uses them and deletes them, and also uses what lives as long as
the home. What there is at the end of a round is therefore what there was at its beginning, and what the
server holds is compared there.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from tests.harness.web.turning import told

WAIT_S = 120.0
CLIENTS = 3
REQUESTS_PER_S = 10.0
"""Of all clients together: the same on a fast machine and on a slow one, so that slopes compare."""

FACTS = 20
"""What a memory is told, again and again: it does not grow with the time."""
TURNS_OF_A_CONVERSATION = 12
FAILURES_MAX = 20
"""After so many nobody learns more from the next one."""
FAILURES_TOLD = 5


@dataclass
class Gate:
    """Counts the rounds under way, and can hold new ones back."""

    _changed: threading.Condition = field(default_factory=threading.Condition)
    _under_way: int = 0
    _is_closed: bool = False

    @contextmanager
    def passed(self) -> Generator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed, WAIT_S)
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    @contextmanager
    def closed(self) -> Generator[None]:
        """Until the block ends, no round is under way."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: self._under_way == 0, WAIT_S)
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()


@dataclass
class Tally:
    requests: int = 0
    failures: list[str] = field(default_factory=list[str])
    lock: threading.Lock = field(default_factory=threading.Lock)


class Stopped(Exception):
    """The time is up."""


@dataclass
class Client:
    """One who talks to the server, one request after the other."""

    url: str
    key: str
    gate: Gate
    tally: Tally
    stop: threading.Event
    number: int = 0
    requests_per_s: float = REQUESTS_PER_S / CLIENTS
    _due: float = field(default_factory=time.monotonic)
    _said: int = 0

    def live(self) -> None:
        """Do round after round until the time is up."""
        turn = 0
        while not self.stop.is_set() and len(self.tally.failures) < FAILURES_MAX:
            try:
                with self.gate.passed():
                    self.round(turn)
            except Stopped:
                return
            except Exception as error:
                with self.tally.lock:
                    self.tally.failures.append(f"round {turn} of client {self.number}: {error!r}")
            turn += 1

    def round(self, turn: int) -> None:
        name = f"soak-{self.number}-{turn}"
        place = self.post("/accounts/me/workspaces", {"name": name})["id"]
        mounts = [{"name": "w", "workspaceId": place}]
        agent = self.post("/accounts/me/agents", {"name": name, "config": {"workspaces": mounts}})
        self.files(place)
        key = f"{name}-talk"
        self.turn(agent["id"], key, "Remember that the deploy day is Thursday.")
        conversation = self.streamed(agent["id"], key, "When is the deploy day?")
        self.ask("GET", f"/v1/conversations/{conversation}/entries")
        self.ask("GET", f"/v1/workspaces/{place}/recall?query=when+do+we+deploy")
        self.ask("GET", f"/v1/workspaces/{place}/log")
        self.resident(turn)
        self.ask("DELETE", f"/v1/conversations/{conversation}")
        self.ask("DELETE", f"/accounts/me/agents/{agent['id']}")
        self.ask("DELETE", f"/accounts/me/workspaces/{place}?force=true")

    def files(self, place: str) -> None:
        """Write, read, overwrite and delete files of a workspace."""
        files = f"/v1/workspaces/{place}/files"
        for number in range(4):
            text = f"# {number}\n" + "a line of a note\n" * random.randrange(1, 200)
            self.ask("PUT", f"{files}/notes/{number}.md", text.encode())
            self.ask("GET", f"{files}/notes/{number}.md")
        self.ask("PUT", f"{files}/notes/0.md", b"shorter\n")
        self.ask("DELETE", f"{files}/notes/1.md")
        self.ask("GET", files)

    def resident(self, turn: int) -> None:
        """Use the agent that every home has, whose workspace and history stay."""
        fact = random.randrange(FACTS)
        key = f"long-{self.number}-{turn // TURNS_OF_A_CONVERSATION}"
        self.turn("assistant", key, f"Remember that fact {fact} is {fact * 7}.")
        conversation = self.streamed("assistant", key, f"What is fact {fact}?")
        if turn % TURNS_OF_A_CONVERSATION == TURNS_OF_A_CONVERSATION - 1:
            self.ask("DELETE", f"/v1/conversations/{conversation}")

    def turn(self, agent: str, key: str, text: str) -> str:
        """Say something, wait for the answer, and return the conversation."""
        event = self._event(key, text)
        status = self.post(f"/v1/agents/{agent}/turns", event)
        while status["status"] in {"queued", "running"}:
            path = f"/v1/agents/{agent}/events/{quote(event['eventId'])}?wait=30"
            status = json.loads(self.ask("GET", path))
        if status["status"] != "done":
            raise AssertionError(status)
        return status["conversationId"]

    def streamed(self, agent: str, key: str, text: str) -> str:
        """Say something, follow the answer as it comes, and return the conversation."""
        body = json.dumps({**self._event(key, text), "stream": True}).encode()
        answer = self.ask("POST", f"/v1/agents/{agent}/turns", body)
        last = list(told(iter(answer.decode().splitlines())))[-1]
        if last.name != "outcome" or last.data["status"] != "done":
            raise AssertionError(last)
        return last.data["conversationId"]

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return json.loads(self.ask("POST", path, json.dumps(body).encode()))

    def ask(self, method: str, path: str, data: bytes | None = None) -> bytes:
        """Return the body of the answer, in this client's turn."""
        self._due = max(self._due + 1 / self.requests_per_s, time.monotonic())
        if self.stop.wait(max(0.0, self._due - time.monotonic())):
            raise Stopped
        kind = "application/octet-stream" if method == "PUT" else "application/json"
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": kind}
        request = Request(self.url + path, data, headers, method=method)
        try:
            with urlopen(request, timeout=WAIT_S) as answer:
                body = answer.read()
        except HTTPError as error:
            with error:
                said = error.read()[:300].decode(errors="replace")
            raise AssertionError(f"{method} {path}: {error.code} {said}") from error
        with self.tally.lock:
            self.tally.requests += 1
        return body

    def _event(self, key: str, text: str) -> dict[str, Any]:
        self._said += 1
        return {
            "eventId": f"{key}-{self._said}",
            "conversationKey": key,
            "events": [{"type": "user", "content": text}],
        }


@contextmanager
def going_on(client: Callable[[int], Client]) -> Generator[None]:
    """Traffic of all clients, until the block ends."""
    clients = [client(number) for number in range(CLIENTS)]
    threads = [threading.Thread(target=one.live) for one in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for one in clients:
            one.stop.set()
        for thread in threads:
            thread.join(WAIT_S)
