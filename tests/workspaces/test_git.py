"""The git program, which is told and read while it prints."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from workspaces.errors import Refused, Unavailable
from workspaces.history import git
from workspaces.history.git import run_git, talking_git


def a_program(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """In the place of git."""

    def command(arguments: Sequence[str], *, is_limited: bool) -> list[str]:
        return ["sh", "-c", script]

    monkeypatch.setattr(git, "_command", command)


def test_what_git_is_told_comes_back_as_with_a_run_that_is_waited_for() -> None:
    asked = ("hash-object", "--stdin-paths")
    told = f"{__file__}\n".encode() * 1000
    with talking_git(*asked) as talk:
        talk.told.write(told)
        talk.told.close()
        read = talk.out.read()
    assert read == run_git(*asked, told=told)
    assert read.count(b"\n") == 1000


def test_what_it_prints_can_be_read_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    a_program(monkeypatch, "echo first; read line; echo $line; exec sleep 60")
    begun = time.monotonic()
    with (
        pytest.raises(Refused),
        talking_git("cat-file") as talk,
    ):
        assert talk.out.readline() == b"first\n"
        talk.told.write(b"second\n")
        talk.told.flush()
        assert talk.out.readline() == b"second\n"
        raise Refused("bundle", "x", "is bad")
    assert time.monotonic() - begun < 30, "nobody waits for what nobody reads"


def test_a_failure_is_told_after_what_was_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    a_program(monkeypatch, "echo half; echo fatal: it rains >&2; exit 128")
    with (
        pytest.raises(Unavailable, match="git cat-file: fatal: it rains"),
        talking_git("--git-dir=x", "cat-file") as talk,
    ):
        assert talk.out.read() == b"half\n"


def test_one_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "GIT_SECONDS_MAX", 0.1)
    a_program(monkeypatch, "exec sleep 60")
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="git cat-file"), talking_git("cat-file") as talk:
        assert talk.out.read() == b""
    assert time.monotonic() - begun < 30


def test_a_machine_without_git_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with (
        pytest.raises(Unavailable, match="not installed"),
        talking_git("cat-file", is_limited=True) as talk,
    ):
        talk.out.read()


def test_who_tells_a_dead_one_hears_what_it_died_of(monkeypatch: pytest.MonkeyPatch) -> None:
    a_program(monkeypatch, "exec <&-; echo fatal: it rains >&2; exit 128")
    with (
        pytest.raises(Unavailable, match="git cat-file: fatal: it rains"),
        talking_git("cat-file") as talk,
    ):
        talk.told.write(bytes(4 * git.PIPE_BYTES))


def test_one_that_ends_well_and_has_not_heard_all_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_program(monkeypatch, "exec <&-; exit 0")
    with pytest.raises(Unavailable, match="git cat-file"), talking_git("cat-file") as talk:
        talk.told.write(bytes(4 * git.PIPE_BYTES))


def test_where_pipes_cannot_be_widened_they_are_used_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unprivileged user may have few wide ones."""
    monkeypatch.setattr(git.fcntl, "F_SETPIPE_SZ", -1, raising=False)
    with talking_git("hash-object", "--stdin") as talk:
        talk.told.close()
        assert talk.out.read() == b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n"
