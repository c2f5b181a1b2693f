"""`harness import` and `harness export`."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.harness.cli.terminal import Terminal


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    place = tmp_path / "vault"
    (place / ".obsidian").mkdir(parents=True)
    (place / "Tea.md").write_text("green\n")
    (place / "What?.md").write_text("w\n")
    (place / "link.md").symlink_to("Tea.md")
    return place


def test_import_dry_run_shows_the_plan_and_import_applies_the_plan(
    harness: Terminal, vault: Path
) -> None:
    before = harness("ls", "notes").done().out
    dry = harness("import", str(vault), "--dry-run").done()
    assert "new     notes/Tea.md  ← Tea.md" in dry.out
    assert "new     notes/What_.md  ← What?.md" in dry.out
    assert "left    link.md: is a link" in dry.out
    assert "nothing was changed" in dry.out
    assert harness("ls", "notes").out == before
    done = harness("import", str(vault), "--workspace", "notes", "--json").done().json
    assert {one["path"]: one["renamed"] for one in done["files"]} == {
        "notes/Tea.md": False,
        "notes/What_.md": True,
    }
    assert {left["name"] for left in done["left"]} == {".obsidian/", "link.md"}
    (newest,) = harness("log", "notes", "-n", "1", "--json").json
    assert [newest["revision"]] == done["revisions"]
    assert done["durable"] == {"files": "here", "history": "here"}
    assert newest["subject"].startswith("imported from vault · 2 files: notes/Tea.md")
    again = harness("import", str(vault)).done()
    assert "2 same, 2 left" in again.out


def test_import_refuses_a_missing_source_or_a_damaged_archive(
    harness: Terminal, tmp_path: Path
) -> None:
    harness("import", str(tmp_path / "nothing")).refused("not_found")
    harness("import", str(tmp_path), "--workspace", "nothing").refused("not_found", "nothing")
    (tmp_path / "a.zip").write_bytes(b"PK\3\4 no zip at all")
    harness("import", str(tmp_path / "a.zip")).refused("is damaged")


def test_importing_an_export_recreates_the_same_files(harness: Terminal, tmp_path: Path) -> None:
    harness("write", "notes", "notes/ä ö.md", stdin="Grüße\n".encode()).done()
    harness("write", "notes", "data.bin", stdin=b"\0\xff").done()
    told = harness("export", "notes", "--to", str(tmp_path / "n.zip"), "--json").done().json
    assert told["files"] == len(zipfile.ZipFile(tmp_path / "n.zip").namelist())
    harness("export", "notes", "--to", str(tmp_path / "n.tar.gz")).done()
    with tarfile.open(tmp_path / "n.tar.gz") as archive:
        assert "data.bin" in archive.getnames()
    for number, ending in enumerate(("zip", "tar.gz")):
        harness("workspace", "create", f"copy{number}").done()
        harness("import", str(tmp_path / f"n.{ending}"), "-w", f"copy{number}").done()
        assert harness("ls", f"copy{number}").out == harness("ls", "notes").out
    harness("export", "notes", "--to", str(tmp_path / "n.zip")).refused("already_exists")
    harness("export", "notes", "--to", str(tmp_path / "n.rar")).refused("must end with")
    harness("export", "notes", "--to", str(tmp_path / "no/n.zip")).refused("unavailable")


def test_export_of_a_revision_contains_the_files_of_that_revision(
    harness: Terminal, tmp_path: Path
) -> None:
    harness("write", "notes", "a.md", stdin=b"old\n").done()
    old = harness("log", "notes", "-n", "1", "--json").json[0]["revision"]
    harness("write", "notes", "a.md", stdin=b"new\n").done()
    harness("export", "notes", "--to", str(tmp_path / "n.zip"), "-r", old[:10]).done()
    assert zipfile.ZipFile(tmp_path / "n.zip").read("a.md") == b"old\n"


def test_git_can_clone_the_history_of_a_workspace(harness: Terminal, tmp_path: Path) -> None:
    harness("write", "notes", "a.md", stdin=b"old\n").done()
    place = harness("path", "notes", "--history").done().out.strip()
    clone = ["git", "clone", "-q", place, str(tmp_path / "clone")]
    subprocess.run(clone, check=True, capture_output=True, timeout=60)
    assert (tmp_path / "clone/a.md").read_text() == "old\n"
