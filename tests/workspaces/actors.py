"""Other processes: each runs one function of the tests on a workspace of a home on the disk.

`start(function, …)` runs a module-level function of an importable module in a process of its own. The
workspace it opens shares nothing with anyone's but the disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from workspaces.accounts.account import default_owner
from workspaces.clock import SystemClock
from workspaces.coordination.writer_lock import WriterLock
from workspaces.errors import NotFound
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.revision import Author
from workspaces.storage.sqlite import SqliteRecords
from workspaces.tree.directory import FileBlobs
from workspaces.workspace.workspace import Workspace

REPOSITORY = Path(__file__).parents[2]

_RUN = """
import json, os, sys, threading, time
from importlib import import_module

def end_with_the_test(parent):
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)  # the test was killed: nobody will end this process

threading.Thread(target=end_with_the_test, args=(os.getppid(),), daemon=True).start()
getattr(import_module(sys.argv[1]), sys.argv[2])(*json.loads(sys.argv[3]))
"""


def over(workspace: Workspace, home: Home, tree: FileBlobs) -> Workspace:
    """The same workspace, opened over a tree that has something of its own."""
    return Workspace(
        workspace.record,
        workspace.namespace,
        root=workspace.root,
        blobs=tree,
        history=workspace.history,
        lock=WriterLock(home.lock(workspace.namespace)),
        person=Author("owner", "usr_1", "edit"),
        clock=SystemClock(),
        origins=workspace.origins,
        file_origins=workspace.file_origins,
        recall=lambda: workspace.recall,
    )


def opened_at(root: Path | str) -> Workspace:
    """The workspace `notes` of a home, made on first use."""
    home, clock = Home(Path(root)), SystemClock()
    home.prepare()
    records = SqliteRecords(home.state, clock=clock)
    try:
        workspaces = Workspaces(
            default_owner(records, clock), home, records, clock, template=lambda _: {}
        )
        try:
            return workspaces.get("notes")
        except NotFound:
            return workspaces.create("notes")
    finally:
        records.close()


def start(
    function: Callable[..., None], *arguments: str | int | None, out: IO[Any] | int | None = None
) -> subprocess.Popen[str]:
    """In a session of its own, so that what it started can be killed with it."""
    return subprocess.Popen(
        [sys.executable, "-c", _RUN, function.__module__, function.__name__, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=out,
        text=True,
        start_new_session=True,
    )


def run(function: Callable[..., None], *arguments: str | int | None, wait_s: float = 120) -> str:
    """What it printed."""
    with start(function, *arguments, out=subprocess.PIPE) as process:
        try:
            printed, _ = process.communicate(timeout=wait_s)
        except BaseException:
            os.killpg(process.pid, 9)
            raise
    assert process.returncode == 0
    return printed


def shell(workspace: Workspace, script: str, by: Author) -> None:
    with workspace.command(by):
        subprocess.run(["sh", "-c", script], cwd=workspace.root, check=True, timeout=60)


def one_command(home: str, script: str) -> None:
    shell(opened_at(home), script, Author("helper", "agent_1", "turn", {"Turn": "turn_1"}))


def commands(home: str, name: str, count: int, script: str) -> None:
    """One turn: `count` commands, in whose script {0} is the turn's name and {1} the number."""
    workspace = opened_at(home)
    for number in range(count):
        shell(workspace, script.format(name, number), Author(name, name, "turn"))
