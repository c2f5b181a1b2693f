"""Clients that use any of the servers, say the same again until it is answered, and note what was promised.

Each has an agent, a workspace and conversations of its own. All of them add lines to one file, each under the
version that it has read: that file is the hottest place there is.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote, urlsplit

ANSWER_S_MAX = 60.0
PATIENCE_S = 180.0
"""How long something is said again."""
PAUSE_S = 0.05
TURNS_OF_A_CONVERSATION = 8
FAILURES_MAX = 20
"""After so many nobody learns more from the next one."""

MIX = {"turn": 40, "write": 25, "append": 10, "recall": 25}
"""Of a hundred operations."""

HOT = "hot.md"

REMEMBERED = ("I have written to MEMORY.md", "I know that already")
"""How the demo model says that a fact is in a file. It knows one that a killed server has written for it."""

INTERRUPTED = "it is not known whether this tool ran"
"""What a model is told of a tool that ran in a server that was killed. The demo model gives up then."""

GIVEN_UP = "broken"
"""The code of a turn whose process has died three times. It has an outcome like any other."""

IDLE_S_MAX = 1.0
"""A server closes a connection that is idle, and a request that is sent meanwhile has no answer."""


@dataclass
class Promises:
    """What servers have acknowledged, and how long it took. Threads may share it."""

    events: dict[str, Said] = field(default_factory=dict[str, "Said"])
    files: dict[tuple[str, str], bytes] = field(default_factory=dict[tuple[str, str], bytes])
    """Workspace and path → content."""
    lines: list[str] = field(default_factory=list[str])
    """Of the hot file."""
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, text: str) -> None:
        with self.lock:
            self.failures.append(text)


@dataclass(frozen=True)
class Said:
    """An event that was answered."""

    agent: str
    workspace: str
    conversation: str
    fact: str | None = None
    """What was to be remembered, if anything was."""
    is_remembered: bool = False


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    etag: str | None

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """Connections to servers, kept open. A server is chosen anew for each request."""

    def __init__(self, urls: Callable[[], list[str]], key: str, chance: random.Random) -> None:
        self._urls = urls
        self._key = key
        self._chance = chance
        self._connections: dict[str, HTTPConnection] = {}
        self._used_at: dict[str, float] = {}
        self.unanswered: Counter[str] = Counter()
        """Why a request must be sent again: the connection broke, or the server said why."""

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        url: str | None = None,
    ) -> Answer | None:
        """Ask one server once. None: nobody knows whether it did anything."""
        url = url or self._chance.choice(self._urls())
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        stated = {"Authorization": f"Bearer {self._key}", "Content-Type": kind, **(headers or {})}
        connection = self._connection(url)
        try:
            connection.request(method, path, data, stated)
            answer = connection.getresponse()
            found = Answer(answer.status, answer.read(), answer.headers["ETag"])
        except (OSError, HTTPException):
            connection.close()
            del self._connections[url]
            self.unanswered["no answer"] += 1
            return None
        if found.status == 503:
            self.unanswered[found.json["error"]["message"][:100]] += 1
            return None
        self._used_at[url] = time.monotonic()
        return found

    def _connection(self, url: str) -> HTTPConnection:
        connection = self._connections.get(url)
        if connection is None:
            connection = HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_S_MAX)
            self._connections[url] = connection
        elif time.monotonic() - self._used_at.get(url, 0.0) > IDLE_S_MAX:
            connection.close()  # the next request opens it again
        return connection

    def until_answered(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        url: str | None = None,
    ) -> Answer:
        """Say the same again until a server answers. For what may be repeated."""
        give_up_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at:
            answer = self.ask(method, path, body, headers, url=url)
            if answer is not None:
                return answer
            time.sleep(PAUSE_S)
        raise AssertionError(f"{method} {path} was not answered in {PATIENCE_S:.0f} s")


class Client:
    """One who talks to the servers, one request after the other."""

    wire: Wire
    """To the servers that run now."""

    def __init__(self, number: int, promises: Promises, chance: random.Random) -> None:
        self.number = number
        self._promises = promises
        self._chance = chance
        self._said = self._written = self._added = 0
        self.workspace = self.agent = self.shared = ""

    def settle(self, shared: str) -> None:
        """Make a workspace and an agent. `shared` is the workspace that all clients write."""
        name = f"client-{self.number}"
        self.shared = shared
        self.workspace = self.made("/accounts/me/workspaces", {"name": name})
        default = self.expect(self.wire.until_answered("GET", "/accounts/me/agents/assistant"), 200)
        sandbox = default.json["config"]["sandbox"]
        mounts = [{"name": "w", "workspaceId": self.workspace}]
        self.agent = self.made(
            "/accounts/me/agents",
            {"name": name, "config": {"workspaces": mounts, "sandbox": sandbox}},
        )

    def live(self, end: float) -> None:
        """Do one thing after the other until the time is up."""
        deeds = {
            "turn": self.turn,
            "write": self.write,
            "append": self.append,
            "recall": self.recall,
        }
        while time.monotonic() < end and len(self._promises.failures) < FAILURES_MAX:
            (name,) = self._chance.choices([*MIX], [*MIX.values()])
            begin = time.monotonic()
            try:
                deeds[name]()
            except Exception as error:  # noqa: BLE001 - every failure is told in the report
                self._promises.fail(f"{name} of client {self.number}: {error!r}"[:500])
            else:
                with self._promises.lock:
                    self._promises.seconds[name].append(time.monotonic() - begin)

    def turn(self) -> None:
        """Say something, under an id of its own, until it is answered."""
        self._said += 1
        event = f"e{self.number}-{self._said}"
        fact = f"{event} is odd" if self._said % 2 else None
        text = f"Remember that {fact}." if fact else f"What is e{self.number}-{self._said - 1}?"
        key = f"c{self.number}-{self._said // TURNS_OF_A_CONVERSATION}"
        body = {
            "eventId": event,
            "conversationKey": key,
            "events": [{"type": "user", "content": text}],
        }
        status = self.expect(
            self.wire.until_answered("POST", f"/v1/agents/{self.agent}/turns", body), 200, 202
        ).json
        while status["status"] in {"queued", "running"}:
            path = f"/v1/agents/{self.agent}/events/{quote(event)}?wait=30"
            status = self.expect(self.wire.until_answered("GET", path), 200).json
        if status["status"] == "failed" and status["error"]["code"] == GIVEN_UP:
            self._note(event, Said(self.agent, self.workspace, status["conversationId"]), GIVEN_UP)
            return
        if (status["status"], status.get("outcome")) != ("done", "done"):
            raise AssertionError(status)
        is_remembered = fact is not None and status["reply"].startswith(REMEMBERED)
        is_told = fact is None or is_remembered or INTERRUPTED in status["reply"]
        if not is_told:
            raise AssertionError(status)
        said = Said(self.agent, self.workspace, status["conversationId"], fact, is_remembered)
        is_cut = fact is not None and not is_remembered
        self._note(event, said, "interrupted" if is_cut else "answered")

    def _note(self, event: str, said: Said, how: str) -> None:
        with self._promises.lock:
            self._promises.events[event] = said
            self._promises.counts[how] += 1

    def write(self) -> None:
        """Create a file with content of its own."""
        self._written += 1
        path = f"notes/{self._written}.md"
        content = f"# Note {self._written} of client {self.number}\n\n- tea is green\n".encode()
        url, is_new = self.file(self.workspace, path), {"If-None-Match": "*"}
        while True:
            answer = self.wire.until_answered("PUT", url, content, is_new)
            if answer.status in {200, 201}:
                break
            # An earlier try that was not answered may have written it. Nobody else writes this path.
            if answer.status == 412:
                there = self.expect(self.wire.until_answered("GET", url), 200)
                if there.body == content:
                    break
            raise AssertionError(f"{path}: {answer.status} {answer.body[:300]!r}")
        with self._promises.lock:
            self._promises.files[self.workspace, path] = content

    def append(self) -> None:
        """Add a line to the file that all clients write, under the version that was read."""
        self._added += 1
        line = f"- line {self._added} of client {self.number}\n"
        url = self.file(self.shared, HOT)
        while True:
            there = self.expect(self.wire.until_answered("GET", url), 200)
            if line.encode() in there.body:
                break  # an earlier try that was not answered has written it
            assert there.etag is not None
            answer = self.wire.ask("PUT", url, there.body + line.encode(), {"If-Match": there.etag})
            if answer is not None and answer.status in {200, 201}:
                break
            if answer is not None:
                self.expect(answer, 412)
                with self._promises.lock:
                    self._promises.counts["stale"] += 1
            time.sleep(self._chance.random() * PAUSE_S)
        with self._promises.lock:
            self._promises.lines.append(line)

    def recall(self) -> None:
        path = f"/v1/workspaces/{self.workspace}/recall?query=which+tea+is+odd"
        self.expect(self.wire.until_answered("GET", path), 200)

    def made(self, path: str, body: Any) -> str:
        return self.expect(self.wire.until_answered("POST", path, body), 201).json["id"]

    def file(self, workspace: str, path: str) -> str:
        return f"/v1/workspaces/{workspace}/files/{path}"

    def expect(self, answer: Answer, *statuses: int) -> Answer:
        if answer.status not in statuses:
            raise AssertionError(f"{answer.status} {answer.body[:300]!r}")
        return answer
