"""`harness forget` as a process that is killed with SIGKILL. It is repeated, or what it began goes on. Then
the text is nowhere, and every other line is where it was.

Each kill has a text of its own in the same home, so each finds what earlier ones may have left.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.messages.event import Event
from harness.sandboxes.none import NoSandbox
from tests.harness.cli.terminal import COMMAND_S_MAX, Terminal
from tests.harness.forgetting.canaries import WORDS, phrase
from tests.harness.forgetting.found_by_scan import found_by_scan
from tests.harness.forgetting.kept_lines import check_kept, kept_by
from tests.harness.forgetting.versioned_bucket import VersionedBucket
from tests.machines import SOAK
from tests.servers import S3Server

KILLS = 30 if SOAK else 2
KILLS_ON_S3 = 24 if SOAK else 2
STEPS, STEPS_ON_S3 = 260, 400
"""About as many as the command has in such a home. It is not killed if it has fewer."""


def plant(harness: Harness, text: str) -> None:
    """Plant a text in the present files, in the past, in conversations, in the queue and in the trash."""
    rooms, notes = harness.rooms, harness.workspaces.get("notes")
    by = rooms.principal.author("api")
    word = text.split()[1]
    notes.write(f"{word}.md", f"one\n- {text}\nthree\n", by=by)
    notes.write("all.md", f"first\n{text}\nlast of {word}\n", by=by)
    notes.write("all.md", f"first\nlast of {word}\n", by=by)
    notes.write(f"gone-{word}.md", f"- {text}\n", by=by)
    notes.delete(f"gone-{word}.md", by=by)
    notes.write(f"{text}.md", "named\n", by=by)
    harness.run(f"I think that {text}.\nAnd tea is green.", conversation=f"c-{word}")
    agent = rooms.agents.list()[0]
    event = Event.said(f"evt_{word}", f"queued-{word}", f"{text} " * 4_000)
    accepted = asyncio.run(rooms.dispatcher.enqueue(agent, event))
    if accepted.lease is not None:
        rooms.dispatcher.leases.release(accepted.lease)
    rooms.workspaces.create(word).write("a.md", f"{text}\n", by=by)
    if notes.edits.remote is not None:
        rooms.workspaces.sync(word).run()
    rooms.workspaces.delete(word)
    home = harness.settings.home
    (home.staging(notes.namespace) / f"new-{word}").write_text(text)
    (home.templates / "own").mkdir(parents=True, exist_ok=True)
    (home.templates / "own" / f"{word}.md").write_text(text)


class Ordeal:
    """A home in which one command after the other is killed."""

    def __init__(self, terminal: Terminal, seed: int, steps: int) -> None:
        self.terminal = terminal
        self.chance = random.Random(seed)
        self.words = iter(WORDS)
        self.steps = steps

    def opened(self) -> Harness:
        return Harness.open(self.terminal.home, sandbox=NoSandbox("not in this test"))

    def measure_s(self) -> float:
        """Forget without a kill, and return how long that takes."""
        text, start = self.next_text(), time.monotonic()
        code, told = self.forget(text, 10**9)
        assert code == 0, told
        print(told.rpartition("\n")[2])
        return time.monotonic() - start

    def next_text(self) -> str:
        text = phrase(next(self.words))
        with self.opened() as harness:
            plant(harness, text)
        return text

    def forget(self, text: str, steps: int, after_s: float | None = None) -> tuple[int, str]:
        """Run the command, which dies at a step, or after a time."""
        module = [sys.executable, "-m", "tests.harness.cli.killed", "--steps", str(steps)]
        process = subprocess.Popen(
            [*module, "forget", "--text", text, "--yes"],
            env=self.terminal.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if after_s is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(after_s)
            process.kill()
        _, told = process.communicate(timeout=COMMAND_S_MAX)
        return process.returncode, told

    def survive(self, within_s: float | None = None) -> None:
        """Kill a forgetting at a step, or within a time. Go on with it, and look."""
        text = self.next_text()
        with self.opened() as harness:
            revisions = [one.id for one in harness.workspaces.get("notes").log(limit=30)]
            before = kept_by(harness, revisions)
        if within_s is not None:
            after_s = self.chance.uniform(0, within_s)
            code, told = self.forget(text, 10**9, after_s)
            print(f"{text}: killed after {after_s:.3f} s: {code}")
        else:
            steps = self.chance.randrange(self.steps)
            code, told = self.forget(text, steps)
            print(f"{text}: killed at step {steps} of {self.steps}: {code}")
        assert code in (0, -signal.SIGKILL), told
        with self.opened() as harness:
            begun = harness.rooms.forgettings.stored.list()
        is_begun = any(one.status != "done" for one in begun)
        is_repeated = not is_begun or self.chance.random() < 0.5
        if is_repeated:
            self.terminal("forget", "--text", text, "--yes").done()
        with self.opened() as harness:
            forgettings = harness.rooms.forgettings
            if not is_repeated:
                forgettings.run_pending()
            every = forgettings.stored.list()
            assert {one.status for one in every} == {"done"}, every[0].waits_for
            assert [one for one in every if one.phrases is not None] == []
            check_kept(before, kept_by(harness, revisions))
            self.check_nothing_is_left(harness)
        self.terminal("forget", "verify", every[0].id, stdin=text.encode()).done()
        assert found_by_scan([text], self.terminal.home) == {}

    def check_nothing_is_left(self, harness: Harness) -> None:
        notes = harness.workspaces.get("notes")
        home = harness.settings.home
        assert not notes.history.is_replaced
        aside = [one.name for one in home.staging(notes.namespace).iterdir()]
        assert [one for one in aside if one.startswith(("out:", "come-"))] == []
        assert [*home.root.rglob(".forget-*")] == []
        assert notes.files() == [path for path in notes.files() if "canary" not in path]


def endure(terminal: Terminal, kills: int, steps: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    ordeal = Ordeal(terminal, seed, steps)
    for _ in range(kills):
        ordeal.survive()
    if SOAK:
        within_s = ordeal.measure_s()
        for _ in range(kills // 3):
            ordeal.survive(within_s)


def test_a_killed_forgetting_goes_on(home: Path) -> None:
    endure(Terminal(home, {}), KILLS, STEPS)


def test_a_killed_forgetting_goes_on_in_a_bucket_that_keeps_versions(
    home: Path,
    tmp_path: Path,
    versioned: tuple[Any, str],
    seaweedfs: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = VersionedBucket(*versioned)
    location = f"s3://{bucket.name}/shared"
    monkeypatch.setenv("HARNESS_S3", location)
    endure(
        Terminal(home, {**seaweedfs.environment(), "HARNESS_S3": location}),
        KILLS_ON_S3,
        STEPS_ON_S3,
    )
    texts = [phrase(word) for word in WORDS[:KILLS_ON_S3]]
    assert found_by_scan(texts, bucket.save(tmp_path / "last")) == {}
