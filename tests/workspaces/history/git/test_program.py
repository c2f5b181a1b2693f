"""Running the git program: sessions, failures, timeouts, and the environment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from workspaces.errors import Refused, Unavailable
from workspaces.history.git import program
from workspaces.history.git.program import open_git_session, run_git


def a_program(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """In the place of git."""

    def command(arguments: Sequence[str], *, is_limited: bool) -> list[str]:
        return ["sh", "-c", script]

    monkeypatch.setattr(program, "_command", command)


def test_a_git_session_returns_the_same_output_as_a_plain_run() -> None:
    asked = ("hash-object", "--stdin-paths")
    stdin = f"{__file__}\n".encode() * 1000
    with open_git_session(*asked) as git:
        git.stdin.write(stdin)
        git.stdin.close()
        read = git.stdout.read()
    assert read == run_git(*asked, stdin=stdin)
    assert read.count(b"\n") == 1000


def test_the_output_of_a_git_session_can_be_read_before_git_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_program(monkeypatch, "echo first; read line; echo $line; exec sleep 60")
    begun = time.monotonic()
    with (
        pytest.raises(Refused),
        open_git_session("cat-file") as git,
    ):
        assert git.stdout.readline() == b"first\n"
        git.stdin.write(b"second\n")
        git.stdin.flush()
        assert git.stdout.readline() == b"second\n"
        raise Refused("bundle", "x", "is bad")
    assert time.monotonic() - begun < 30, "nobody waits for what nobody reads"


def test_a_git_failure_is_raised_after_its_output_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    a_program(monkeypatch, "echo half; echo fatal: it rains >&2; exit 128")
    with (
        pytest.raises(Unavailable, match="git cat-file: fatal: it rains"),
        open_git_session("--git-dir=x", "cat-file") as git,
    ):
        assert git.stdout.read() == b"half\n"


def test_a_hanging_git_session_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "GIT_SECONDS_MAX", 0.1)
    a_program(monkeypatch, "exec sleep 60")
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="git cat-file"), open_git_session("cat-file") as git:
        assert git.stdout.read() == b""
    assert time.monotonic() - begun < 30


def test_a_hanging_git_run_is_ended_with_its_child_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(program, "GIT_SECONDS_MAX", 0.5)
    started = tmp_path / "started"
    os.mkfifo(started)
    a_program(monkeypatch, f"sleep 60 >{started} & wait")
    held = os.open(started, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(Unavailable, match="git cat-file: took longer"):
            run_git("cat-file")
        os.set_blocking(held, True)
        begun = time.monotonic()
        assert os.read(held, 1) == b"", "nobody writes any more"
        assert time.monotonic() - begun < 30
    finally:
        os.close(held)


@pytest.mark.parametrize("is_limited", [False, True])
def test_git_inherits_no_environment_variable_except_the_search_path(
    monkeypatch: pytest.MonkeyPatch, is_limited: bool
) -> None:
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    monkeypatch.setenv("SECRET", "s3cr3t")
    asked = ("-c", "alias.said=!env", "said")
    names = {
        line.partition(b"=")[0] for line in run_git(*asked, is_limited=is_limited).split(b"\n")
    }
    assert {b"PATH", b"GIT_CONFIG_NOSYSTEM", b"HOME", b"TZ"} <= names
    assert not names & {b"GIT_DIR", b"SECRET", b"PYTHONUNBUFFERED"}


def test_an_argument_too_long_for_the_system_is_not_reported_as_a_missing_git() -> None:
    with pytest.raises(Unavailable, match="too long"):
        run_git("cat-file", "x" * 4_000_000)


@pytest.mark.parametrize(
    "run",
    [
        "import workspaces.history.history as h; print(h.run_git('--version').decode())",
        "from harness.cli.app import main; main()",
    ],
)
def test_gitpython_is_not_loaded_before_a_pack_is_read(run: str, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-c", run, "--help"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "typing" in loaded
    assert not {name for name in loaded if name.partition(".")[0] in {"git", "gitdb"}}


def test_a_missing_git_is_reported_as_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with (
        pytest.raises(Unavailable, match="not installed"),
        open_git_session("cat-file", is_limited=True) as git,
    ):
        git.stdout.read()


def test_writing_to_a_failed_git_session_raises_the_error_of_git(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_program(monkeypatch, "exec <&-; echo fatal: it rains >&2; exit 128")
    with (
        pytest.raises(Unavailable, match="git cat-file: fatal: it rains"),
        open_git_session("cat-file") as git,
    ):
        git.stdin.write(bytes(4 * program.PIPE_BYTES))


def test_a_git_session_that_ends_before_reading_all_input_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_program(monkeypatch, "exec <&-; exit 0")
    with pytest.raises(Unavailable, match="git cat-file"), open_git_session("cat-file") as git:
        git.stdin.write(bytes(4 * program.PIPE_BYTES))


def test_pipes_that_cannot_be_enlarged_are_used_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unprivileged user may have few wide ones."""
    monkeypatch.setattr(program.fcntl, "F_SETPIPE_SZ", -1, raising=False)
    with open_git_session("hash-object", "--stdin") as git:
        git.stdin.close()
        assert git.stdout.read() == b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n"
