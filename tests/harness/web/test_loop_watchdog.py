"""The watchdog that logs stalls of the event loop, and hostile request bodies that must not cause any."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from fastapi import FastAPI

from harness.web import loop_watchdog
from harness.web.http.body import LARGE_BYTES
from harness.web.loop_watchdog import LOOK_EVERY_S, STALL_S, STALLED, LoopSample, LoopStall, watched
from tests.harness.web.serving import TURNS, WAIT_S, Server, home_at
from tests.harness.web.site import captured_log
from tests.harness.web.turning import said
from tests.harness.web.wire import Running, running

MB = 2**20
AGENTS = "/accounts/me/agents"
EVENTS = "/v1/agents/assistant/events"

Log = list[dict[str, Any]]


def stalls(log: str) -> Log:
    """What a watchdog told."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == STALLED]


def waited(*sleeps: tuple[float, float, float]) -> float:
    """For how long the loop stood still: each sleep of the watchdog as what passed, what the process computed
    and for how long the loop's thread was in the queue of the processor."""
    now = LoopSample(100.0, 5.0, 1.0)
    wait = LoopStall(now)
    for passed_s, computed_s, queued_s in sleeps:
        now = LoopSample(now.at + passed_s, now.computed_s + computed_s, now.queued_s + queued_s)
        wait.add(now, planned_s=LOOK_EVERY_S)
    return wait.stood_s


def test_a_loop_blocked_while_the_watchdog_wakes_on_time_is_a_stall() -> None:
    assert waited(*[(LOOK_EVERY_S, 0.0, 0.0)] * 20) == pytest.approx(20 * LOOK_EVERY_S)


def test_a_loop_that_computes_or_waits_for_a_computing_thread_is_a_stall() -> None:
    assert waited((0.5, 0.5, 0.0)) == pytest.approx(0.5)


def test_a_process_without_processor_time_is_not_a_stall() -> None:
    assert waited((0.5, 0.0, 0.0), (0.9, 0.01, 0.0)) < STALL_S / 2


def test_a_loop_waiting_in_the_run_queue_is_not_a_stall() -> None:
    """The queue is counted when it ends: a time too late for the sleeps in which it was waited for."""
    assert waited(*[(LOOK_EVERY_S, 0.0, 0.0)] * 20, (0.01, 0.01, 0.4)) < STALL_S / 2


def test_time_waiting_for_a_processor_is_subtracted_from_a_stall() -> None:
    assert waited((0.5, 0.3, 0.0)) == pytest.approx(0.3 + LOOK_EVERY_S)
    assert waited((0.5, 0.5, 0.2)) == pytest.approx(0.3)
    assert waited((2.0, 0.3, 1.7)) == pytest.approx(0.3), (
        "it waited for a processor as the watchdog did"
    )


async def nap() -> dict[str, bool]:
    """As a route: it keeps the loop, and not a processor."""
    time.sleep(0.3)  # noqa: ASYNC251
    return {}


def test_each_stall_is_one_warning_with_its_duration_and_stack(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "home") as server:
        app = cast(FastAPI, server.server.config.app)
        app.add_api_route("/nap", nap)
        naps, told = asked_until_told(server)
        logged = [stall for stall in stalls(server.log.getvalue()) if is_of_nap(stall)]
    assert len(logged) <= naps
    assert told["level"] == "warning"
    assert told["still"] is False
    assert told["where"][-1].startswith(f"{__file__}:")


def is_of_nap(stall: dict[str, Any]) -> bool:
    return bool(stall["where"]) and stall["where"][-1].endswith(" nap")


def asked_until_told(server: Running) -> tuple[int, dict[str, Any]]:
    """How often it was asked for, and a stall told with its true duration: a busy machine hides some stalls
    and makes others longer."""
    for number in range(1, 100):
        assert server.ask(server.head("GET", "/nap")).status == 200
        assert server.is_well  # whoever is told of it is told by now, or in a moment
        for stall in stalls(server.log.getvalue()):
            if is_of_nap(stall) and STALL_S < stall["seconds"] < 0.3 + STALL_S:
                return number, stall
    raise AssertionError("no stall was told with its duration")


def test_a_stall_that_does_not_end_is_logged_while_still_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_watchdog, "LOG_AFTER_S", 2 * STALL_S)

    def stand_still(log: io.StringIO) -> None:
        deadline = time.monotonic() + WAIT_S
        while not stalls(log.getvalue()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(2 * STALL_S)  # and on

    async def watch(log: io.StringIO) -> None:
        with watched(asyncio.get_running_loop()):
            stand_still(log)
            await asyncio.sleep(0.1)

    with captured_log() as log:
        asyncio.run(watch(log))
        (told,) = stalls(log.getvalue())
    assert told["still"] is True
    assert any(frame.endswith(" stand_still") for frame in told["where"])


def keys(number: int, value: str = "0") -> str:
    return ",".join(f'"key{one}":{value}' for one in range(number))


def hostile() -> Iterator[bytes]:
    """Bodies that cost whoever reads them without care, below the limit of a large body and beyond it."""
    turn = '"eventId":"e","conversationKey":"c"'
    tool = '{"name":"%d","description":"d","inputSchema":{"type":"object"}}'
    for size in (LARGE_BYTES - 1024, 2 * MB):
        yield f'{{{keys(size // 12)},"a":1,"a":2}}'.encode()
        yield f"{{{keys(size // 12)}}}".encode()
        objects = ",".join(f'"o{one}":{{{keys(990)}}}' for one in range(size // 11_000))
        yield f"{{{objects}}}".encode()
        yield b'{"events":[' + b"1," * (size // 2) + b"1]}"
        yield b'{"events":[' + b"[]," * (size // 3) + b"1]}"
        yield b'{"events":[' + b"{}," * (size // 3) + b"1]}"
        yield b'{"events":[' + b'"",' * (size // 3) + b"1]}"
        yield b'{"events":[' + (b"9" * 4300 + b",") * (size // 4301) + b"1]}"
        yield b'{"events":' + b"[" * size
        yield b'"' * size
        yield b'{"' + b"k" * size + b'":1}'
        yield b'{"name":1e999,"config":"' + b'\\"' * (size // 2) + b'"}'
        yield b'{"name":"' + b"\\ud800" * (size // 6) + b'"}'
        yield f'{{{turn},"events":[{{"type":"{"abcdefghij" * (size // 10)}"}}]}}'.encode()
        yield f'{{{turn},"events":[{{"type":"user","content":[{"{}," * (size // 100)}1]}}]}}'.encode()
        yield f'{{{turn},"events":[],"tools":[{"{}," * (size // 100)}1]}}'.encode()
        tools = ",".join(tool % number for number in range(size // 100))
        yield f'{{"name":"x","config":{{"tools":[{tools}]}}}}'.encode()
        mount = f"{{{keys(900)}}}"
        mounts = ",".join([mount] * (size // len(mount)))
        yield f'{{"name":"x","config":{{"workspaces":[{mounts}]}}}}'.encode()


def asked(server: Server, method: str, path: str, body: bytes | None = None) -> int:
    stated = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
    try:
        with urlopen(
            Request(server.url + path, body, stated, method=method), timeout=WAIT_S
        ) as answer:
            answer.read()
            return answer.status
    except HTTPError as refused:
        with refused:
            refused.read()
            return refused.status or 0


def assert_never_stood_still(log: str) -> None:
    assert stalls(log) == []


def test_hostile_bodies_and_ordinary_traffic_cause_no_stall(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    ends = threading.Event()

    def ordinary(server: Server, name: str) -> int:
        """One user's: it says something, long or short, looks at things, keeps a file."""
        workspace = server.ask("GET", "/accounts/me/workspaces")["workspaces"][0]["id"]
        for number in count():
            event_id = f"{name}-{number}"
            text = "é, " * (100_000 if number % 5 == 0 else 10)
            body = json.dumps(said(event_id, text, name), ensure_ascii=False).encode()
            assert asked(server, "POST", TURNS, body) == 202
            assert asked(server, "GET", f"{EVENTS}/{event_id}?wait=60") == 200
            assert asked(server, "GET", AGENTS) == 200
            path = f"/v1/workspaces/{workspace}/files/{name}.md"
            assert asked(server, "PUT", path, b"text\n" * number) in {200, 201}
            if ends.is_set():
                return number + 1
        raise AssertionError

    with home_at(tmp_path / "home").served(log=log) as server, ThreadPoolExecutor(4) as pool:
        users = [pool.submit(ordinary, server, name) for name in ("ada", "ben")]
        try:
            paths = (TURNS, AGENTS)
            bodies = [(path, body) for body in hostile() for path in paths]
            for status in pool.map(lambda one: asked(server, "POST", *one), bodies):
                assert status == 400
            server.process.send_signal(signal.SIGSTOP)  # as a machine that has no time for it
            time.sleep(3 * STALL_S)
            server.process.send_signal(signal.SIGCONT)
        finally:
            ends.set()
        assert min(user.result(WAIT_S) for user in users) > 0
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(WAIT_S)
    lines = log.read_text()
    assert lines.count('"event": "request"') > len(bodies), "it is the log of this server"
    assert_never_stood_still(lines)
