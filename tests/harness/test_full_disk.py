"""A home on a disk that takes no write: whatever only reads still answers, and soon."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

import pytest

from harness import Harness
from harness.presentation.status import status
from tests.disk import fill, read_only
from tests.harness.cli.terminal import Terminal
from tests.harness.web.serving import Home, Server, home_at

ANSWER_S_MAX = 2.0
FILES = 40


@contextmanager
def within(seconds: float) -> Generator[None]:
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < seconds


def write_something(place: Path) -> str:
    """Write some notes, and bring the index up to date. Return the id of the workspace."""
    with Harness.open(place) as harness:
        workspace, by = harness.workspaces.get("notes"), harness.rooms.principal.author("api")
        for number in range(FILES):
            workspace.write(f"notes/n{number}.md", f"- boat {number} is blue\n", by=by)
        assert workspace.recall.find("boat 7")
        return workspace.record.id


def fill_whole(disk: Path) -> None:
    fill(disk / "filler")
    with pytest.raises(OSError, match="No space left"):
        (disk / "one more").write_bytes(b"x" * 4096)


def json_of(server: Server, path: str) -> tuple[object, str | None]:
    with within(ANSWER_S_MAX), server.opened("GET", path) as answer:
        return json.load(answer), answer.headers["X-Harness-Note"]


def test_every_read_over_http_answers_soon_while_the_disk_is_full(small_disk: Path) -> None:
    home = home_at(small_disk / "home")
    workspace = f"/v1/workspaces/{write_something(small_disk / 'home')}"
    with home.served() as server:
        (tree,) = (small_disk / "home/workspaces").glob("fs-*")
        fill_whole(small_disk)
        (tree / "notes/n1.md").write_bytes(b"- sea 1 is wide\n")  # as long as before: it fits
        # the first request with this key: when it was last used cannot be noted
        with within(ANSWER_S_MAX), server.opened("GET", f"{workspace}/files/notes/n7.md") as file:
            assert file.read() == b"- boat 7 is blue\n"
        listed, _ = json_of(server, f"{workspace}/files")
        assert "notes/n39.md" in json.dumps(listed)
        log, note = json_of(server, f"{workspace}/log?limit=5")
        assert "n39.md" in json.dumps(log)
        assert "by hand are missing" in (note or "")
        blame, _ = json_of(server, f"{workspace}/blame?path=notes/n7.md")
        assert "boat 7 is blue" in json.dumps(blame)
        found, note = json_of(server, f"{workspace}/recall?query=boat+7")
        assert "notes/n7.md" in json.dumps(found)
        assert note == "the index may be out of date: the disk is full"
        assert "the index may be out of date" in json.dumps(found)
        with pytest.raises(HTTPError) as refused:
            server.opened("PUT", f"{workspace}/files/new.md", "x" * 100_000)
        with refused.value as answer:
            assert answer.code == 503
        (small_disk / "filler").unlink()
        found, note = json_of(server, f"{workspace}/recall?query=sea")
        assert "notes/n1.md" in json.dumps(found)
        assert note is None


READING = (
    ("cat", "notes", "notes/n7.md"),
    ("ls", "notes"),
    ("log", "notes"),
    ("blame", "notes", "notes/n7.md"),
    ("recall", "boat 7"),
    ("status",),
)


def test_every_command_that_reads_answers_soon_on_a_full_disk(small_disk: Path) -> None:
    write_something(small_disk / "home")
    terminal = Terminal(small_disk / "home", {})
    usual = seconds_of(terminal)
    fill_whole(small_disk)
    assert seconds_of(terminal) < usual + ANSWER_S_MAX, "one of them has waited to write"
    terminal("write", "notes", "new.md", stdin=b"x" * 100_000).refused("unavailable")


def test_every_command_that_reads_works_in_a_read_only_home(
    small_disk: Path, tmp_path: Path
) -> None:
    write_something(small_disk / "home")
    with read_only(small_disk, tmp_path / "read-only") as place:
        terminal = Terminal(place / "home", {})
        read_all(terminal)
        terminal("write", "notes", "new.md", stdin=b"x").refused("unavailable")


def test_a_server_of_a_read_only_home_answers_readers(small_disk: Path, tmp_path: Path) -> None:
    home = home_at(small_disk / "home")
    workspace = f"/v1/workspaces/{write_something(small_disk / 'home')}"
    log = tmp_path / "log"
    with read_only(small_disk, tmp_path / "read-only") as place:
        here = Home(Terminal(place / "home", {}), home.key)
        with here.served(log=log) as server:
            with (
                within(ANSWER_S_MAX),
                server.opened("GET", f"{workspace}/files/notes/n7.md") as file,
            ):
                assert file.read() == b"- boat 7 is blue\n"
            for read, word in {
                "files": "notes/n7.md",
                "log?path=notes/n7.md": "notes/n7.md",
                "blame?path=notes/n7.md": "boat 7",
                "recall?query=boat+7": "notes/n7.md",
            }.items():
                assert word in json.dumps(json_of(server, f"{workspace}/{read}")[0]), read
            with pytest.raises(HTTPError) as refused:
                server.opened("PUT", f"{workspace}/files/new.md", "x")
            with refused.value as answer:
                assert answer.code == 503
    assert '"event": "no writes"' in log.read_text()


def seconds_of(terminal: Terminal) -> float:
    begin = time.monotonic()
    read_all(terminal)
    return time.monotonic() - begin


def read_all(terminal: Terminal) -> None:
    cat, ls, log, blame, recall, overview = terminal.all(*READING)
    assert cat.done().out == "- boat 7 is blue\n"
    assert "notes/n39.md" in ls.done().out
    assert "n39.md" in log.done().out
    assert "boat 7 is blue" in blame.done().out
    assert "notes/n7.md:1: - boat 7 is blue" in recall.done().out
    assert "notes" in overview.done().out


def test_status_and_recall_answer_soon_without_an_index_on_a_full_disk(small_disk: Path) -> None:
    place = small_disk / "home"
    write_something(place)
    for file in (place / "search").iterdir():
        file.unlink()
    fill_whole(small_disk)
    with within(ANSWER_S_MAX), Harness.open(place) as harness:
        sections = {section.name: section.lines for section in status(harness)}
        assert [line.state for line in sections["workspaces"]] == ["ok"]
        recall = harness.workspaces.get("notes").recall
        assert recall.find("boat 7")[0].path == "notes/n7.md"
        assert recall.stale_reason == "", "an index in memory is up to date"
