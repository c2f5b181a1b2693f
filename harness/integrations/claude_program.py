"""Claude Code's own command for its list of MCP servers, where the program is installed.

`~/.claude.json` is also the file of Claude Code's state, which a running Claude Code rewrites. So its own
command makes the change, and this home keeps a note of what the file held before and after.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from harness.integrations.config_edit import Configurations, FileEdit
from harness.integrations.integration import Integration, Use
from harness.integrations.json_edit import value_at
from harness.integrations.mcp_host import KEY_VARIABLE, SERVER, McpEntry, McpScope
from workspaces.errors import Unavailable

PROGRAM_S_MAX = 60.0
"""Seconds for one call of the program."""

TOLD_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class ClaudeProgram:
    """The command `claude mcp`, for one scope."""

    program: str
    scope: McpScope
    directory: Path
    """The directory of the project."""

    def add(self, name: str, entry: McpEntry) -> None:
        """Add a server.

        Raises: Unavailable if the program fails.
        """
        words = ["add", "--scope", self.scope]
        if (
            entry.url is not None
        ):  # the header is last: the program takes all that follows it as headers
            header = f"Authorization: Bearer ${{{KEY_VARIABLE}}}"
            self._run(*words, "--transport", "http", name, *(entry.url, "--header", header))
        else:
            self._run(*words, name, "--", *entry.command)

    def remove(self, name: str) -> None:
        """Remove a server.

        Raises: Unavailable if the program fails.
        """
        self._run("remove", "--scope", self.scope, name)

    def _run(self, *words: str) -> None:
        command = [self.program, "mcp", *words]
        try:
            ended = subprocess.run(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PROGRAM_S_MAX,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"claude mcp {words[0]}", str(error)) from error
        if ended.returncode:
            told = " ".join((ended.stderr or ended.stdout).split())[:TOLD_CHARACTERS_MAX]
            reason = f"it ended with code {ended.returncode}: {told}"
            remedy = "repair Claude Code, or take `claude` off the PATH: its file is then edited"
            raise Unavailable(f"claude mcp {words[0]}", reason, remedy=remedy)


class ClaudeConfigurations(Configurations):
    """The edits that this home made, where Claude Code itself makes those of its own file."""

    def __init__(self, notes: Path, program: ClaudeProgram, entry: McpEntry | None) -> None:
        """`entry` is the server to add; None for an undo."""
        super().__init__(notes)
        self._program = program
        self._entry = entry

    def carry_out(self, client: Integration, change: FileEdit) -> None:
        """Make a planned edit.

        Raises: Conflict when the file changed since the edit was planned; Unavailable.
        """
        noted = self.note(client, change.file)
        if change.noted is None and noted is not None and change.before == noted.after:
            super().carry_out(
                client, change
            )  # nothing has touched the file since: all of it as before
            return
        self.check_unchanged(change)
        if _entry_in(change.before) is not None:
            self._program.remove(SERVER)
        if change.noted is None or self._entry is None:
            self.keep_note(client, change.file, None)
            return
        self._program.add(SERVER, self._entry)
        after = self.text(change.file) or ""
        entry = _entry_in(after)
        if entry is None:
            raise Unavailable("claude mcp add", f"no entry of it is in {change.file}")
        use = Use(SERVER, json.dumps(entry))  # as the program has written it
        self.keep_note(client, change.file, replace(change.noted, use=use, after=after))


def claude_program(scope: McpScope, directory: Path) -> ClaudeProgram | None:
    """Return Claude Code's command, or None if it is not on the path."""
    program = shutil.which("claude")
    return None if program is None else ClaudeProgram(program, scope, directory)


def _entry_in(text: str | None) -> object:
    return None if text is None else value_at(text, ["mcpServers", SERVER])
