"""`harness mcp install` at a terminal."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.harness.cli.terminal import Terminal


def test_an_installation_is_shown_applied_and_undone(tmp_path: Path) -> None:
    file = tmp_path / "ann" / ".cursor" / "mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"mcpServers": {}}\n')
    terminal = Terminal(tmp_path / "home", {"HOME": str(tmp_path / "ann")})
    refused = terminal("mcp", "install", "cursor").refused("Nothing was changed")
    assert "workspace-harness" in refused.out
    assert file.read_text() == '{"mcpServers": {}}\n'
    shown = terminal("mcp", "install", "cursor", "--workspace", "notes", "--yes", "--json").done()
    assert shown.json["applied"]
    entry = json.loads(file.read_text())["mcpServers"]["workspace-harness"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-4:-2] == [str(tmp_path / "home"), "mcp"]
    assert entry["args"][-1].startswith("ws_")
    terminal("mcp", "install", "cursor", "--undo", "--yes").done()
    assert file.read_text() == '{"mcpServers": {}}\n'
    terminal("mcp", "install", "cursor", "--undo", "--yes").refused("harness mcp install cursor")


def test_impossible_installations_are_refused_with_a_remedy(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "home", {"HOME": str(tmp_path)})
    terminal("mcp", "install", "claude-desktop", "--yes").refused("install Claude Desktop")
    terminal("mcp", "install", "cursor", "--http", "-w", "notes", "--yes").refused("--workspace")
    assert terminal("mcp", "install", "emacs").code == 2


CLAUDE = '''\
#!{python}
"""Stands in for Claude Code: it notes its arguments and changes the file as the real program does."""
import json, os, pathlib, sys

place = pathlib.Path(os.environ["HOME"])
with (place / "calls").open("a") as calls:
    print(json.dumps([os.getcwd(), *sys.argv[1:]]), file=calls)
if (place / "broken").exists():
    sys.exit("no such scope")
words = sys.argv[2:]
scope = words[words.index("--scope") + 1]
file = place / ".claude.json" if scope == "user" else pathlib.Path.cwd() / ".mcp.json"
data = json.loads(file.read_text()) if file.exists() else {{}}
servers = data.setdefault("mcpServers", {{}})
if words[0] == "remove":
    del servers[words[-1]]
elif "--" in words:
    at = words.index("--")
    command, *args = words[at + 1 :]
    servers[words[at - 1]] = {{"type": "stdio", "command": command, "args": args, "env": {{}}}}
else:
    name, url, _, header = words[words.index("http") + 1 :]
    key, _, value = header.partition(": ")
    servers[name] = {{"type": "http", "url": url, "headers": {{key: value}}}}
file.write_text(json.dumps(data, indent=2))
'''


class TestClaudeCode:
    """`claude` is on the path: it makes the change itself."""

    BEFORE = '{"numStartups": 3,\n "mcpServers": {"git": {"command": "git-mcp"}}}\n'

    @pytest.fixture
    def terminal(self, tmp_path: Path) -> Terminal:
        program = tmp_path / "bin" / "claude"
        program.parent.mkdir()
        program.write_text(CLAUDE.format(python=sys.executable))
        program.chmod(0o755)
        self.place = tmp_path / "ann"
        self.place.mkdir()
        self.file = self.place / ".claude.json"
        self.file.write_text(self.BEFORE)
        path = f"{program.parent}:{os.environ['PATH']}"
        return Terminal(tmp_path / "home", {"HOME": str(self.place), "PATH": path})

    def calls(self) -> list[list[str]]:
        noted = self.place / "calls"
        lines = noted.read_text().splitlines() if noted.exists() else []
        return [json.loads(line)[1:] for line in lines]

    def test_its_own_command_adds_the_server_and_undo_gives_the_same_bytes(
        self, terminal: Terminal, tmp_path: Path
    ) -> None:
        terminal("mcp", "install", "claude-code").refused("Nothing was changed")
        assert self.calls() == []
        terminal("mcp", "install", "claude-code", "--yes").done()
        (call,) = self.calls()
        at = call.index("--")
        assert call[:at] == ["mcp", "add", "--scope", "user", "workspace-harness"]
        assert Path(call[at + 1]).is_absolute()
        assert call[-3:] == ["--home", str(tmp_path / "home"), "mcp"]
        servers = json.loads(self.file.read_text())["mcpServers"]
        assert servers["workspace-harness"]["env"] == {}
        terminal("mcp", "install", "claude-code", "--undo", "--yes").done()
        assert self.file.read_text() == self.BEFORE
        assert len(self.calls()) == 1

    def test_what_changed_since_stays_and_its_own_command_removes_the_server(
        self, terminal: Terminal
    ) -> None:
        terminal("mcp", "install", "claude-code", "--yes").done()
        data = json.loads(self.file.read_text())
        self.file.write_text(json.dumps({**data, "numStartups": 4}))
        terminal("mcp", "install", "claude-code", "--undo", "--yes").done()
        assert self.calls()[-1] == ["mcp", "remove", "--scope", "user", "workspace-harness"]
        after = json.loads(self.file.read_text())
        assert (after["numStartups"], list(after["mcpServers"])) == (4, ["git"])
        terminal("mcp", "install", "claude-code", "--undo", "--yes").refused("not_found")

    def test_over_http_it_is_given_the_name_of_the_key_alone(
        self, terminal: Terminal, tmp_path: Path
    ) -> None:
        terminal("mcp", "install", "claude-code", "--yes").done()
        terminal("mcp", "install", "claude-code", "--http", "--yes").done()
        _, removed, added = self.calls()
        assert removed[:2] == ["mcp", "remove"]
        assert added == [
            *("mcp", "add", "--scope", "user", "--transport", "http", "workspace-harness"),
            *("http://127.0.0.1:8642/mcp", "--header", "Authorization: Bearer ${HARNESS_KEY}"),
        ]
        entry = json.loads(self.file.read_text())["mcpServers"]["workspace-harness"]
        assert entry["headers"] == {"Authorization": "Bearer ${HARNESS_KEY}"}

    def test_a_failure_of_the_program_is_told_and_changes_nothing(self, terminal: Terminal) -> None:
        (self.place / "broken").touch()
        terminal("mcp", "install", "claude-code", "--yes").refused("no such scope", "PATH")
        assert self.file.read_text() == self.BEFORE
        terminal("mcp", "install", "claude-code", "--undo", "--yes").refused("not_found")
