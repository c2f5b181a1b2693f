"""A home that is created concurrently, locked, full, damaged, too new, or impossible to create."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.disk import fill
from tests.harness.cli.terminal import COMMAND_S_MAX, Ended, Terminal


@pytest.fixture(scope="module", autouse=True)
def locked(tmp_path_factory: pytest.TempPathFactory) -> Generator[Future[list[Ended]]]:
    """Commands that wait for long, begun before the first test so that nobody waits for them."""
    place = tmp_path_factory.mktemp("locked")
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(_while_locked, Terminal(place / "home", {}))


def _while_locked(harness: Terminal) -> list[Ended]:
    """What commands come to while another connection holds the lock, and one after it let go."""
    harness("ls", "notes").done()
    said = ("run", "remember that tea is green", "--json")
    with closing(sqlite3.connect(harness.home / "state.db", isolation_level=None)) as holder:
        holder.execute("begin immediate")
        held = harness.all(("cat", "notes", "MEMORY.md"), said, ("workspace", "create", "other"))
    return [*held, harness(*said)]


def test_simultaneous_first_commands_in_a_new_home_all_succeed(harness: Terminal) -> None:
    said = [("run", f"remember that {name} is here") for name in ("Ada", "Bob", "Cleo", "Dora")]
    for ended in harness.all(*said):
        ended.done()
    memory = harness("cat", "notes", "MEMORY.md").out
    assert all(f"- {name} is here\n" in memory for name in ("Ada", "Bob", "Cleo", "Dora"))
    assert len(harness("workspace", "list", "--json").json["workspaces"]) == 1


def test_a_locked_record_store_is_reported_and_loses_no_data(
    locked: Future[list[Ended]],
) -> None:
    cat, run, created, after = locked.result(COMMAND_S_MAX)
    cat.done()
    error = run.refused("unavailable", "locked by another process", "→ end the process").json
    assert error["error"]["code"] == "unavailable"
    created.refused("locked by another process")
    after.done()


def test_a_home_that_cannot_be_created_is_refused_with_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no directory")
    harness = Terminal(file / "home", {})
    commands = [("ls", "notes"), ("run", "hi"), ("workspace", "list"), ("chat",)]
    for ended in harness.all(*commands):
        ended.refused("unavailable", "Not a directory", "--home or HARNESS_HOME")
    doctor = harness("doctor", "--json")
    assert (doctor.code, doctor.json[-1]["check"], doctor.json[-1]["state"]) == (
        1,
        "home",
        "broken",
    )
    harness("--home", "~nobody-of-this-name", "ls", "notes").refused("--home or HARNESS_HOME")


def test_a_read_only_home_refuses_writes(born: Terminal) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere: permissions keep nobody out")
    born.home.chmod(0o500)
    try:
        born("write", "notes", "a.md", stdin=b"x").refused("unavailable")
    finally:
        born.home.chmod(0o700)


def test_on_a_full_disk_existing_files_stay_readable(tiny_disk: Path) -> None:
    harness = Terminal(tiny_disk / "home", {})
    harness("write", "notes", "a.md", stdin=b"before").done()
    file = Path(harness("path", "notes", "a.md").out.strip())
    fill(tiny_disk / "filler")
    writing, said, made = (
        harness("write", "notes", "a.md", "--json", stdin=b"after" * 5000),
        harness("run", "remember that tea is green"),
        harness("workspace", "create", "other"),
    )
    assert writing.refused("unavailable").json["error"]["code"] == "unavailable"
    said.refused("unavailable")
    made.refused("unavailable")
    assert file.read_text() == "before"
    (tiny_disk / "filler").unlink()
    harness("write", "notes", "a.md", stdin=b"after").done()
    harness("run", "remember that tea is green").done()
    assert harness("cat", "notes", "a.md").out == "after"


SETTINGS = [
    ("format: 2\n", ("newer than this version", "→ use the version")),
    (f"format: {'9' * 5000}\n", ("format", "must be a number")),
    ("modle: demo\n", ("'modle' is unknown", "→ did you mean 'model'?")),
    ("model: [demo]\n", ("model", "must be one line of text")),
    ('records: "sqlite:a\\0b"\n', ("records", "must be one line of text")),
    ("records: postgres:x\n", ("records", "sqlite:")),
    ("records: sqlite:/nonexistent/x.db\n", ("unavailable", "cannot be written")),
    ("- a list\n", ("`key: value`",)),
    ("[" * 5000, ("not valid",)),
    ("\ufffe\x07", ("harness.yaml",)),
]


def test_an_invalid_setting_is_refused_with_its_name(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for number, (settings, words) in enumerate(SETTINGS):
        place = tmp_path / f"home{number}"
        place.mkdir()
        (place / "harness.yaml").write_text(settings)
        Terminal(place, {})("run", "hi").refused(*words)
        assert (place / "harness.yaml").read_text() == settings


def test_a_home_of_a_newer_format_is_not_modified(born: Terminal) -> None:
    (born.home / "harness.yaml").write_text("format: 2\n")
    before = (born.home / "state.db").read_bytes()
    as_json = born("run", "remember x", "--json").refused()
    assert as_json.json["error"]["field"].endswith("harness.yaml: format")
    assert born("doctor").code == 1
    assert (born.home / "state.db").read_bytes() == before


def test_a_damaged_record_store_is_reported_by_file_name(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "state.db").write_bytes(bytes(range(256)) * 64)
    harness = Terminal(home, {})
    harness("ls", "notes").refused("state.db", "damaged", "→")
    doctor = harness("doctor", "--json")
    assert doctor.code == 1
    assert "records" in {f["check"] for f in doctor.json if f["state"] == "broken"}
