"""What the command says of itself."""

from __future__ import annotations

import re

from tests.harness.cli.terminal import Terminal

GROUPS = [
    "agent",
    "workspace",
    "sandbox",
    "account",
    "user",
    "key",
    "conversation",
    "jobs",
    "admin",
]


def test_help_and_version_go_to_standard_output(harness: Terminal) -> None:
    version, full, short, sub = harness.all(("--version",), ("--help",), ("-h",), ("run", "--help"))
    assert re.fullmatch(r"harness \d+\.\d+\.\d+\n", version.done().out)
    assert full.done().out == short.done().out
    assert "--conversation" in sub.done().out
    assert not harness.home.exists()


def test_no_line_of_a_list_of_commands_is_cut_short(harness: Terminal) -> None:
    listed = [("--help",), *((group, "--help") for group in [*GROUPS, "bench"])]
    for ended in harness.all(*listed, COLUMNS="80"):
        lines = ended.done().out.split("Commands:")[1].splitlines()
        assert [line for line in lines if line.endswith("...")] == []
