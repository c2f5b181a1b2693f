"""Files of a workspace: `harness ls`, `path`, `cat`, `write`, `rm` and `mv`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.harness.cli.terminal import Terminal
from workspaces.ids import version_of


def test_ls_path_and_cat_list_locate_and_print_files(harness: Terminal) -> None:
    data = b"\x00\xff binary\r\n"
    harness("write", "notes", "notes/b.bin", stdin=data).done()
    ls, names, path, where, as_json, cat, shown = harness.all(
        ("ls", "notes"),
        ("ls", "notes", "--json"),
        ("path", "notes"),
        ("path", "notes", "notes/b.bin"),
        ("path", "notes", "--json"),
        ("cat", "notes", "notes/b.bin"),
        ("cat", "notes", "notes/b.bin", "--json"),
    )
    assert [line.split()[-1] for line in ls.done().out.splitlines()] == [
        "path",
        "MEMORY.md",
        "TASKS.md",
        "notes/README.md",
        "notes/b.bin",
    ]
    assert names.done().json[-1] == {
        "path": "notes/b.bin",
        "size": len(data),
        "version": version_of(data),
    }
    root = Path(path.done().out.removesuffix("\n"))
    assert (root / "notes/b.bin").read_bytes() == data
    assert where.done().out == f"{root}/notes/b.bin\n"
    assert as_json.done().json == {"path": str(root)}
    assert cat.done().stdout == data
    assert shown.done().json["version"] == version_of(data)


def test_cat_prints_a_file_at_a_revision(harness: Terminal) -> None:
    first = harness("write", "notes", "a.md", "--json", stdin=b"one").done().json
    harness("write", "notes", "a.md", stdin=b"two").done()
    then, short, now, listed, never = harness.all(
        ("cat", "notes", "a.md", "-r", first["revision"]),
        ("cat", "notes", "a.md", "-r", first["revision"][:8]),
        ("cat", "notes", "a.md"),
        ("ls", "notes", "-r", first["revision"], "--json"),
        ("cat", "notes", "a.md", "-r", "0" * 40),
    )
    assert (then.out, short.out, now.out) == ("one", "one", "two")
    assert {"path": "a.md"} in listed.done().json
    never.refused("not_found", "→ `harness log` lists them")


def test_write_reports_the_version_on_standard_error_or_as_json(harness: Terminal) -> None:
    plain = harness("write", "notes", "a.md", stdin=b"one").done()
    assert plain.out == ""
    assert re.fullmatch(r"a\.md: [0-9a-f]{12}\n", plain.stderr)
    again = harness("write", "notes", "a.md", "--json", stdin=b"one").done()
    assert again.json == {
        "path": "a.md",
        "version": version_of(b"one"),
        "revision": None,
        "durable": {"files": "here", "history": "here"},
    }


def test_a_write_with_an_outdated_version_is_a_conflict(harness: Terminal) -> None:
    seen = harness("write", "notes", "a.md", "--json", stdin=b"one").done().json["version"]
    conditional = ("write", "notes", "a.md", "--if-version")
    harness(*conditional, seen, stdin=b"two").done()
    stale = harness(*conditional, seen, stdin=b"three").refused("conflict", "→ read it again")
    assert stale.out == ""
    as_json = harness(*conditional, seen, "--json", stdin=b"three").refused()
    assert as_json.json["error"]["code"] == "conflict"
    harness(*conditional, "none", stdin=b"three").refused("already_exists")
    assert harness("cat", "notes", "a.md").out == "two"


def test_ls_without_a_workspace_lists_the_workspaces(harness: Terminal) -> None:
    harness("workspace", "create", "diary").done()
    for arguments in ((), ("--json",)):
        listed = harness("ls", *arguments).done().out
        assert listed == harness("workspace", "list", *arguments).done().out
        assert "diary" in listed
    assert harness("ls", "-r", "abcd").code == 2


def test_rm_deletes_a_file_and_its_last_content_can_be_restored(harness: Terminal) -> None:
    first = harness("write", "notes", "a.md", "--json", stdin=b"one").done().json["revision"]
    gone = harness("rm", "notes", "a.md", "--json").done().json
    assert (gone["path"], gone["version"]) == ("a.md", None)
    harness("cat", "notes", "a.md").refused("not_found")
    harness("rm", "notes", "a.md").refused("not_found")
    harness("restore", "notes", "a.md", "-r", first).done()
    assert harness("cat", "notes", "a.md").done().out == "one"


def test_mv_renames_a_file_as_one_revision_and_overwrites_none(harness: Terminal) -> None:
    harness("write", "notes", "a.md", stdin=b"one\n").done()
    harness("write", "notes", "b.md", stdin=b"two\n").done()
    moved = harness("mv", "notes", "a.md", "old/a.md", "--json").done().json
    newest = harness("show", "notes", "--json").done().json
    assert (moved["from"], moved["path"], moved["revision"]) == (
        "a.md",
        "old/a.md",
        newest["revision"],
    )
    assert {file["path"]: file["kind"] for file in newest["files"]} == {
        "a.md": "deleted",
        "old/a.md": "added",
    }
    assert harness("cat", "notes", "old/a.md").done().out == "one\n"
    harness("mv", "notes", "a.md", "c.md").refused("not_found")
    harness("mv", "notes", "old/a.md", "b.md").refused("already_exists")
    harness("mv", "notes", "b.md", "b.md").refused("already_exists")
    harness("mv", "notes", "b.md", "../b.md").refused("path")
    assert harness("cat", "notes", "b.md").done().out == "two\n"
