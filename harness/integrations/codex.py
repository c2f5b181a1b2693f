"""The integration of Codex: each session begins with the prompt and the directory of its files, which Codex's
sandbox may then write.

The format is that of `config.toml`: `[[hooks.SessionStart]]` and `[[hooks.UserPromptSubmit]]`, where the
output of the commands becomes part of the context once a person has trusted them, and
`sandbox_workspace_write.writable_roots`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError

from harness.integrations.integration import HOOK_TIMEOUT_S, Use
from harness.runtime.settings import configured_directory
from workspaces.errors import Refused

_SANDBOX, _ROOTS = "sandbox_workspace_write", "writable_roots"
_HOOKS, _EVENTS = "hooks", ("SessionStart", "UserPromptSubmit")


class Codex:
    """The integration of Codex."""

    name = "codex"
    begin = "harness use codex --workspace W"
    empty = ""
    prompt_options = ("--where", "--hook")
    advice = "use/codex.md"

    def file(self, project: Path | None) -> Path:
        if project is not None:
            rule = "cannot be used: Codex has one configuration for all projects"
            raise Refused("--project", str(project), rule, remedy="leave out --project")
        return configured_directory("CODEX_HOME", "~/.codex") / "config.toml"

    def used(self, text: str, use: Use) -> str:
        document = _parsed(text)
        try:
            sandbox = document.setdefault(_SANDBOX, tomlkit.table())
            sandbox.setdefault(_ROOTS, tomlkit.array()).append(use.root)
            hooks = document.setdefault(_HOOKS, tomlkit.table(is_super_table=True))
            for event in _EVENTS:
                hooks.setdefault(event, tomlkit.aot()).append(_hook(use.command))
        except (TOMLKitError, AttributeError, TypeError) as error:
            rule = f"does not have the documented form ({error})"
            raise Refused("configuration", _HOOKS, rule, remedy="change it by hand") from error
        return tomlkit.dumps(document)

    def unused(self, text: str, use: Use, before: str) -> str:
        document, old = _parsed(text), _parsed(before)
        sandbox = document.get(_SANDBOX, {})
        roots = sandbox.get(_ROOTS, [])
        if use.root in roots:
            roots.remove(use.root)
        hooks = document.get(_HOOKS, {})
        for event in _EVENTS:
            entries = hooks.get(event, [])
            for entry in [entry for entry in entries if _runs(entry, use.command)]:
                entries.remove(entry)
        ours = [(sandbox, _ROOTS, _SANDBOX), *((hooks, event, _HOOKS) for event in _EVENTS)]
        for table, key, of in ours:
            if key in table and not table[key] and key not in old.get(of, {}):
                del table[key]
            if of in document and not table and of not in old:
                del document[of]
        return tomlkit.dumps(document)


def _hook(command: str) -> Any:
    hook = tomlkit.table()
    hook.append("type", "command")
    hook.append("command", command)
    hook.append("timeout", HOOK_TIMEOUT_S)
    entry = tomlkit.table()
    entry.append("hooks", tomlkit.aot())
    entry["hooks"].append(hook)
    return entry


def _parsed(text: str) -> Any:
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        rule = f"is not TOML ({error})"
        raise Refused("configuration", text[:20], rule, remedy="repair it by hand first") from error


def _runs(entry: object, command: str) -> bool:
    hooks: Any = cast("dict[str, Any]", entry).get("hooks") if isinstance(entry, dict) else None
    return [hook.get("command") for hook in hooks or ()] == [command]
