"""Several servers on one home, killed while they work: each event is answered once by a surviving server."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from harness import Harness
from tests.harness.messages_server import (
    KEY,
    Hold,
    MessagesServer,
    breaks_off,
    says,
    serving,
    text,
    tool_use,
)
from tests.harness.talk import assert_in_order
from tests.harness.web.serving import GONE, TURNS, WAIT_S, Home, Server, home_at, read, until
from tests.harness.web.turning import said


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return home_at(tmp_path / "home")


def event(number: int, conversations: int) -> dict[str, Any]:
    return said(f"e{number}", f"Remember that {number} is odd.", f"c{number % conversations}")


def assert_answered_once(home: Home, count: int, conversations: int) -> None:
    with Harness.open(home.terminal.home) as harness:
        events: list[str] = []
        for number in range(conversations):
            events += assert_in_order(harness.rooms, f"c{number}")
        assert sorted(events) == sorted(f"e{number}" for number in range(count))
        memory = harness.workspaces.get("notes").read("MEMORY.md").text
    for number in range(count):
        assert memory.count(f" {number} is odd") <= 1, "it was remembered twice"
    assert memory.count(" is odd") >= count * 0.8, "what was killed was not gone on with"


def test_an_event_accepted_by_a_killed_server_is_answered_by_another_server(home: Home) -> None:
    count, conversations = 12, 4
    with home.served() as first, home.served() as second:
        for number in range(count):
            accepted = first.ask("POST", TURNS, event(number, conversations))
            assert accepted["status"] in {"queued", "running", "done"}
        first.kill()
        for number in range(count):
            path = f"/v1/agents/assistant/events/e{number}?wait=60"
            assert second.ask("GET", path)["status"] == "done"
    assert_answered_once(home, count, conversations)


def test_two_servers_answer_the_events_of_a_conversation_in_order(home: Home) -> None:
    count = 12
    with home.served() as first, home.served() as second:
        for number in range(count):
            (first, second)[number % 2].ask("POST", TURNS, event(number, 1))
        for number in range(count):
            path = f"/v1/agents/assistant/events/e{number}?wait=60"
            assert (second, first)[number % 2].ask("GET", path)["status"] == "done"
    assert_answered_once(home, count, 1)
    with Harness.open(home.terminal.home) as harness:
        assert assert_in_order(harness.rooms, "c0") == [f"e{number}" for number in range(count)]


class Killed:
    """A server that is killed at random moments, and started again at once. Where a life was too short for
    anybody to be answered, the next may be twice as long: as long as it takes on a busy machine."""

    def __init__(self, home: Home, seed: int) -> None:
        self._home = home
        self._randomly = random.Random(seed)
        self._ends = threading.Event()
        self._serves = threading.Condition()
        self._server: Server | None = None
        self._life_s_max = 1.5
        self.deaths = self.answers = 0

    @contextmanager
    def living(self) -> Iterator[Killed]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._ends.set()
            thread.join(WAIT_S)

    @property
    def server(self) -> Server:
        with self._serves:
            assert self._serves.wait_for(lambda: self._server is not None, WAIT_S)
            assert self._server is not None
            return self._server

    def _run(self) -> None:
        while not self._ends.is_set():
            answered = self.answers
            with self._home.served() as server:
                self._show(server)
                if self._ends.wait(self._randomly.uniform(0.05, self._life_s_max)):
                    return
                self._show(None)
                server.kill()
                self.deaths += 1
            if self.answers == answered:
                self._life_s_max *= 2

    def _show(self, server: Server | None) -> None:
        with self._serves:
            self._server = server
            self._serves.notify_all()


def patiently(killed: Killed, ask: Callable[[Server], Any]) -> Any:
    """As a client does it that knows nothing but its event: the same again, until it is answered."""
    deadline = time.monotonic() + 5 * WAIT_S
    while True:
        try:
            return ask(killed.server)
        except HTTPError as refused:
            with refused:
                assert refused.code == 503, refused.read()
        except GONE:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_every_event_is_answered_once_despite_repeated_server_kills(
    home: Home,
) -> None:
    seed = int(os.environ.get("SEED", "0")) or random.randrange(2**32)
    print(f"seed {seed}")
    count, conversations, deaths = (400, 5, 60) if os.environ.get("SOAK") else (25, 3, 4)
    number = 0
    with Killed(home, seed).living() as killed:
        while number < count or killed.deaths < deaths:
            body = event(number, conversations)

            def answered(server: Server, body: Any = body) -> Any:
                status = server.ask("POST", TURNS, body)
                while status["status"] in {"queued", "running"}:
                    path = f"/v1/agents/assistant/events/{body['eventId']}?wait=30"
                    status = server.ask("GET", path)
                return status

            done = patiently(killed, answered)
            killed.answers += 1
            assert done["status"] in {"done", "failed"}, done
            number += 1
    print(f"{killed.deaths} deaths, {number} events")
    assert killed.deaths >= deaths
    assert_answered_once(home, number, conversations)


def test_a_stream_of_a_killed_server_is_resumed_at_another_server(tmp_path: Path) -> None:
    with serving() as provider:
        provider.answers(
            says(text("Let me look."), tool_use("toolu_1", "read", '{"path": "MEMORY.md"}')),
            breaks_off(text("It ", "says"), ending=[hold := Hold()]),
            says(text("It is empty.")),
        )
        variables = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": provider.url}
        home = home_at(tmp_path / "home", **variables)
        body = said("e1", stream=True)
        with home.served() as first, home.served() as second:
            with first.opened("POST", TURNS, body) as answer:
                seen = until(read(answer), lambda one: str(one.data.get("text")).endswith("says"))
                assert hold.reached.wait(WAIT_S)
                first.kill()
            newest = max(int(one.id) for one in seen if one.id)
            with second.opened("POST", TURNS, body, Last_Event_ID=str(newest)) as answer:
                rest = list(read(answer))
        assert_kept(provider)
    assert newest == 3
    assert [one.id for one in rest if one.id] == ["4"]
    assert [one.data["text"] for one in rest if one.name == "text"] == ["It is empty."]
    assert (rest[-1].name, rest[-1].data["reply"]) == ("outcome", "It is empty.")


def assert_kept(provider: MessagesServer) -> None:
    assert provider.broken_rules == []
    assert provider.left_unsaid == 0
