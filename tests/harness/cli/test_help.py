"""`harness --help` and `--version`."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from harness.cli.app import app
from harness.cli.console.command_groups import COMMAND_GROUPS, MODULES
from tests.harness.cli.terminal import Terminal

GROUPS = [
    "agent",
    "workspace",
    "sandbox",
    "account",
    "user",
    "key",
    "conversation",
    "conversations",
    "jobs",
    "admin",
    "backup",
]


def test_help_and_version_go_to_standard_output(harness: Terminal) -> None:
    version, full, short, sub = harness.all(("--version",), ("--help",), ("-h",), ("run", "--help"))
    assert re.fullmatch(r"harness \d+\.\d+\.\d+\n", version.done().out)
    assert full.done().out == short.done().out
    assert "--conversation" in sub.done().out
    assert not harness.home.exists()


def test_command_summaries_in_help_are_not_truncated(harness: Terminal) -> None:
    listed = [("--help",), *((group, "--help") for group in [*GROUPS, "bench"])]
    for ended in harness.all(*listed, COLUMNS="80"):
        lines = ended.done().out.split("Show this message and exit.")[1].splitlines()
        assert [line for line in lines if line.endswith("...")] == []


def test_help_lists_each_command_once_under_a_heading(harness: Terminal) -> None:
    listed = harness("--help").done().out.split("Show this message and exit.")[1]
    headings = re.findall(r"^(\w[\w ]*):$", listed, re.MULTILINE)
    assert headings == list(COMMAND_GROUPS)
    commands = re.findall(r"^  (\w+)  +\S", listed, re.MULTILINE)
    group: Any = get_command(app)
    assert sorted(commands) == sorted(group.list_commands(None))
    for heading, names in COMMAND_GROUPS.items():
        section = listed.split(f"{heading}:\n")[1].split("\n\n")[0]
        assert tuple(re.findall(r"^  (\w+)  +\S", section, re.MULTILINE)) == tuple(names)


def test_each_module_registers_the_commands_that_are_listed_with_it() -> None:
    for module in set(MODULES.values()):
        part = typer.Typer(cls=TyperGroup, callback=lambda: None)
        import_module(f"harness.cli.{module}").register(part)
        group: Any = get_command(part)
        assert sorted(group.commands) == sorted(n for n, own in MODULES.items() if own == module)


def test_an_unknown_command_is_refused_with_the_nearest_one(harness: Terminal) -> None:
    ended = harness("statu")
    assert ended.code == 2
    assert "No such command 'statu'. Did you mean 'status'?" in ended.stderr


def test_help_keeps_the_line_breaks_of_examples(harness: Terminal) -> None:
    lines = harness("approve", "--help").done().out.splitlines()
    assert "  harness approve c1" in lines
    assert '  harness approve c1 toolu_01… --deny --reason "not on a Friday"' in lines
