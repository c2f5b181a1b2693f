"""Liveness, readiness, and the state of background tasks."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.bootstrap.readiness import KEPT_S, NotReady, Readiness, ReadinessCheck
from tests.disk import fill
from tests.harness.web.site import Site
from tests.servers import BUCKET, seaweedfs_in
from workspaces.clock import ManualClock

WAIT_S_MAX = 60.0


class Watching:
    """A resident that crashes once, then lives."""

    def __init__(self) -> None:
        self.lives = threading.Event()
        self.ended = threading.Event()
        self._runs = 0

    async def run(self) -> None:
        self._runs += 1
        if self._runs == 1:
            raise OSError("the disk is gone")
        self.lives.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


def test_background_tasks_live_as_long_as_the_app_and_show_their_crashes(tmp_path: Path) -> None:
    watching = Watching()
    with Site.open(tmp_path / "home", residents={"watcher": watching}) as site:
        assert watching.lives.wait(WAIT_S_MAX)
        ready = site.nobody.get("/readyz")
        assert ready["status"] == "ready"
        assert ready["residents"] == {
            "watcher": {"state": "running", "crashes": 1, "error": "OSError"}
        }
        assert not watching.ended.is_set()
        assert "resident crashed" in site.lines.getvalue()
    assert watching.ended.is_set()


READY = {
    "status": "ready",
    "home": "ok",
    "disk": "ok",
    "records": "ok",
    "s3": None,
    "model": "demo",
    "problems": [],
    "residents": {},
}


def unready(site: Site, *parts: str) -> dict[str, Any]:
    """What is answered when those parts, and no others, are lacking."""
    answer = site.nobody("GET", "/readyz")
    told = answer.json()
    assert (answer.status_code, told["status"]) == (503, "unready")
    assert [(one["part"], bool(one["remedy"])) for one in told["problems"]] == [
        (part, True) for part in parts
    ]
    assert site.nobody("GET", "/healthz").status_code == 200
    return told


def test_an_app_without_its_record_store_is_alive_but_not_ready(site: Site) -> None:
    site.harness.house.records.close()
    assert unready(site, "records")["records"] == "unavailable"


def test_a_home_on_a_full_disk_is_not_ready_until_space_is_free(tiny_disk: Path) -> None:
    clock = ManualClock()
    with Site.open(tiny_disk / "home", clock=clock) as site:
        assert site.nobody.get("/readyz") == READY
        fill(tiny_disk / "filler")
        clock.advance(KEPT_S)
        told = unready(site, "home", "disk")
        assert (told["home"], told["disk"], told["records"]) == ("unavailable", "low", "ok")
        assert str(tiny_disk) not in json.dumps(told)
        assert "No space left on device" in site.lines.getvalue()
        (tiny_disk / "filler").unlink()
        clock.advance(KEPT_S)
        assert site.nobody.get("/readyz") == READY
        assert not (site.harness.settings.home.root / "staging" / "ready").exists()


def test_a_disk_with_little_space_is_named_and_the_server_stays_ready(tiny_disk: Path) -> None:
    clock = ManualClock()
    with Site.open(tiny_disk / "home", clock=clock) as site:
        total, free = os.statvfs(tiny_disk).f_blocks, os.statvfs(tiny_disk).f_bavail
        block = os.statvfs(tiny_disk).f_frsize
        (tiny_disk / "filler").write_bytes(bytes(block * (free - total // 20)))
        clock.advance(KEPT_S)
        told = site.nobody.get("/readyz")
        assert (told["status"], told["home"], told["disk"]) == ("ready", "ok", "low")
        (problem,) = told["problems"]
        assert (problem["part"], bool(problem["remedy"])) == ("disk", True)
        (tiny_disk / "filler").unlink()


def test_a_home_with_an_unreachable_s3_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, clock = tmp_path / "home", ManualClock()
    home.mkdir()
    (home / "harness.yaml").write_text(f"s3: s3://{BUCKET}/shared\n")
    with ExitStack() as running:
        server = running.enter_context(seaweedfs_in(tmp_path))
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        with Site.open(home, clock=clock) as site:
            assert site.nobody.get("/readyz") == {**READY, "s3": "ok"}
            running.close()  # from now on nobody listens there
            clock.advance(KEPT_S)
            told = unready(site, "s3")
            address = server.url.partition("://")[2]
            assert address not in json.dumps(told)
            assert address in site.lines.getvalue()


def test_concurrent_readiness_requests_share_one_check_that_expires() -> None:
    clock, looks = ManualClock(), list[int]()
    readiness = Readiness(
        [ReadinessCheck("disk", lambda: looks.append(1), "it is full", "empty it")], clock
    )

    async def ask() -> None:
        for number in (1, 1, 2):
            assert await asyncio.gather(*(readiness.lacks() for _ in range(20))) == [[]] * 20
            assert len(looks) == number
            clock.advance(KEPT_S / 2)

    asyncio.run(ask())


def test_a_hanging_readiness_check_is_reported_in_time_and_uses_one_thread() -> None:
    goes_on, looks = threading.Event(), list[int]()

    def hang() -> None:
        looks.append(1)
        assert goes_on.wait(WAIT_S_MAX)

    part = ReadinessCheck("disk", hang, "it is full", "empty it")
    readiness = Readiness([part], ManualClock(), answer_s=0.01)

    async def ask() -> None:
        for _ in range(3):
            assert await readiness.lacks() == [
                NotReady("disk", "too_slow", "it is full", "empty it")
            ]
        assert len(looks) == 1
        goes_on.set()
        deadline = time.monotonic() + WAIT_S_MAX
        while await readiness.lacks():
            assert time.monotonic() < deadline
        assert len(looks) == 1

    asyncio.run(ask())
