"""`harness block`."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

from tests.harness.cli.terminal import COMMAND, COMMAND_S_MAX, Terminal


def test_a_block_is_written_shown_listed_and_restored(born: Terminal) -> None:
    born("block", "show", "core").refused("there is no block")
    born("block", "edit", "core", "--text", "- likes tea").done()
    born("block", "edit", "core", "--text", "-", stdin=b"- likes coffee\n").done()
    born("block", "edit", "core", "-t", "- with the assistant", "--agent", "assistant").done()
    show, listed, history = born.all(
        ("block", "show", "core"),
        ("block", "list", "--json"),
        ("block", "history", "core", "--json"),
    )
    assert show.done().out == "- likes coffee\n"
    scopes = [(one["block_type"], one["scope"]) for one in listed.done().json["blocks"]]
    assert scopes == [("core", "user"), ("core", "agent")]
    first = history.done().json["revisions"][-1]["revision"]
    restored = born("block", "restore", "core", first[:10], "--json").done().json
    assert restored["content"] == "- likes tea"
    assert "characters" in born("block", "list").done().out
    assert "restored from" in born("block", "history", "core").done().out
    born("block", "edit", "core", "--text", "x" * 4_001).refused("4,000")


def test_without_a_terminal_the_text_must_be_named(born: Terminal) -> None:
    born("block", "edit", "core", EDITOR="true").refused("--text TEXT")


def test_the_editor_of_the_person_changes_a_block(born: Terminal, tmp_path: Path) -> None:
    born("block", "edit", "core", "--text", "- likes tea").done()
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/tea/coffee/ "$1"\n')
    editor.chmod(0o755)
    assert edited(born, str(editor)) == 0
    assert born("block", "show", "core").done().out == "- likes coffee\n"


def test_a_text_that_comes_too_late_is_kept_in_its_file(born: Terminal, tmp_path: Path) -> None:
    born("block", "edit", "core", "--text", "- likes tea").done()
    editor = tmp_path / "editor"
    other = " ".join(COMMAND)
    editor.write_text(
        f'#!/bin/sh\n{other} block edit core --text "- by another" && echo "- mine" > "$1"\n'
    )
    editor.chmod(0o755)
    assert edited(born, str(editor), TMPDIR=str(tmp_path)) == 1
    assert born("block", "show", "core").done().out == "- by another\n"
    (kept,) = tmp_path.glob("core-*.md")
    assert kept.read_text() == "- mine\n"


def edited(terminal: Terminal, editor: str, **variables: str) -> int:
    """The exit code of `harness block edit core` at a terminal."""
    leader, follower = pty.openpty()
    try:
        ended = subprocess.run(
            [*COMMAND, "block", "edit", "core"],
            stdin=follower,
            capture_output=True,
            env=terminal.environment(EDITOR=editor, VISUAL="", **variables),
            timeout=COMMAND_S_MAX,
            check=False,
        )
    finally:
        os.close(leader)
        os.close(follower)
    return ended.returncode
