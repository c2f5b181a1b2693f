"""A home of every version opens with this one: its files, history, facts and conversations, and a turn

`tests/fixtures/make_version_home.py` makes the home of the present version.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.metadata import version
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from harness.cli.app import app
from harness.cli.console.console import Shown
from tests import stored_home
from tests.fixtures.make_version_home import HOMES

ARCHIVE_BYTES_MAX = 200_000

ARCHIVES = sorted(HOMES.glob("*.tar.xz"))


def test_the_present_version_has_a_home_and_none_is_large() -> None:
    sizes = {file.name.removesuffix(".tar.xz"): file.stat().st_size for file in ARCHIVES}
    assert version("workspace-harness") in sizes, "run tests.fixtures.make_version_home"
    assert {name for name, size in sizes.items() if size > ARCHIVE_BYTES_MAX} == set()


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda file: file.name.removesuffix(".tar.xz"))
def test_a_home_of_a_version_opens_reads_back_and_runs_a_turn(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(archive) as stored:
        stored.extractall(tmp_path, filter="tar")
    monkeypatch.setenv("HARNESS_MODEL", "demo")
    for name in ("home", "account", "field", "as_json"):
        monkeypatch.setattr(Shown, name, getattr(Shown, name))
    home = tmp_path / "home"
    stored_commands = json.loads((tmp_path / "answers.json").read_text())["commands"]
    changed = [
        f"{' '.join(question['command'])} {difference}"
        for question in stored_commands
        for difference in stored_home.differences(
            question["answer"], ask(home, question["command"], as_json=question["json"])
        )
    ]
    assert changed == []
    again = ask(home, ["run", "When is the deploy day?", "-c", "planning", "--json"])["out"]
    assert (again["outcome"], "Thursday" in again["reply"]) == ("done", True)
    assert ask(home, ["version", "--json"])["out"]["isReadable"]


def ask(home: Path, command: Sequence[str], *, as_json: bool = True) -> Any:
    """Run a command in this process, because starting one takes longer than most commands."""
    printed = TextIOWrapper(BytesIO(), encoding="utf-8")
    with redirect_stdout(printed):
        code = app(["--home", str(home), *command], standalone_mode=False)
    printed.flush()
    text = printed.buffer.getvalue().decode()  # type: ignore[attr-defined]
    answer = {"code": code or 0, "out": json.loads(text) if as_json else text}
    return stored_home.normalised(answer, home, command)
