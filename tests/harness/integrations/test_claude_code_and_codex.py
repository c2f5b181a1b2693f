"""Integrations: how the settings of Claude Code and Codex are edited, and how the edit is undone."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from harness.integrations.claude_code import ClaudeCode
from harness.integrations.codex import Codex
from harness.integrations.config_edit import Configurations
from harness.integrations.integration import Integration, Use
from workspaces.errors import Conflict, NotFound, Refused, Unavailable

USE = Use("/home/ann/.harness/workspaces/fs-1", "harness prompt ws_1")
OTHER = Use("/home/ann/.harness/workspaces/fs-2", "harness prompt ws_2")

SETTINGS = """\
{
  "model": "opus",
  "hooks": {
    "SessionStart": [
      { "matcher": "startup", "hooks": [{ "type": "command", "command": "date" }] }
    ],
    "Stop": []
  },
  "autoMemoryDirectory": "~/my-memory",
  "theme": "dark"
}
"""
CONFIG = """\
# mine
model = "gpt-x"   # the good one

[sandbox_workspace_write]
network_access = true
writable_roots = ["/srv/notes"]

[[hooks.SessionStart]]
matcher = "startup"

[[hooks.SessionStart.hooks]]
type = "command"
command = "date"

[tui]
theme = "dark"
"""

BOTH: list[tuple[Integration, str]] = [(ClaudeCode(), SETTINGS), (Codex(), CONFIG)]
EMPTY: list[tuple[Integration, str]] = [(ClaudeCode(), "{}\n"), (Codex(), "")]


@pytest.fixture
def configurations(tmp_path: Path) -> Configurations:
    return Configurations(tmp_path / "used")


def names(pair: tuple[Integration, str]) -> str:
    return pair[0].name


def test_claude_code_gets_the_memory_directory_and_the_prompt_hook() -> None:
    settings = json.loads(ClaudeCode().used(SETTINGS, USE))
    assert settings["autoMemoryDirectory"] == USE.root
    ours = {"hooks": [{"type": "command", "command": USE.command, "timeout": 15}]}
    assert settings["hooks"]["SessionStart"][1:] == [ours]
    before = json.loads(SETTINGS)
    assert settings["hooks"]["SessionStart"][:1] == before["hooks"]["SessionStart"]
    assert {**settings, "hooks": 0, "autoMemoryDirectory": 0} == {
        **before,
        "hooks": 0,
        "autoMemoryDirectory": 0,
    }
    assert list(settings) == list(before)


def test_codex_gets_the_writable_root_and_the_prompt_hook() -> None:
    text = Codex().used(CONFIG, USE)
    config, before = tomllib.loads(text), tomllib.loads(CONFIG)
    assert config["sandbox_workspace_write"]["writable_roots"] == ["/srv/notes", USE.root]
    ours = {"hooks": [{"type": "command", "command": USE.command, "timeout": 15}]}
    assert config["hooks"]["SessionStart"] == [*before["hooks"]["SessionStart"], ours]
    assert config["tui"] == before["tui"]
    assert 'model = "gpt-x"   # the good one' in text
    assert text.startswith("# mine\n")


@pytest.mark.parametrize("pair", [*BOTH, *EMPTY], ids=names)
def test_an_integration_can_be_removed_from_settings_changed_since(
    pair: tuple[Integration, str],
) -> None:
    client, before = pair
    used = client.used(before, USE)
    assert client.unused(used, USE, before).strip() == before.strip()
    both = client.used(used, OTHER)
    assert USE.root in client.unused(both, OTHER, used)
    assert USE.command not in client.unused(both, USE, before)
    assert OTHER.command in client.unused(both, USE, before)


@pytest.mark.parametrize("pair", BOTH, ids=names)
@pytest.mark.parametrize("is_there", [True, False])
def test_undo_restores_every_byte_of_the_settings(
    pair: tuple[Integration, str], is_there: bool, configurations: Configurations, tmp_path: Path
) -> None:
    client, text = pair
    file = tmp_path / "place" / "config"
    if is_there:
        file.parent.mkdir()
        file.write_text(text)
        file.chmod(0o640)
    for use in (USE, OTHER):  # the second takes the place of the first
        change = configurations.use(client, file, use)
        assert file.exists() == is_there or use is OTHER
        configurations.carry_out(client, change)
    assert OTHER.command in file.read_text()
    assert USE.command not in file.read_text()
    assert not configurations.use(client, file, OTHER).is_one
    configurations.carry_out(client, configurations.undo(client, file))
    if is_there:
        assert file.read_text() == text
        assert file.stat().st_mode & 0o777 == 0o640
    else:
        assert not file.parent.exists()
    with pytest.raises(NotFound, match="no change for"):
        configurations.undo(client, file)


@pytest.mark.parametrize("pair", BOTH, ids=names)
def test_undo_keeps_changes_made_since_the_integration(
    pair: tuple[Integration, str], configurations: Configurations, tmp_path: Path
) -> None:
    client, text = pair
    file = tmp_path / "config"
    file.write_text(text)
    configurations.carry_out(client, configurations.use(client, file, USE))
    file.write_text(file.read_text().replace('"dark"', '"light"'))
    configurations.carry_out(client, configurations.undo(client, file))
    assert file.read_text() == text.replace('"dark"', '"light"')


def test_undo_restores_the_previous_directory_after_other_changes(
    configurations: Configurations, tmp_path: Path
) -> None:
    file = tmp_path / "settings.json"
    file.write_text(SETTINGS)
    client = ClaudeCode()
    configurations.carry_out(client, configurations.use(client, file, USE))
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({"new": 1, **settings}))  # rewritten by the program, on one line
    configurations.carry_out(client, configurations.undo(client, file))
    assert json.loads(file.read_text()) == {"new": 1, **json.loads(SETTINGS)}


def test_a_foreign_hook_beside_the_integrations_hook_stays(tmp_path: Path) -> None:
    client = ClaudeCode()
    settings = json.loads(client.used("{}", USE))
    settings["hooks"]["SessionStart"][0]["hooks"].append({"type": "command", "command": "date"})
    text = json.dumps(settings)
    assert "date" in client.unused(text, USE, "{}")


def test_settings_saved_after_the_change_was_shown_are_not_overwritten(
    configurations: Configurations, tmp_path: Path
) -> None:
    file = tmp_path / "settings.json"
    change = configurations.use(ClaudeCode(), file, USE)
    file.write_text('{"saved": "meanwhile"}')
    with pytest.raises(Conflict):
        configurations.carry_out(ClaudeCode(), change)
    assert file.read_text() == '{"saved": "meanwhile"}'


def test_a_symlinked_settings_file_stays_a_symlink(
    configurations: Configurations, tmp_path: Path
) -> None:
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles/settings.json").write_text("{}")
    file = tmp_path / "settings.json"
    file.symlink_to("dotfiles/settings.json")
    configurations.carry_out(ClaudeCode(), configurations.use(ClaudeCode(), file, USE))
    assert file.is_symlink()
    assert USE.root in (tmp_path / "dotfiles/settings.json").read_text()


def test_settings_that_cannot_be_changed_safely_are_refused(
    configurations: Configurations, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    for client, text in (
        (ClaudeCode(), '{"hooks": {"SessionStart": "x"}}'),
        (ClaudeCode(), "{not json"),
        (Codex(), "hooks = 3\n"),
        (Codex(), '[hooks]\nSessionStart = "x"\n'),
        (Codex(), "not = [toml"),
    ):
        file.write_text(text)
        with pytest.raises(Refused):
            configurations.use(client, file, USE)
        assert file.read_text() == text
    file.write_bytes(b"\xff")
    with pytest.raises(Unavailable, match="UTF-8"):
        configurations.use(ClaudeCode(), file, USE)
    with pytest.raises(Refused, match="Codex"):
        Codex().file(tmp_path)
