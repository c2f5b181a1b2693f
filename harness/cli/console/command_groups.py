"""The list of commands in `harness --help`, in groups with a heading each."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

COMMAND_GROUPS = {
    "Everyday": ("chat", "run", "approve", "status"),
    "Files and history": (
        "workspace",
        "path",
        "ls",
        "cat",
        "write",
        "grep",
        "log",
        "diff",
        "show",
        "blame",
        "restore",
        "revert",
        "git",
        "watch",
        "shell",
        "import",
        "export",
    ),
    "Memory": ("recall", "prompt", "explain", "compact", "use"),
    "Agents and turns": ("agent", "conversation", "sandbox", "jobs"),
    "Sharing": ("sync", "join", "account", "user", "key"),
    "Operating": ("up", "doctor", "usage", "admin", "bench"),
}
"""The commands under each heading, in the order of the help. Every command stands under one heading."""

_MARGINS = 4
"""Columns that the help uses for the indentation of a row and for the gap between its columns."""


class GroupedCommands(TyperGroup):
    """A command group whose help lists its commands under the headings of `COMMAND_GROUPS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer passes it
        """Write a section of the help for each heading. All sections have columns of the same width."""
        width = max(map(len, self.commands))
        limit = formatter.width - width - _MARGINS
        for heading, names in COMMAND_GROUPS.items():
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(limit)) for name in names
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)
