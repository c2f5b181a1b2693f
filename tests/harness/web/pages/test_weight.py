"""The weight of pages and the processor time for them, in a home with much in it."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Iterator

import pytest

from harness.memory.facts.fact import canonical_path
from tests.harness.web.pages.visitor import Visitor, visitor
from tests.harness.web.site import Site
from workspaces.workspace.workspace import Workspace

ROWS, REVISIONS, FILES = 10_000, 5_000, 2_000
BYTES_MAX = 150_000
TIMES_HEALTH, MORE_S = 10, 0.060
TRIES = 5

SLACK = 1.5
"""Time is judged with this much to spare, so that a slow machine fails nothing."""


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Workspace, Workspace]]:
    """A home with a workspace of many files and revisions, and one of many rows."""
    with Site.open(tmp_path_factory.mktemp("home")) as site:
        rooms = site.harness.rooms
        files = rooms.workspaces.create("files")
        for number in range(FILES):
            place = files.root / f"notes/{number % 40:02}/{number:04}.md"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"# Note {number}\n\n" + "- a line of some words\n" * 20)
        (files.root / "MEMORY.md").write_text("- a fact of some words, and more\n" * 3_000)
        files.edits.commit()
        grow(site, files)
        quota = {"config": {"quota": {"files": ROWS + 100}}}
        rows = rooms.workspaces.create("rows", config=quota["config"])
        (rows.root / "facts").mkdir()
        for number in range(ROWS):
            key = f"key.{number:05}"
            fact = f"---\nkey: {key}\n---\n\nThe value of row {number}, in a few words.\n"
            (rows.root / canonical_path(key)).write_text(fact)
        rows.edits.commit()
        yield site, files, rows


def grow(site: Site, workspace: Workspace) -> None:
    """Add many revisions of one file, as git writes them: by one process."""
    directory = site.harness.settings.home.history(workspace.namespace)
    tip = workspace.history.tip()
    branch = subprocess.run(
        ["git", "--git-dir", str(directory), "symbolic-ref", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    lines: list[str] = []
    begin = (
        1_767_225_600 - REVISIONS
    )  # revisions of the future would be looked through for a wrong clock
    for number in range(REVISIONS):
        text = f"line {number}\n"
        message = f"notes/log.md: +1 −0 · line {number}\n\nAt: 2026-01-01T00:00:00.{number:06}Z\n"
        at = f"owner <usr_1@workspace-harness> {begin + number} +0000"
        lines += [
            f"commit {branch}\nauthor {at}\ncommitter {at}\ndata {len(message.encode())}\n{message}",
            *([f"from {tip}\n"] if number == 0 else []),
            f"M 100644 inline notes/log.md\ndata {len(text)}\n{text}\n",
        ]
    subprocess.run(
        ["git", "--git-dir", str(directory), "fast-import", "--quiet", "--force"],
        input="".join(lines).encode(),
        check=True,
    )
    (workspace.root / "notes/log.md").write_text(f"line {REVISIONS - 1}\n")


def spent_s() -> float:
    """The processor time of this process and of the processes that it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def least_s(ada: Visitor, path: str) -> float:
    found: list[float] = []
    for _ in range(TRIES):
        before = spent_s()
        ada.client.get(path)
        found.append(spent_s() - before)
    return min(found)


def test_every_page_is_light_and_quick_in_a_full_home(
    full: tuple[Site, Workspace, Workspace],
) -> None:
    site, files, rows = full
    ada = visitor(site)
    assert len(files.files()) > FILES
    base, agent = f"/w/{files.record.id}", site.harness.agents.get("assistant").id
    pages = (
        "/",
        f"{base}/files",
        f"{base}/files/notes/07",
        f"{base}/files/notes/07/0007.md",
        f"{base}/files/MEMORY.md?line=2000",
        f"{base}/history",
        f"{base}/history?author=nobody",
        f"{base}/history/head",
        f"{base}/problems",
        f"{base}/recall?q=words",
        f"/w/{rows.record.id}/memory",
        f"/w/{rows.record.id}/memory?begin=9000",
        f"/w/{rows.record.id}/files",
        f"/a/{agent}",
        f"/a/{agent}/prompt",
        "/decisions",
        "/usage",
        "/keys",
        "/forbid",
        "/trash",
    )
    limit = TIMES_HEALTH * least_s(ada, "/healthz") + MORE_S
    heavy: list[str] = []
    for path in pages:
        text = ada.get(path)
        weight, took = len(text.encode()), least_s(ada, path)
        told = f"{path}: {weight:,} bytes, {1000 * took:.0f} ms of {1000 * limit:.0f}"
        print(told)
        if weight > BYTES_MAX or took > SLACK * limit:
            heavy.append(told)
    assert heavy == []
