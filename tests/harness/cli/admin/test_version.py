"""`harness version`: the formats of a home, also of one that this version refuses."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from tests.harness.cli.terminal import Terminal


def test_version_shows_the_formats_of_a_home_and_creates_none(
    born: Terminal, tmp_path: Path
) -> None:
    shown = born("version").done().out
    assert shown.startswith(f"workspace-harness {version('workspace-harness')}\n")
    told = born("version", "--json").done().json
    formats = {one["part"]: (one["format"], one["needs"]) for one in told["parts"]}
    assert formats == {"harness.yaml": (1, "0.1.0"), "records": (1, None), "sync": (None, None)}
    nowhere = Terminal(tmp_path / "nowhere", {})
    assert "does not exist yet" in nowhere("version").done().out
    assert not nowhere.home.exists()


def test_version_says_what_a_newer_home_needs(born: Terminal) -> None:
    with closing(sqlite3.connect(born.home / "state.db")) as records:
        records.execute("pragma user_version = 2")
    told = born("version", "--json")
    assert [one["part"] for one in told.json["parts"] if not one["isReadable"]] == ["records"]
    (born.home / "harness.yaml").write_text("format: 2\nneeds: 0.4.0\nelse: [1]\n")
    shown = born("version")
    assert "→ install workspace-harness 0.4.0 or newer" in shown.out
    assert (told.code, shown.code) == (1, 1)
