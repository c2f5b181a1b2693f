"""Sixteen API writers in two processes, four shells and an editor, all on one file.

Every line is written once, and says who wrote it and when. An editor knows no lock: it saves by rename
over whatever is there. So it may destroy what others wrote since it read; it exchanges the files, looks
at what it has displaced, and owns up to those lines. All other lines must be in some revision, and the
first revision that has a line must be its writer's. What an editor saved while a command had the tree
cannot be told from the command's: either name is right for it.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces.actors import opened_at, start
from workspaces.errors import Conflict, NotFound, WorkspaceBusy
from workspaces.ids import version_of
from workspaces.revision import Author
from workspaces.workspace.workspace import Workspace

TIMES = 10 if os.environ.get("SOAK") else 1
API_WRITERS, API_LINES = 16, 8 * TIMES
SHELLS, SHELL_LINES = 4, 15 * TIMES
SAVES_MIN = 10
SECONDS_MAX = 600 * TIMES
FILE = "log.md"
_EXCHANGE = 2
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Storm:
    written: list[str] = field(default_factory=list)
    """What every API writer was acknowledged and every shell has appended."""
    saved: dict[str, tuple[float, float]] = field(default_factory=dict)
    """The editor's lines, with the moments around the save."""
    destroyed: set[str] = field(default_factory=set)
    """What the editor displaced without having read it."""
    commands: list[tuple[float, float, str]] = field(default_factory=list)
    first: dict[str, str] = field(default_factory=dict)
    """Line → author of the first revision that has it."""

    def may_be_a_commands(self, line: str) -> bool:
        begin, end = self.saved[line]
        return any(begin < to and end > since for since, to, _ in self.commands)


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Storm:
    home = tmp_path_factory.mktemp("storm")
    workspace = opened_at(home)
    workspace.write(FILE, "", by=Author("first", "f", "api"))
    said = home / "said"
    said.mkdir()
    started = [start(call_api, str(home), 0), start(call_api, str(home), API_WRITERS // 2)]
    started += [start(run_shell, str(home), f"shell{number}") for number in range(SHELLS)]
    editor = start(edit, str(home), random.randrange(2**32))
    assert [process.wait(timeout=SECONDS_MAX) for process in started] == [0] * len(started)
    (home / "enough").touch()
    assert editor.wait(timeout=SECONDS_MAX) == 0
    workspace.edits.commit()
    return told(workspace, said)


def told(workspace: Workspace, said: Path) -> Storm:
    storm = Storm()
    for note in said.iterdir():
        for text in note.read_text().splitlines():
            entry = json.loads(text)
            storm.written += entry.get("written", [])
            storm.saved |= {line: tuple(span) for line, span in entry.get("saved", {}).items()}
            storm.destroyed |= set(entry.get("destroyed", []))
            storm.commands += [tuple(span) for span in entry.get("commands", [])]
    for revision in reversed(workspace.log(FILE, limit=10_000)):
        for line in workspace.read(FILE, view=revision.id).text.splitlines():
            storm.first.setdefault(line, revision.author)
    return storm


def test_every_writer_wrote_its_lines_and_the_editor_saved_often_enough(storm: Storm) -> None:
    assert len(storm.written) == API_WRITERS * API_LINES + SHELLS * SHELL_LINES
    assert len(storm.saved) >= SAVES_MIN


def test_every_line_of_an_api_writer_or_a_shell_is_in_some_revision(storm: Storm) -> None:
    assert set(storm.written) - set(storm.first) <= storm.destroyed
    lost = {line for line in storm.written if line.startswith("api")} - set(storm.first)
    assert lost == set(), "whatever an editor does: a write is acknowledged with its revision"


def test_the_author_of_every_line_is_its_writer(storm: Storm) -> None:
    for line, author in storm.first.items():
        writer = line.partition(" ")[0]
        if writer != "editor":
            assert author == writer, line
        elif author != "owner":
            assert storm.may_be_a_commands(line), line
            assert author.startswith("shell"), line


def test_every_line_that_the_editor_saved_is_in_some_revision(storm: Storm) -> None:
    assert set(storm.saved) - set(storm.first) == set()


def say(home: str, who: str, **what: Any) -> None:
    with (Path(home) / "said" / who).open("a") as stream:
        stream.write(json.dumps(what) + "\n")


def call_api(home: str, first: int) -> None:
    threads = [
        threading.Thread(target=append, args=(home, f"api{first + number}"))
        for number in range(API_WRITERS // 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def append(home: str, name: str) -> None:
    workspace = opened_at(home)
    for number in range(API_LINES):
        line = f"{name} {number}"
        while True:
            try:
                file = workspace.read(FILE)
                text = f"{file.text}{line}\n"
                workspace.write(FILE, text, by=Author(name, name, "api"), expect=file.version)
            except (Conflict, NotFound, WorkspaceBusy):
                continue
            break
        say(home, name, written=[line])


def run_shell(home: str, name: str) -> None:
    workspace = opened_at(home)
    for number in range(SHELL_LINES):
        line = f"{name} {number}"
        is_done = False
        while not is_done:
            since = time.monotonic()
            with suppress(WorkspaceBusy), workspace.command(Author(name, name, "turn")):
                append_line = ["sh", "-c", f"echo '{line}' >> {FILE}"]
                subprocess.run(append_line, cwd=workspace.root, check=True, timeout=SECONDS_MAX)
                is_done = True
        say(home, name, written=[line], commands=[(since, time.monotonic(), name)])


def edit(home: str, seed: int) -> None:
    """Reads, adds a line at a random place, saves by rename, until it is enough. A shell that has opened
    what was displaced may write to it later: so it is looked at once more when all have ended."""
    randomly = random.Random(seed)
    root = opened_at(home).root
    reads: list[set[str]] = []
    number = 0
    while number < SAVES_MIN or not (Path(home) / "enough").exists():
        temporary = Path(home) / f"edited-{number}"
        line = f"editor {number}"
        number += 1
        read = (root / FILE).read_text()
        lines = read.splitlines()
        lines.insert(randomly.randrange(len(lines) + 1), line)
        temporary.write_text("\n".join(lines) + "\n")
        since = time.monotonic()
        exchange(temporary, root / FILE)
        until = time.monotonic()
        displaced = temporary.read_text()
        reads.append(set(lines))
        say(home, "editor", saved={line: (since, until)})
        if version_of(displaced.encode()) == version_of(read.encode()):
            time.sleep(randomly.uniform(0, 0.05))  # a person thinks
    for number, seen in enumerate(reads):
        displaced = (Path(home) / f"edited-{number}").read_text()
        say(home, "editor", destroyed=sorted(set(displaced.splitlines()) - seen))


def exchange(one: Path, other: Path) -> None:
    """Rename over, and what was there comes out at the other name."""
    if _libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), _EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
