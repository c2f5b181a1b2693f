"""The git program, whose output is read while it prints."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from workspaces.errors import Refused, Unavailable
from workspaces.history import git
from workspaces.history.git import reading_git, run_git


def a_program(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """In the place of git."""

    def command(arguments: Sequence[str], *, is_limited: bool) -> list[str]:
        return ["sh", "-c", script]

    monkeypatch.setattr(git, "_command", command)


def test_what_git_is_told_comes_back_as_with_a_run_that_is_waited_for() -> None:
    asked = ("hash-object", "--stdin-paths")
    told = f"{__file__}\n".encode() * 1000
    with reading_git(*asked, told=told) as out:
        read = out.read()
    assert read == run_git(*asked, told=told)
    assert read.count(b"\n") == 1000


def test_what_it_prints_can_be_read_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    a_program(monkeypatch, "echo first; read line; echo $line; exec sleep 60")
    begun = time.monotonic()
    with (
        pytest.raises(Refused),
        reading_git("cat-file", told=b"second\n") as out,
    ):
        assert out.readline() == b"first\n"
        assert out.readline() == b"second\n"
        raise Refused("bundle", "x", "is bad")
    assert time.monotonic() - begun < 30, "nobody waits for what nobody reads"


def test_a_failure_is_told_after_what_was_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    a_program(monkeypatch, "echo half; echo fatal: it rains >&2; exit 128")
    with (
        pytest.raises(Unavailable, match="git cat-file: fatal: it rains"),
        reading_git("--git-dir=x", "cat-file", told=b"") as out,
    ):
        assert out.read() == b"half\n"


def test_one_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "GIT_SECONDS_MAX", 0.1)
    a_program(monkeypatch, "exec sleep 60")
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="git cat-file"), reading_git("cat-file", told=b"") as out:
        assert out.read() == b""
    assert time.monotonic() - begun < 30


def test_a_machine_without_git_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with (
        pytest.raises(Unavailable, match="not installed"),
        reading_git("cat-file", told=b"", is_limited=True) as out,
    ):
        out.read()
