"""Several processes commit to the same history while other processes read whole revisions."""

from __future__ import annotations

import multiprocessing
import subprocess
from pathlib import Path

from tests.workspaces.conftest import CALLER
from workspaces.clock import SystemClock
from workspaces.coordination.writer_lock import WriterLock
from workspaces.history.history import History
from workspaces.history.line_origins import LineOrigins
from workspaces.home.layout import Home
from workspaces.ids import Namespace
from workspaces.paths import WorkspacePath

NAMESPACE = Namespace("fs-" + "0" * 40)
SHARED = WorkspacePath("shared.md")
PROCESSES, COMMITS = 8, 25
WAIT_S = 900.0


def append(root: str, number: int) -> None:
    home = Home(Path(root))
    history = History(home.history(NAMESPACE), SystemClock())
    for turn in range(COMMITS):
        with WriterLock(home.lock(NAMESPACE)).hold(f"p{number}", wait_s=WAIT_S):
            found = history.find(history.tip(), SHARED)
            before = history.read(found) if found else b""
            own = WorkspacePath(f"notes/p{number}.md")
            line = b"%d %d\n" % (number, turn)
            history.record({SHARED: before + line, own: line}, CALLER)
            if turn == COMMITS // 2:
                history.pack()


def read(root: str, number: int) -> None:
    home = Home(Path(root))
    history = History(home.history(NAMESPACE), SystemClock())
    origins = LineOrigins(home.search(NAMESPACE), history)
    seen = 0
    while seen < PROCESSES * COMMITS:
        tip = history.tip()
        if tip is None:
            continue
        for path, found in history.tree(tip).items():
            data = history.read(found)
            assert data.endswith(b"\n"), path
            if path == SHARED:
                assert data.count(b"\n") >= seen
                seen = data.count(b"\n")
        assert len(origins.origins(SHARED)) >= seen
        assert len(history.log(limit=5)) <= 5
    origins.close()


def test_no_commit_of_eight_processes_is_lost_during_concurrent_reads(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    History.create(home.history(NAMESPACE), SystemClock())
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=work, args=(str(tmp_path), number), daemon=True)
        for work, count in ((append, PROCESSES), (read, 2))
        for number in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=WAIT_S)
    assert [process.exitcode for process in processes] == [0] * len(processes)
    history = History(home.history(NAMESPACE), SystemClock())
    found = history.find(history.tip(), SHARED)
    assert found is not None
    expected = {b"%d %d" % (p, t) for p in range(PROCESSES) for t in range(COMMITS)}
    lines = history.read(found).splitlines()
    assert set(lines) == expected
    assert len(lines) == len(expected)
    revisions = history.log(limit=1000)
    assert len(revisions) == len(expected)
    stamps = [revision.at for revision in revisions]
    assert stamps == sorted(set(stamps), reverse=True)
    origins = LineOrigins(home.search(NAMESPACE), history)
    assert sorted(origins.origins(SHARED)) == sorted(revision.id for revision in revisions)
    origins.close()
    command = ["git", f"--git-dir={home.history(NAMESPACE)}", "fsck", "--strict"]
    assert subprocess.run(command, check=True, capture_output=True).stdout == b""
