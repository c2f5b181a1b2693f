"""`harness mcp install` at a terminal."""

from __future__ import annotations

import json
from pathlib import Path

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
