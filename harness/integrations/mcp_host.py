"""The entry of our MCP server in the configuration of other agent programs.

Each host has a file, a place in it and a form of the entry; the rest of the file stays as it is, byte for
byte. An entry that is there under our name and was not made by us is refused, not replaced. No entry holds a
key: over HTTP it names the environment variable that does, because the file may lie in a repository.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_never

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from harness.integrations.integration import Integration, Use
from harness.integrations.json_edit import value_at, with_value, without
from harness.runtime.settings import configured_directory
from workspaces.errors import Refused

McpHostName = Literal["claude-code", "codex", "cursor", "claude-desktop", "vscode", "gemini"]
McpScope = Literal["user", "project"]

SERVER = "workspace-harness"
KEY_VARIABLE = "HARNESS_KEY"
"""The environment variable that holds the key, where the server is reached over HTTP."""

_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class McpEntry:
    """What a host must know: a command that it starts, or an address."""

    command: tuple[str, ...] = ()
    url: str | None = None


def mcp_host(name: McpHostName, scope: McpScope, directory: Path) -> McpHost:
    """Return a host with its file. `directory` is that of the project.

    Raises: Refused if the host has no such file.
    """
    match name:
        case "claude-code":
            user = configured_directory("CLAUDE_CONFIG_DIR", "~") / ".claude.json"
            file = directory / ".mcp.json" if scope == "project" else user
        case "codex":
            user = configured_directory("CODEX_HOME", "~/.codex") / "config.toml"
            file = directory / ".codex/config.toml" if scope == "project" else user
        case "cursor":
            file = (directory if scope == "project" else Path.home()) / ".cursor/mcp.json"
        case "gemini":
            file = (directory if scope == "project" else Path.home()) / ".gemini/settings.json"
        case "vscode":
            user = _settings_directory() / "Code/User/mcp.json"
            file = directory / ".vscode/mcp.json" if scope == "project" else user
        case "claude-desktop":
            if scope == "project":
                rule = "has one configuration for all projects"
                raise Refused(
                    "--scope", scope, f"Claude Desktop {rule}", remedy="leave out --scope"
                )
            file = _settings_directory() / "Claude/claude_desktop_config.json"
            if not file.parent.is_dir():
                remedy = "install Claude Desktop and start it once"
                raise Refused("client", name, f"has no directory {file.parent}", remedy=remedy)
        case _:
            assert_never(name)
    return McpHost(name, file)


@dataclass(frozen=True, slots=True)
class McpHost(Integration):
    """The configuration file of a host. An edit's `Use` holds the server's name and the entry as JSON."""

    host: McpHostName
    place: Path

    @property
    def name(self) -> str:
        return f"mcp-{self.host}"

    @property
    def empty(self) -> str:
        return "" if self.host == "codex" else "{}\n"

    @property
    def prompt_options(self) -> tuple[str, ...]:
        return ()

    @property
    def begin(self) -> str:
        return f"harness mcp install {self.host}"

    @property
    def advice(self) -> str:
        return "mcp/installed.md"

    def file(self, project: Path | None) -> Path:
        del project
        return self.place

    def entry(self, entry: McpEntry) -> Use:
        """Return the edit that makes this entry.

        Raises: Refused if the host cannot reach a server over HTTP.
        """
        return Use(SERVER, json.dumps(_form(self.host, entry)))

    def used(self, text: str, use: Use) -> str:
        entry = json.loads(use.command)
        if self.host == "codex":
            return _toml_used(text, use.root, entry)
        path = [_WRAPPERS.get(self.host, "mcpServers"), use.root]
        if value_at(text, path) is not None:
            raise _taken(use.root)
        return with_value(text, path, entry)

    def unused(self, text: str, use: Use, before: str) -> str:
        entry = json.loads(use.command)
        if self.host == "codex":
            return _toml_unused(text, use.root, entry, before)
        wrapper = _WRAPPERS.get(self.host, "mcpServers")
        if value_at(text, [wrapper, use.root]) == entry:
            text = without(text, [wrapper, use.root])
        if value_at(text, [wrapper]) == {} and value_at(before, [wrapper]) is None:
            text = without(text, [wrapper])
        return text


_WRAPPERS: Mapping[McpHostName, str] = {"vscode": "servers"}


def _form(host: McpHostName, entry: McpEntry) -> dict[str, Any]:
    """Return the entry as this host wants it."""
    if entry.url is not None:
        return _http_form(host, entry.url)
    command, *arguments = entry.command
    stdio: dict[str, Any] = {"command": command, "args": arguments}
    match host:
        case "claude-code" | "vscode":
            return {"type": "stdio", **stdio}
        case _:
            return stdio


def _http_form(host: McpHostName, url: str) -> dict[str, Any]:
    match host:
        case "claude-code":
            return _with_header({"type": "http", "url": url}, f"${{{KEY_VARIABLE}}}")
        case "vscode":
            return _with_header({"type": "http", "url": url}, f"${{env:{KEY_VARIABLE}}}")
        case "cursor":
            return _with_header({"url": url}, f"${{env:{KEY_VARIABLE}}}")
        case "gemini":
            return _with_header({"httpUrl": url}, f"${KEY_VARIABLE}")
        case "codex":
            return {"url": url, "bearer_token_env_var": KEY_VARIABLE}
        case "claude-desktop":
            rule = "cannot use a server over HTTP: it starts its servers itself"
            raise Refused("--http", None, f"Claude Desktop {rule}", remedy="leave out --http")
        case _:
            assert_never(host)


def _with_header(entry: dict[str, Any], variable: str) -> dict[str, Any]:
    return {**entry, "headers": {"Authorization": f"Bearer {variable}"}}


def _settings_directory() -> Path:
    """Return the directory in which programs of this system keep a person's settings."""
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support"
    if sys.platform == "win32":
        return configured_directory("APPDATA", "~/AppData/Roaming")
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()


def _toml_used(text: str, name: str, entry: dict[str, Any]) -> str:
    bom, document = _toml(text)
    try:
        servers = document.setdefault("mcp_servers", tomlkit.table(is_super_table=True))
        if name in servers:
            raise _taken(name)
        is_inline = isinstance(servers, InlineTable)  # it can hold no table with a heading
        table = tomlkit.inline_table() if is_inline else tomlkit.table()
        for key, value in entry.items():
            table.append(key, value)
        servers.append(name, table)
    except (TOMLKitError, AttributeError, TypeError, ValueError) as error:
        rule = f"does not have the documented form ({error})"
        raise Refused("configuration", "mcp_servers", rule, remedy="change it by hand") from error
    return bom + tomlkit.dumps(document)


def _toml_unused(text: str, name: str, entry: dict[str, Any], before: str) -> str:
    bom, document = _toml(text)
    _, old = _toml(before)
    servers = document.get("mcp_servers", {})
    if name in servers and servers[name].unwrap() == entry:
        del servers[name]
    if "mcp_servers" in document and not servers and "mcp_servers" not in old:
        del document["mcp_servers"]
    return bom + tomlkit.dumps(document)


def _toml(text: str) -> tuple[str, Any]:
    bom = _BOM if text.startswith(_BOM) else ""
    try:
        return bom, tomlkit.parse(text.removeprefix(_BOM))
    except TOMLKitError as error:
        rule = f"is not TOML ({error})"
        raise Refused("configuration", text[:20], rule, remedy="repair it by hand first") from error


def _taken(name: str) -> Refused:
    rule = "is there already, and this command did not make it"
    return Refused("configuration", name, rule, remedy="remove the entry by hand, then run again")
