"""Backups of a home to which another process writes all the time; some of them are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from harness import Harness
from harness.backup.create import create
from harness.backup.restore import restore
from harness.backup.verify import verify
from harness.sandboxes.none import NoSandbox
from tests.strace import ROOT, environment

ROUNDS = 20 if os.environ.get("SOAK") else 3
KILLED_WITHIN_S = 4.0
FIRST_WRITES = 50


class Writer:
    """The other process. `kept` is the number of its newest write that has returned."""

    def __init__(self, home: Path) -> None:
        self.kept = -1
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.backup.busy_home", str(home)],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reading = Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.kept = int(line)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def writing(home: Path) -> Iterator[Writer]:
    writer = Writer(home)
    try:
        give_up_at = time.monotonic() + 120
        while writer.kept < FIRST_WRITES:
            assert writer.process.poll() is None
            assert time.monotonic() < give_up_at
            time.sleep(0.01)
        yield writer
        assert writer.process.poll() is None, "a backup ended the writer"
    finally:
        writer.close()


def test_each_backup_of_a_busy_home_is_whole_though_others_were_killed(tmp_path: Path) -> None:
    chance = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    home, place = tmp_path / "home", str(tmp_path / "backups")
    with writing(home) as writer:
        began, first = time.monotonic(), writer.kept
        for number in range(ROUNDS):
            kill_one(home, place, chance.uniform(0, KILLED_WITHIN_S))
            kept = writer.kept
            created = create(home, place)
            assert created.troubles == []
            verified = verify(place)
            assert verified.missing == []
            assert verified.snapshot == created.snapshot
            check_restored(tmp_path / f"restored{number}", place, kept)
        seconds = time.monotonic() - began
        print(f"{(writer.kept - first) / seconds:.0f} writes a second for {seconds:.0f} s")


def kill_one(home: Path, place: str, after_s: float) -> None:
    """Begin a backup as a command and kill it, unless it ends before."""
    with subprocess.Popen(
        [sys.executable, "-m", "harness.cli.app", "--home", str(home), "backup", "create", place],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            _, errors = process.communicate(timeout=after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return
        assert process.returncode == 0, errors


def check_restored(home: Path, place: str, kept: int) -> None:
    """Restore the newest backup, and look for all that was kept when it began."""
    restore(home, place)
    with Harness.open(home, sandbox=NoSandbox("not here")) as harness:
        workspace = harness.workspaces.get("busy")
        assert workspace.edits.pending() == []
        for number in range(200):
            newest = kept - (kept - number) % 200
            if newest >= 0:
                assert int(workspace.read(f"{number:03}.md").data) >= newest
        for conversation in harness.conversations.list():
            assert list(harness.conversations.transcript(conversation).entries())
        assert harness.run("Are you there?", conversation="c0").status == "done"
