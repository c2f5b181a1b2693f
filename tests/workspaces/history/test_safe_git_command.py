from __future__ import annotations

from pathlib import Path

import pytest

from tests.workspaces.conftest import AGENT
from workspaces.clock import ManualClock
from workspaces.errors import Refused
from workspaces.history.history import History
from workspaces.history.safe_git_command import check_git_command
from workspaces.paths import WorkspacePath

MEMORY = WorkspacePath("MEMORY.md")
ODD = WorkspacePath("notes/ --x ü.md")


@pytest.fixture
def history(tmp_path: Path, clock: ManualClock) -> History:
    history = History.create(tmp_path / "h.git", clock)
    history.record({MEMORY: b"one\n"}, AGENT)
    history.record({MEMORY: b"two\n", ODD: b"odd\n"}, AGENT)
    return history


@pytest.mark.parametrize(
    "arguments",
    [
        ["log", "-p"],
        ["log", "-n", "5", "--oneline", "--", "MEMORY.md"],
        ["log", "--since=2020-01-01", "--format=%H %s", "--stat"],
        ["log", "-Stwo", "main~1..main"],
        ["show"],
        ["show", "main:MEMORY.md"],
        ["show", "HEAD^", "--word-diff"],
        ["diff", "main~1", "main", "--", str(ODD)],
        ["diff", "main~1..main", "--stat"],
        ["blame", "--", "MEMORY.md"],
        ["blame", "-L1,1", "main", "--", str(ODD)],
        ["shortlog", "-sn"],
        ["ls-tree", "-r", "main"],
        ["rev-list", "--count", "main"],
        ["cat-file", "-p", "main:MEMORY.md"],
    ],
)
def test_a_read_only_git_command_is_answered(history: History, arguments: list[str]) -> None:
    assert history.ask(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [""],
        ["push"],
        ["gc"],
        ["config", "x.y", "z"],
        ["update-ref", "refs/heads/main", "0" * 40],
        ["-c", "core.pager=x", "log"],
        ["--git-dir=/tmp", "log"],
        ["--exec-path=/tmp", "log"],
        ["-C", "/tmp", "log"],
        ["log", "-c"],
        ["log", "-p", "--output=/tmp/x"],
        ["log", "-p", "--outp=/tmp/x"],
        ["log", "-p", "--ext-diff"],
        ["log", "-p", "--textconv"],
        ["log", "--ext"],
        ["log", "-O/etc/passwd"],
        ["log", "--stdin"],
        ["log", "--show-signature"],
        ["show", "--upload-pack=x"],
        ["diff"],
        ["diff", "--", "MEMORY.md"],
        ["diff", "/etc/passwd", "/dev/null"],
        ["diff", "--no-index", "/etc/passwd", "/dev/null"],
        ["diff", "etc/passwd", "dev/null"],
        ["diff", "main", "--", "../../etc/passwd"],
        ["diff", "main", "--", ":(exclude)x"],
        ["diff", "main", "--", "/etc/passwd"],
        ["blame", "--contents", "/etc/passwd", "--", "MEMORY.md"],
        ["blame", "-S/etc/passwd", "--", "MEMORY.md"],
        ["blame", "--ignore-revs-file=/etc/passwd", "--", "MEMORY.md"],
        ["cat-file", "--textconv", "main:MEMORY.md"],
        ["cat-file", "--filters", "main:MEMORY.md"],
        ["cat-file", "--batch"],
        ["show", "main:../x"],
        ["show", "--end-of-options", "main"],
        ["show", "main@{1}"],
        ["show", ":/one"],
        ["show", "..", "--"],
        ["log", "-n", "-1x"],
        ["log", "main\n--output=x"],
        ["log", "--color=always"],
        ["log"] + ["main"] * 300,
    ],
)
def test_a_git_command_not_known_to_be_read_only_is_refused(arguments: list[str]) -> None:
    with pytest.raises(Refused):
        check_git_command(arguments)


def test_a_signature_format_starts_no_configured_program(history: History) -> None:
    """`%G?` verifies a signature: git would start the program that is configured for it."""
    assert b"%G" not in history.ask(["log", "--format=%G?"])
