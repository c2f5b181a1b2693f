"""`verify` finds a text that is put back into any kind of place, one at a time."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from harness.forgetting.raw_bytes import RawSearch

TEXT = "the heron nests in Galway"
OTHER = "a crane stands in Sligo town"

PutBack = Callable[[Path, str], object]


def _database(file: Path, text: str, *after: str, mode: str = "wal") -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute(f"pragma journal_mode={mode}")
        database.execute("pragma secure_delete=off")
        database.execute("create table item (value text)")
        database.execute("begin")
        database.executemany("insert into item values (?)", [(f"{text} {n}",) for n in range(200)])
        database.execute("commit")
        for statement in after:
            database.execute(statement)


def _git(root: Path, text: str, *, packs: bool) -> None:
    home = root / "history" / "fs-1.git"
    subprocess.run(["git", "init", "-q", "--bare", str(home)], check=True)
    git = ["git", f"--git-dir={home}"]
    blob = subprocess.run(
        [*git, "hash-object", "-w", "--stdin"], input=text.encode(), check=True, capture_output=True
    ).stdout
    if packs:
        base = home / "objects" / "pack" / "pack"
        subprocess.run(
            [*git, "pack-objects", "-q", str(base)], input=blob, check=True, capture_output=True
        )
        name = blob.decode().strip()
        (home / "objects" / name[:2] / name[2:]).unlink()


def _bundle(root: Path, text: str) -> None:
    _git(root, text, packs=True)
    (pack,) = root.rglob("*.pack")
    (root / "one.bundle").write_bytes(b"# v2 git bundle\n\n" + pack.read_bytes())
    pack.unlink()


def _write(name: str, data: Callable[[str], bytes]) -> PutBack:
    def put(root: Path, text: str) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data(text))

    return put


PLACES: dict[str, PutBack] = {
    "a file": _write("workspaces/fs-1/a.md", lambda text: f"- {text}\n".encode()),
    "a file in capitals, across lines": _write(
        "workspaces/fs-1/a.md", lambda text: f"**{text.upper()}**".replace(" ", "\n> ", 1).encode()
    ),
    "the name of a file": lambda root, text: (root / f"{text}.md").write_text("x"),
    "a binary file": _write("a.bin", lambda text: b"\xff\x00x" + text.encode() + b"\x00\xfe"),
    "a record": lambda root, text: _database(root / "state.db", text, mode="delete"),
    "a deleted record": lambda root, text: _database(
        root / "state.db", text, "delete from item", mode="delete"
    ),
    "the log of a database": lambda root, text: _keep_log(root, text),
    "a large value, escaped": _write(
        "entries/conv_1/1.json", lambda text: json.dumps({"text": f"é{text}\t"}).encode()
    ),
    "JSON in JSON": _write(
        "entries/conv_1/2.json",
        lambda text: json.dumps(json.dumps(text.replace(" ", "\n"))).encode(),
    ),
    "an archived conversation": _write(
        "entries/arc_1/a.zst", lambda text: zstandard.compress(f'{{"text": "{text}"}}\n'.encode())
    ),
    "a loose object": lambda root, text: _git(root, text, packs=False),
    "a packed object": lambda root, text: _git(root, text, packs=True),
    "a pack in the bucket": _bundle,
    "the trash": _write("trash/1-fs-1/files/a.md", str.encode),
    "a temporary file": _write("staging/fs-1/left", str.encode),
    "a backup's piece": _write("objects/ab/abc", lambda text: b"\x00" * 10 + text.encode()),
}


def _keep_log(root: Path, text: str) -> None:
    _database(root / "whole.db", text)
    with closing(sqlite3.connect(root / "whole.db")) as reader:
        reader.execute("select count(*) from item").fetchone()
        (root / "kept-wal").write_bytes((root / "whole.db").read_bytes())
    (root / "whole.db").unlink()


@pytest.mark.parametrize("place", PLACES)
def test_a_text_that_is_put_back_is_found(tmp_path: Path, place: str) -> None:
    PLACES[place](tmp_path, OTHER)
    search = RawSearch(TEXT)
    assert [*search.in_directory(tmp_path)] == []
    (tmp_path / "back").mkdir()
    PLACES[place](tmp_path / "back", TEXT)
    found = [one.where for one in search.in_directory(tmp_path)]
    assert found
    assert TEXT not in " ".join(found)


def test_a_short_text_is_not_found_inside_of_words(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("concerto, tea-time, steam")
    assert [*RawSearch("eam").in_directory(tmp_path)] == []
    assert [*RawSearch("tea").in_directory(tmp_path)] != []
