"""The entry of our MCP server in the files of six hosts: added, found by a reader, taken back."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.integrations.config_edit import Configurations
from harness.integrations.mcp_host import (
    KEY_VARIABLE,
    SERVER,
    McpEntry,
    McpHost,
    McpHostName,
    McpScope,
    mcp_host,
)
from workspaces.errors import Refused

HOSTS: tuple[McpHostName, ...] = get_args(McpHostName)
STDIO = McpEntry(command=("/opt/harness", "--home", "/home/ann/.harness", "mcp"))
HTTP = McpEntry(url="http://127.0.0.1:8642/mcp")

WRAPPERS = {"vscode": "servers", "codex": "mcp_servers"}

JSONS = {
    "nothing": None,
    "an empty object": "{}\n",
    "other servers": """{"mcpServers": {"git": {"command": "git-mcp", "args": []}}, "theme": "dark"}""",
    "comments": """{
  // mine
  "theme": "dark", /* keep */
  "mcpServers": {
    "git": {"command": "git-mcp"} // the good one
  }
}
""",
    "tabs": '{\n\t"b": 1,\n\t"mcpServers": {\n\t\t"git": {}\n\t},\n\t"a": 2\n}',
    "odd indents": '{\n     "z": [1,\n 2],\n  "mcpServers":   {   }\n}\n\n',
    "CRLF": '{\r\n  "theme": "dark",\r\n  "mcpServers": {\r\n    "git": {}\r\n  }\r\n}\r\n',
    "BOM": '\ufeff{\n  "mcpServers": {}\n}\n',
}
TOMLS = {
    "nothing": None,
    "empty": "",
    "other servers": '[mcp_servers.git]\ncommand = "git-mcp"\nargs = []\n\n[tui]\ntheme = "dark"\n',
    "comments": '# mine\nmodel = "gpt-x"   # the good one\n\n[mcp_servers]\n# none yet\n',
    "tabs": '[tui]\n\ttheme = "dark"\n\n[mcp_servers.git]\n\tcommand = "g"\n',
    "inline": 'mcp_servers = {git = {command = "g"}}\n',
    "CRLF": 'model = "x"\r\n\r\n[mcp_servers.git]\r\ncommand = "g"\r\n',
    "BOM": '\ufeffmodel = "x"\n',
}
CASES: list[tuple[McpHostName, str]] = [
    (host, name) for host in HOSTS for name in (TOMLS if host == "codex" else JSONS)
]


def text_for(host: McpHostName, name: str) -> str | None:
    if host == "codex":
        return TOMLS[name]
    text = JSONS[name]
    return None if text is None else text.replace("mcpServers", WRAPPERS.get(host, "mcpServers"))


@pytest.fixture
def configurations(tmp_path: Path) -> Configurations:
    return Configurations(tmp_path / "used")


def hosted(host: McpHostName, tmp_path: Path, text: str | None) -> McpHost:
    file = tmp_path / "config" / "file"
    file.parent.mkdir(exist_ok=True)
    if text is not None:
        file.write_bytes(text.encode())
    return McpHost(host, file)


def install(configurations: Configurations, host: McpHost, entry: McpEntry) -> None:
    configurations.carry_out(host, configurations.use(host, host.place, host.entry(entry)))


def undo(configurations: Configurations, host: McpHost) -> None:
    configurations.carry_out(host, configurations.undo(host, host.place))


def entries(host: McpHost) -> dict[str, Any]:
    """The servers of the file, as a plain reader of its format sees them (without comments)."""
    text = host.place.read_bytes().decode("utf-8-sig")
    if host.host == "codex":
        return tomllib.loads(text.replace("\r\n", "\n"))["mcp_servers"]
    lines = [line.partition("//")[0] if "http" not in line else line for line in text.split("\n")]
    plain = "\n".join(lines).replace("/* keep */", "")
    return json.loads(plain)[WRAPPERS.get(host.host, "mcpServers")]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_installing_and_undoing_gives_the_same_bytes(
    name: McpHostName, case: str, tmp_path: Path, configurations: Configurations
) -> None:
    before = text_for(name, case)
    host = hosted(name, tmp_path, before)
    install(configurations, host, STDIO)
    found = entries(host)
    assert found[SERVER]["command"] == "/opt/harness"
    assert found[SERVER]["args"] == ["--home", "/home/ann/.harness", "mcp"]
    assert ("git" in found) == ("git" in (before or ""))
    undo(configurations, host)
    if before is None:
        assert not host.place.exists()
    else:
        assert host.place.read_bytes() == before.encode()


@pytest.mark.parametrize(("name", "case"), [one for one in CASES if one[1] != "nothing"])
def test_an_edit_in_between_survives_the_undo(
    name: McpHostName, case: str, tmp_path: Path, configurations: Configurations
) -> None:
    before = text_for(name, case)
    assert before is not None
    host = hosted(name, tmp_path, before)
    install(configurations, host, STDIO)
    text = host.place.read_bytes().decode()
    added = "# by hand\n" if name == "codex" else "\n// by hand\n"
    bom = "\ufeff" if text.startswith("\ufeff") else ""
    edited = f"{bom}{added}{text.removeprefix(bom)}" if name == "codex" else f"{text}{added}"
    host.place.write_bytes(edited.encode())
    undo(configurations, host)
    after = host.place.read_bytes().decode()
    assert "by hand" in after
    assert SERVER not in after
    assert ("git" in after) == ("git" in before)
    # the blanks beside a brace where we wrote are not known any more
    whole = after.replace(added, "").strip().replace("} }", "}}")
    assert whole == before.strip().replace("{   }", "{}")


@pytest.mark.parametrize("name", HOSTS)
def test_a_servers_entry_that_a_person_made_is_refused_and_stays(
    name: McpHostName, tmp_path: Path, configurations: Configurations
) -> None:
    mine = (
        f'[mcp_servers.{SERVER}]\ncommand = "mine"\n'
        if name == "codex"
        else json.dumps({WRAPPERS.get(name, "mcpServers"): {SERVER: {"command": "mine"}}})
    )
    host = hosted(name, tmp_path, mine)
    with pytest.raises(Refused, match="is there already"):
        install(configurations, host, STDIO)
    assert host.place.read_text() == mine


@pytest.mark.parametrize("name", HOSTS)
def test_installing_again_replaces_our_own_entry(
    name: McpHostName, tmp_path: Path, configurations: Configurations
) -> None:
    before = text_for(name, "comments")
    host = hosted(name, tmp_path, before)
    install(configurations, host, STDIO)
    install(configurations, host, McpEntry(command=("/other/harness", "mcp")))
    assert entries(host)[SERVER]["command"] == "/other/harness"
    undo(configurations, host)
    assert host.place.read_text() == before


@pytest.mark.parametrize("name", [host for host in HOSTS if host != "claude-desktop"])
def test_an_entry_for_http_names_the_variable_of_the_key_and_never_a_key(
    name: McpHostName, tmp_path: Path, configurations: Configurations
) -> None:
    host = hosted(name, tmp_path, None)
    install(configurations, host, HTTP)
    text = host.place.read_text()
    assert HTTP.url is not None
    assert HTTP.url in text
    assert KEY_VARIABLE in text
    assert "wh_" not in text


def test_claude_desktop_reaches_no_server_over_http(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="HTTP"):
        hosted("claude-desktop", tmp_path, None).entry(HTTP)


@pytest.mark.parametrize("name", HOSTS)
def test_a_link_stays_a_link_and_its_target_is_written(
    name: McpHostName, tmp_path: Path, configurations: Configurations
) -> None:
    before = text_for(name, "other servers")
    host = hosted(name, tmp_path, before)
    target = tmp_path / "dotfiles"
    host.place.rename(target)
    host.place.symlink_to(target)
    install(configurations, host, STDIO)
    assert host.place.is_symlink()
    assert SERVER in target.read_text()
    undo(configurations, host)
    assert target.read_text() == before


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize(
    "broken", ["{", "[1", "]]", '{"mcpServers": 7, "servers": 7}', "mcp_servers = 7"]
)
def test_a_broken_configuration_is_refused_and_stays(
    name: McpHostName, broken: str, tmp_path: Path, configurations: Configurations
) -> None:
    host = hosted(name, tmp_path, broken)
    try:
        install(configurations, host, STDIO)
    except Refused:
        assert host.place.read_text() == broken
    else:
        assert entries(host)[SERVER]  # a line that means nothing to this format


@pytest.mark.parametrize("scope", get_args(McpScope))
@pytest.mark.parametrize("name", HOSTS)
def test_each_host_has_a_file_for_a_person_and_one_for_a_project(
    name: McpHostName, scope: McpScope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "ann"))
    project = tmp_path / "shop"
    if name == "claude-desktop":
        with pytest.raises(Refused):
            mcp_host(name, scope, project)  # not installed, or no file for a project
        return
    expected = project if scope == "project" else tmp_path / "ann"
    assert mcp_host(name, scope, project).place.is_relative_to(expected)
