"""Files of a workspace: `harness ls`, `path`, `cat` and `write`."""

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
