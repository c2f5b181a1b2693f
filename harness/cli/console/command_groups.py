"""The list of commands in `harness --help`, in groups with a heading each.

A command's module is imported when the command is looked up. So a command waits for no other one's imports,
and typer reads the arguments of that command only.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from harness.cli.console.plain_values import take_plain_values

COMMAND_GROUPS = {
    "Everyday": {
        "chat": "talk.chat",
        "run": "talk.run",
        "approve": "talk.approve",
        "status": "files.status",
    },
    "Files and history": {
        "workspace": "files.workspaces",
        "path": "files.files",
        "ls": "files.files",
        "cat": "files.files",
        "write": "files.files",
        "rm": "files.files",
        "mv": "files.files",
        "grep": "files.grep",
        "log": "files.history",
        "diff": "files.history",
        "show": "files.history",
        "blame": "files.history",
        "restore": "files.history",
        "revert": "files.history",
        "git": "files.history",
        "watch": "files.watch",
        "shell": "files.shell",
        "trash": "files.trash",
        "import": "files.import_export",
        "export": "files.import_export",
    },
    "Memory": {
        "memory": "memory.memory",
        "recall": "files.recall",
        "block": "memory.blocks",
        "prompt": "talk.prompt",
        "explain": "talk.explain",
        "compact": "talk.compact",
        "decisions": "memory.decisions",
        "extract": "memory.learn",
        "sleep": "memory.learn",
        "memorize": "memory.memorize",
        "why": "memory.proof",
        "check": "memory.proof",
        "resource": "memory.resource",
        "forget": "memory.forget",
        "conversations": "memory.conversations",
        "forbid": "memory.forbid",
        "use": "admin.use",
        "mcp": "admin.mcp",
    },
    "Agents and turns": {
        "agent": "admin.agents",
        "runs": "talk.runs",
        "chain": "talk.chain",
        "conversation": "talk.conversation",
        "sandbox": "admin.sandboxes",
        "jobs": "talk.jobs",
    },
    "Sharing": {
        "sync": "files.sync",
        "join": "admin.join",
        "account": "admin.accounts",
        "user": "admin.accounts",
        "key": "admin.accounts",
    },
    "Operating": {
        "up": "admin.up",
        "demo": "admin.demo",
        "doctor": "admin.doctor",
        "backup": "admin.backup",
        "usage": "talk.usage",
        "admin": "admin.admin",
        "bench": "admin.bench",
    },
}
"""The commands under each heading, in the order of the help, each with the module below `harness.cli` whose
`register` adds it. Every command stands under one heading."""

MODULES = {name: module for names in COMMAND_GROUPS.values() for name, module in names.items()}

_MARGINS = 4
"""Columns that the help uses for the indentation of a row and for the gap between its columns."""


class GroupedCommands(TyperGroup):
    """A command group whose help lists its commands under the headings of `COMMAND_GROUPS`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        take_plain_values(self, ctx)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer passes it
        return [*MODULES]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None. Import its module at the first call."""
        if cmd_name in MODULES and cmd_name not in self.commands:
            part = typer.Typer(cls=TyperGroup, callback=_nothing, rich_markup_mode=None)
            import_module(f"harness.cli.{MODULES[cmd_name]}").register(part)
            commands = typer.main.get_group(part).commands
            for command in commands.values():
                take_plain_values(command, ctx)
            self.commands.update(commands)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of a line. An unknown name is compared with the names of all commands."""
        if args and self.get_command(ctx, args[0]) is None:
            self._load_all(ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section of the help for each heading. All sections have columns of the same width."""
        self._load_all(ctx)
        width = max(map(len, self.commands))
        limit = formatter.width - width - _MARGINS
        for heading, names in COMMAND_GROUPS.items():
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(limit)) for name in names
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def _load_all(self, ctx: Any) -> None:
        for name in MODULES:
            self.get_command(ctx, name)


def _nothing() -> None:
    """Make typer build a group, also of a single command."""
