"""Writers that are killed during a write, and many concurrent writers.

Each victim is a fork that writes, deletes or runs a command and is killed with SIGKILL: at a random
line of the library, counted by tracing, or at a random moment. Then the next writer comes, and all
that stands in docs/architecture.md must hold.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.workspaces.actors import opened_at, run, start
from workspaces.coordination.writer_lock import HeldLock
from workspaces.errors import Conflict, WorkspaceBusy
from workspaces.home.layout import Home
from workspaces.revision import Author
from workspaces.workspace.workspace import Workspace

SOAK = bool(os.environ.get("SOAK"))
KILLS = 2_000 if SOAK else 120
SOONER, LATER = 0.7, 1.12
"""How the next kill comes after a victim that was done before, and after one that was not: so that three of
four come while there is something to kill, and at all moments of it, however slow the machine is."""

WRITERS, WRITES = 16, 100
OVERTAKEN_MAX = 20 * WRITERS
PERSON, VICTIM, NEXT = "owner", "victim", "next"


@pytest.mark.parametrize("aim", ["line", "moment"])
def test_a_killed_writer_leaves_the_old_or_the_new_bytes_and_is_named_as_author(
    tmp_path: Path, aim: str
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    workspace = opened_at(tmp_path)
    report = json.loads(run(kill, str(tmp_path), aim, KILLS, seed, wait_s=1800 if SOAK else 600))
    print(report)
    assert report["broken"] == []
    assert report["killed"] == KILLS, "the others were done before"
    assert report["unfinished"] > KILLS / 20, "those kills were too early to prove anything"
    assert_whole(workspace, tmp_path)


def test_the_kill_test_detects_a_writer_without_an_intent(tmp_path: Path) -> None:
    opened_at(tmp_path)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    report = json.loads(run(kill_undeclared, str(tmp_path), seed, wait_s=600))
    print(report)
    assert any("not the victim's" in one for one in report["broken"])


def kill_undeclared(home: str, seed: int) -> None:
    """The planted mutant."""
    HeldLock.intend = lambda *_: None
    kill(home, "line", 60, seed)


def kill(home: str, aim: str, kills: int, seed: int) -> None:
    """Prints what it found broken."""
    randomly = random.Random(seed)
    workspace = opened_at(home)
    broken: list[str] = []
    killed = unfinished = 0
    lines = lines_of_a_write(workspace)
    until_s = 0.012
    for number in range(4 * kills):
        if killed == kills:
            break
        kind = randomly.choice(list(VICTIMS))
        if randomly.random() < 0.5:
            (workspace.root / "by-hand.md").write_text(f"by hand {number}\n")
        before = content(workspace)
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            if aim == "line":
                die_at_line(randomly.randrange(lines))
            VICTIMS[kind](workspace, number)
            os.write(tell, b"done")
            signal.pause()
        if aim == "moment":
            time.sleep(randomly.uniform(0, until_s))
            os.kill(pid, signal.SIGKILL)
        os.close(tell)
        acknowledged = waited(told, pid)
        killed += not acknowledged
        until_s *= SOONER if acknowledged else LATER
        found = after_a_kill(workspace, kind, number, before, acknowledged)
        unfinished += found.pop("was unfinished")
        broken += [f"kill {number} of {kind}: {what}" for what, is_so in found.items() if is_so]
    print(
        json.dumps({"broken": broken, "killed": killed, "unfinished": unfinished, "lines": lines})
    )


def waited(told: int, pid: int) -> bool:
    """Whether the victim could say that it is done before it died."""
    with os.fdopen(told, "rb") as stream:
        acknowledged = stream.read(4) == b"done"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return acknowledged


def victim_writes(workspace: Workspace, number: int) -> None:
    workspace.write("a.md", f"{number}\n", by=Author(VICTIM, "v", "turn", {"Turn": f"{number}"}))


def victim_deletes(workspace: Workspace, number: int) -> None:
    workspace.delete("a.md", by=Author(VICTIM, "v", "turn", {"Turn": f"{number}"}))


def victim_commands(workspace: Workspace, number: int) -> None:
    with workspace.command(Author(VICTIM, "v", "turn", {"Turn": f"{number}"})):
        (workspace.root / "a.md").write_text(f"{number}\n")
        (workspace.root / "b.md").write_text(f"{number}\n")


VICTIMS: dict[str, Callable[[Workspace, int], None]] = {
    "a write": victim_writes,
    "a delete": victim_deletes,
    "a command": victim_commands,
}


def content(workspace: Workspace) -> dict[str, str]:
    return {
        name: (workspace.root / name).read_text()
        for name in ("a.md", "b.md")
        if (workspace.root / name).exists()
    }


def after_a_kill(
    workspace: Workspace, kind: str, number: int, before: dict[str, str], acknowledged: bool
) -> dict[str, bool]:
    """What is broken, by name; the next writer goes on first, as another process would."""
    left = content(workspace)
    new = f"{number}\n"
    whole = {new, before.get("a.md"), None}
    tip = workspace.history.tip()
    workspace.write("next.md", new, by=Author(NEXT, "n", "api"))
    workspace.edits.commit()
    newer = workspace.log(limit=6)
    since = newer[: next((n for n, one in enumerate(newer) if one.paths == ("end.md",)), 6)]
    authors = {path: one.author for one in reversed(since) for path in one.paths}
    changed = {name for name in ("a.md", "b.md") if left.get(name) != before.get(name)}
    turns = {one.trailers.get("Turn") for one in since if one.author == VICTIM}
    result = {
        "was unfinished": tip is not None and bool(changed) and not acknowledged,
        "the file is neither old nor new": kind != "a command" and left.get("a.md") not in whole,
        "what was acknowledged is not there": acknowledged
        and left.get("a.md") != (None if kind == "a delete" else new),
        "what changed is not the victim's": any(authors.get(n) != VICTIM for n in changed),
        "it is of another turn": not turns <= {str(number)},
        "by-hand.md is not the person's": authors.get("by-hand.md", PERSON) != PERSON,
        "the tree is not the newest revision": content(workspace)
        != {
            name: workspace.read(name, view=workspace.history.tip() or "").text
            for name in workspace.files(view=workspace.history.tip() or "")
            if name in {"a.md", "b.md"}
        },
    }
    if not (workspace.root / "a.md").exists():  # for the next victim that would delete it
        workspace.write("a.md", f"again {number}\n", by=Author(NEXT, "n", "api"))
    workspace.write("end.md", new, by=Author(NEXT, "n", "api"))
    return result


def lines_of_a_write(workspace: Workspace) -> int:
    """How many lines of the library one write runs through."""
    counted = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal counted
        if "/workspaces/" not in frame.f_code.co_filename:
            return None
        counted += event == "line"
        return count

    sys.settrace(count)
    workspace.write("a.md", "counted\n", by=Author(NEXT, "n", "api"))
    sys.settrace(None)
    workspace.write("end.md", "begin\n", by=Author(NEXT, "n", "api"))
    return counted


def die_at_line(number: int) -> None:
    left = number

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if "/workspaces/" not in frame.f_code.co_filename:
            return None
        left -= event == "line"
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return count

    sys.settrace(count)


def test_no_conditional_write_of_sixteen_writers_in_two_processes_is_lost(tmp_path: Path) -> None:
    workspace = opened_at(tmp_path)
    workspace.write("n.md", "", by=Author(NEXT, "n", "api"))
    writing = [start(append_in_threads, str(tmp_path), first) for first in (0, WRITERS // 2)]
    assert [process.wait(timeout=600) for process in writing] == [0, 0]
    lines = workspace.read("n.md").text.splitlines()
    assert sorted(lines) == sorted(f"w{n} {m}" for n in range(WRITERS) for m in range(WRITES))
    revisions = workspace.log(limit=10_000)
    assert len(revisions) == WRITERS * WRITES + 1
    assert_whole(workspace, tmp_path)
    told = [line.rpartition(" ")[0] for line in reversed(lines)]
    assert [revision.author for revision in revisions[:-1]] == told


def append_in_threads(home: str, first: int) -> None:
    """Half of the writers; each line stands in the file only through a condition that held."""
    threads = [
        threading.Thread(target=append, args=(opened_at(home), f"w{first + number}"))
        for number in range(WRITERS // 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def append(workspace: Workspace, name: str) -> None:
    for number in range(WRITES):
        while True:
            file = workspace.read("n.md")
            text = f"{file.text}{name} {number}\n"
            try:
                workspace.write("n.md", text, by=Author(name, name, "api"), expect=file.version)
            except Conflict:
                continue
            except WorkspaceBusy:  # a slow machine; but for whoever is overtaken again and again
                assert lines_of(workspace) - text.count("\n") < OVERTAKEN_MAX, "nobody lets it in"
                continue
            break


def lines_of(workspace: Workspace) -> int:
    return workspace.read("n.md").text.count("\n")


def assert_whole(workspace: Workspace, home: Path) -> None:
    directory = Home(home).history(workspace.namespace)
    checked = subprocess.run(
        ["git", f"--git-dir={directory}", "fsck", "--strict"], capture_output=True, timeout=120
    )
    assert checked.returncode == 0, checked.stderr
    assert b"error" not in checked.stderr
