from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.clock import ManualClock
from workspaces.errors import Unavailable
from workspaces.history.git import repack
from workspaces.history.history import History
from workspaces.paths import WorkspacePath
from workspaces.workspace.workspace import Workspace

MEMORY = WorkspacePath("MEMORY.md")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "h.git"


@pytest.fixture
def history(directory: Path, clock: ManualClock) -> History:
    return History.create(directory, clock)


def fsck(directory: Path) -> str:
    done = subprocess.run(
        ["git", f"--git-dir={directory}", "fsck", "--strict", "--full"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


def loose(directory: Path) -> list[Path]:
    return list(directory.glob("objects/[0-9a-f][0-9a-f]/*"))


def test_packing_changes_nothing_that_readers_see(history: History, directory: Path) -> None:
    revisions = [
        history.record({MEMORY: b"%d\n" % n, WorkspacePath(f"n/{n % 7}.md"): b"x%d" % n}, AGENT)
        for n in range(40)
    ]
    stranger = History(directory, ManualClock())
    assert stranger.tree(revisions[0])
    before = [history.tree(revision) for revision in revisions]
    for _ in range(2):
        history.pack()
        assert not loose(directory)
        assert len(list(directory.glob("objects/pack/*.pack"))) == 1
        assert [stranger.tree(revision) for revision in revisions] == before
        assert fsck(directory) == ""
        stranger.record({MEMORY: b"after packing\n"}, AGENT)
    found = history.find(history.tip(), MEMORY)
    assert found is not None
    assert history.read(found) == b"after packing\n"
    assert len(history.log(limit=100)) == 42


def test_an_empty_history_can_be_packed(history: History) -> None:
    history.pack()
    history.record({MEMORY: b"1"}, AGENT)
    history.pack()
    assert history.tree(history.tip())


def test_readers_never_miss_an_object_during_packing(history: History, directory: Path) -> None:
    revisions = [history.record({MEMORY: b"%d\n" % n * 50}, AGENT) for n in range(60)]
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        mine = History(directory, ManualClock())
        try:
            while not done.is_set():
                for number in range(0, 60, 7):
                    found = mine.find(revisions[number], MEMORY)
                    assert found is not None
                    assert mine.read(found) == b"%d\n" % number * 50
                assert len(mine.log(limit=1000)) >= 60
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(8):
        history.record({MEMORY: b"more %d\n" % number}, AGENT)
        history.pack()
    done.set()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
    assert fsck(directory) == ""


def test_packing_removes_unreachable_objects_only_after_a_day(
    history: History, directory: Path
) -> None:
    history.record({MEMORY: b"1"}, AGENT)
    batch = history._objects.batch()
    young, old = batch.blob(b"young"), batch.blob(b"old")
    batch.sync()
    two_days_ago = time.time() - 2 * 86_400
    os.utime(directory / "objects" / old[:2] / old[2:], (two_days_ago, two_days_ago))
    history.pack()
    assert history.read(young) == b"young"
    with pytest.raises(Unavailable):
        history.read(old)


def test_a_workspace_needs_packing_after_many_loose_objects(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not workspace.history.needs_packing
    monkeypatch.setattr(repack, "LOOSE_OBJECTS_MAX", 100)
    for number in range(60):
        workspace.write("MEMORY.md", f"{number}\n", by=CALLER)
    assert workspace.history.needs_packing
    workspace.tidy()
    assert not workspace.history.needs_packing
    assert len(workspace.log(limit=100)) == 60
    assert workspace.write("MEMORY.md", "and on\n", by=CALLER).revision == workspace.history.tip()


def test_a_damaged_object_is_named_in_the_error(history: History, directory: Path) -> None:
    history.record({MEMORY: b"1"}, AGENT)
    found = history.find(history.tip(), MEMORY)
    assert found is not None
    file = directory / "objects" / found[:2] / found[2:]
    file.chmod(0o600)
    file.write_bytes(b"rot")
    with pytest.raises(Unavailable, match=found):
        history.read(found)
