"""History commands: `harness log`, `diff`, `show`, `restore`, `revert` and `git`."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness import Harness
from harness.cli.app import app
from harness.presentation.history_view import TurnReasons
from tests.harness.cli.terminal import Terminal

REVISION = re.compile(r"[0-9a-f]{40}")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("HARNESS_HOME", str(home))
    with Harness.open(home) as harness:
        harness.workspaces.create("journal", template="default")
    return home


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def asked(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def edit(text: str) -> None:
    Path(run("path", "journal", "MEMORY.md").strip()).write_text(text)


@pytest.mark.usefixtures("home")
def test_diff_and_show_include_manual_edits() -> None:
    edit("# Memory\n\n- likes green tea\n")
    (file,) = asked("diff", "journal")["files"]
    assert "+- likes green tea\n" in file["patch"]
    edit("# Memory\n\n- likes black tea\n")
    assert "- likes [-green-]{+black+} tea" in run("diff", "journal", "MEMORY.md", "--words")
    assert ["-", "green"] in asked("diff", "journal", "--words")["files"][0]["words"]
    shown = asked("show", "journal")
    assert shown["author"] == "owner"
    assert shown["trailers"]["Source"] == "edit"
    assert shown["files"][0]["path"] == "MEMORY.md"
    assert "likes black tea" in run("show", "journal", shown["revision"][:8])
    lines = asked("blame", "journal", "MEMORY.md")
    assert lines[-1]["text"] == "- likes black tea"
    assert lines[-1]["revision"] == shown["revision"]
    assert "likes black tea" in run("blame", "journal", "MEMORY.md")
    assert "black" in run("log", "journal", "MEMORY.md", "-p")
    assert run("git", "journal", "log", "-1", "--format=%an", "--", "MEMORY.md") == "owner\n"


@pytest.mark.usefixtures("home")
def test_revert_and_restore_bring_back_earlier_content() -> None:
    edit("one\ntwo\nthree\n")
    first = asked("show", "journal")["revision"]
    edit("one\n2\nthree\n")
    second = asked("show", "journal")["revision"]
    edit("zero\none\n2\nthree\n")
    here = {"files": "here", "history": "here"}
    reverted = asked("revert", "journal", second)
    assert (reverted["reverted"], reverted["durable"]) == (second, here)
    assert reverted["revision"]
    assert run("cat", "journal", "MEMORY.md") == "zero\none\ntwo\nthree\n"
    assert asked("revert", "journal", second)["revision"] is None
    assert asked("restore", "journal", "MEMORY.md", "--revision", first)["durable"] == here
    assert run("cat", "journal", "MEMORY.md") == "one\ntwo\nthree\n"
    told = asked("diff", "journal", "--from", first, "--to", second)
    assert (told["from"], told["to"]) == (first, second)
    assert asked("diff", "journal", "--from", first)["files"] == []


def test_revert_exits_1_with_the_lines_that_were_rewritten_since(harness: Terminal) -> None:
    for text in (b"one\ntwo\n", b"one\n2\n", b"one\nII\n"):
        harness("write", "notes", "a.md", stdin=text).done()
    second = harness("log", "notes", "a.md", "--json").done().json[1]["revision"]
    refused = harness("revert", "notes", second, "--json").refused("  a.md:2  II\n")
    error = refused.json["error"]
    assert error["code"] == "conflict"
    assert error["lines"] == [{"path": "a.md", "line": 2, "text": "II"}]
    assert harness("cat", "notes", "a.md").done().out == "one\nII\n"


@pytest.mark.usefixtures("home")
def test_restore_previous_restores_the_file_before_its_last_change() -> None:
    for text in ("one\n", "two\n"):
        edit(text)
        run("log", "journal")
    run("restore", "journal", "MEMORY.md", "--previous")
    assert run("cat", "journal", "MEMORY.md") == "one\n"
    run("restore", "journal", "MEMORY.md", "--previous")
    assert run("cat", "journal", "MEMORY.md") == "two\n"
    assert run("restore", "journal", "MEMORY.md", code=2) == ""
    run("restore", "journal", "MEMORY.md", "--previous", "--revision", "head", code=2)


@pytest.mark.usefixtures("home")
def test_git_options_and_unknown_revisions_are_refused() -> None:
    for arguments in (
        ["git", "journal", "log", "--output=/tmp/x"],
        ["git", "journal", "-c", "core.pager=x", "log"],
        ["diff", "journal", "--from", "--output=x"],
        ["show", "journal", "main"],
    ):
        result = CliRunner().invoke(app, arguments)
        assert type(result.exception).__name__ == "Refused", arguments


def terminal(home: Path, *arguments: str, **environment: str) -> str:
    """What a person sees: the command on a terminal of its own."""
    master, slave = pty.openpty()
    own = {"HARNESS_HOME": str(home), "TERM": "xterm-256color", "PAGER": ""}
    env = {**os.environ, **own, **environment}
    command = [sys.executable, "-m", "harness.cli.app", *arguments]
    with subprocess.Popen(command, stdout=slave, stderr=slave, stdin=slave, env=env) as process:
        os.close(slave)
        chunks: list[bytes] = []
        try:
            while chunk := os.read(master, 65536):
                chunks.append(chunk)
        except OSError:  # the other end has closed
            pass
        assert process.wait(timeout=60) == 0
    os.close(master)
    return b"".join(chunks).decode()


def test_a_terminal_gets_colours_and_escaped_control_characters_in_a_diff(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    edit("evil \x1b[2J\x07 line\n")
    assert "\x1b" not in run("diff", "journal").replace("\x1b[2J", "")
    assert "+evil \x1b[2J\x07 line\n" in run("diff", "journal")  # a pipe gets what is there
    for command in (["diff", "journal"], ["git", "journal", "show"], ["show", "journal"]):
        seen = terminal(home, *command)
        assert "\x1b[32m" in seen
        assert "evil \\x1b[2J\\x07 line" in seen
        assert "\x1b[2J" not in seen
        assert "\x1b[32m" not in terminal(home, *command, NO_COLOR="1")


@pytest.mark.usefixtures("home")
def test_log_groups_revisions_by_conversation_with_the_users_message(home: Path) -> None:
    run("run", "Remember that tea is green.", "-c", "kitchen")
    run("run", "Remember that the sky is blue.", "-c", "kitchen")
    Path(run("path", "notes", "TASKS.md").strip()).write_text("# Tasks\n\n- [ ] call Ann\n")
    told = run("log", "notes")
    by_hand, kitchen, first = (chapter.splitlines() for chapter in told.split("\n\n"))
    assert by_hand[0].endswith("  owner (by hand)")
    assert "TASKS.md: +" in by_hand[1]
    assert kitchen[0].endswith("  assistant (conversation kitchen)")
    assert [line.strip().partition("  ")[2].partition("  ")[2] for line in kitchen[1::2]] == [
        "MEMORY.md: +1 −0 · the sky is blue",
        "MEMORY.md: +1 −0 · tea is green",
    ]
    assert [line.strip() for line in kitchen[2::2]] == [
        "asked: Remember that the sky is blue.",
        "asked: Remember that tea is green.",
    ]
    assert first[0].endswith("  owner (CLI or API)")
    with Harness.open(home) as harness:
        revision = harness.workspaces.get("notes").log()[1]
        assert TurnReasons(lambda: harness.rooms.conversations).why(revision)
        other = harness.rooms.users.add({"name": "other"})
        stranger = harness.rooms.principal.as_user(other, may_configure=False)
        theirs = harness.house.rooms(stranger).conversations
        assert TurnReasons(lambda: theirs).why(revision) is None


def test_diff_at_a_terminal_marks_changed_words_of_similar_lines(home: Path) -> None:
    edit("- likes green tea\n- lives in Graz\n")
    run("log", "journal")
    edit("- likes black tea\n- lives in Graz\n")
    assert "- likes [-green-]{+black+} tea\n" in terminal(
        home, "diff", "journal", NO_COLOR="1"
    ).replace("\r\n", "\n")
    coloured = terminal(home, "diff", "journal", NO_COLOR="")
    assert "\x1b[4;32mblack" in coloured
    assert "[-" not in coloured.replace("\x1b[", "")
    assert "-- likes green tea\n+- likes black tea\n" in run("diff", "journal")
    edit("1. Buy milk tomorrow\n- lives in Graz\n")
    assert "[-- likes black tea-]\n{+1. Buy milk tomorrow+}\n" in run("diff", "journal", "--words")


def test_added_and_removed_lines_carry_a_sign_beside_their_colour(home: Path) -> None:
    edit("- likes green tea\n- lives in Graz\n- has a cat\n")
    run("log", "journal")
    edit("- likes black tea\n- lives in Graz\n\n- a new line\n")
    for command in (("diff", "journal"), ("log", "journal", "-p", "-n", "1")):
        seen = terminal(home, *command, NO_COLOR="")
        lines = re.sub(r"\x1b\[[0-9;]*m", "", seen).replace("\r\n", "\n").split("@@\n")[1]
        assert lines == (
            "~- likes greenblack tea\n - lives in Graz\n-- has a cat\n+\n+- a new line\n"
        )


def test_a_binary_file_is_named_with_its_size(home: Path) -> None:
    workspace = Path(run("path", "journal").strip())
    (workspace / "raw.bin").write_bytes(b"\0" * 20_480)
    assert "raw.bin: binary, 20 KB\n" in run("log", "journal")
    assert run("diff", "journal").endswith("b/raw.bin\nbinary, 20 KB\n")
    assert terminal(home, "cat", "journal", "raw.bin") == "raw.bin: binary, 20 KB\r\n"
    (workspace / "raw.bin").unlink()
    assert run("log", "journal", "-p").split("raw.bin: deleted\n")[1].split("\n")[1] == (
        "binary, 20 KB, deleted"
    )
    (file,) = json.loads(run("diff", "journal", "--json"))["files"]
    assert (file["binary"], file["size"]) == (True, 20_480)


def test_log_uses_the_configured_pager_only_at_a_terminal(home: Path) -> None:
    edit("- likes tea\n")
    assert "P:" not in run("log", "journal")
    seen = terminal(home, "log", "journal", PAGER="sed s/^/P:/", NO_COLOR="1")
    assert all(line.startswith("P:") for line in seen.splitlines())
    assert "by hand" in seen
    assert "by hand" in terminal(home, "log", "journal", PAGER="no-such-pager")
    assert terminal(home, "log", "journal", PAGER="true") == ""


def test_grep_escapes_control_characters_at_a_terminal(home: Path) -> None:
    edit("evil \x1b[2J line\n")
    seen = terminal(home, "grep", "journal", "evil", NO_COLOR="")
    assert "\x1b[1;31mevil" in seen
    assert "\\x1b[2J" in seen
    assert "\x1b[2J" not in seen


def test_log_lists_revisions_as_json_newest_first(harness: Terminal) -> None:
    harness("run", "remember that tea is green", "-c", "c1").done()
    harness("write", "notes", "notes/a.md", stdin=b"a\n").done()
    log, one, none, limited = harness.all(
        ("log", "notes", "--json"),
        ("log", "notes", "MEMORY.md", "--json"),
        ("log", "notes", "nix.md", "--json"),
        ("log", "notes", "-n", "1", "--json"),
    )
    revisions = log.done().json
    assert [set(revision) for revision in revisions] == [
        {"revision", "at", "author", "subject", "trailers", "paths"}
    ] * 3
    assert [revision["author"] for revision in revisions] == ["owner", "assistant", "owner"]
    assert [revision["paths"] for revision in revisions] == [
        ["notes/a.md"],
        ["MEMORY.md"],
        ["MEMORY.md", "TASKS.md", "notes/README.md"],
    ]
    assert revisions[1]["trailers"]["Conversation"].endswith(" c1")
    assert all(REVISION.fullmatch(revision["revision"]) for revision in revisions)
    assert [r["at"] for r in revisions] == sorted((r["at"] for r in revisions), reverse=True)
    assert [r["revision"] for r in one.done().json] == [r["revision"] for r in revisions[1:]]
    assert [r["paths"] for r in one.json] == [["MEMORY.md"]] * 2
    assert none.done().json == []
    assert limited.done().json == revisions[:1]
