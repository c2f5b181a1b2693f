"""Alive, ready, and how the residents are."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from tests.web.site import Site

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


def test_residents_live_as_long_as_the_app_and_their_crashes_are_shown(tmp_path: Path) -> None:
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


def test_an_app_that_cannot_reach_its_records_lives_and_is_not_ready(site: Site) -> None:
    ready = {"status": "ready", "records": "ok", "residents": {}}
    assert site.nobody.get("/readyz") == ready
    site.harness.house.records.close()
    assert site.nobody("GET", "/healthz").status_code == 200
    answer = site.nobody("GET", "/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "unready")
