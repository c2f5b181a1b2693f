"""The integration of Claude Code: its automatic memory is the workspace, and each session begins with the
prompt.

The format is that of `settings.json`: `autoMemoryDirectory` (ignored in a project's shared `settings.json`,
so the local one is used) and `hooks`, where the output of the commands of `SessionStart` and
`UserPromptSubmit` becomes part of the context.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from harness.integrations.integration import HOOK_TIMEOUT_S, Use
from harness.integrations.json_edit import value_at, with_item, with_value, without, without_items
from harness.runtime.settings import configured_directory

_MEMORY = ["autoMemoryDirectory"]
_HOOKS = ["hooks"]
_EVENTS = (["hooks", "SessionStart"], ["hooks", "UserPromptSubmit"])


class ClaudeCode:
    """The integration of Claude Code."""

    name = "claude-code"
    begin = "harness use claude-code --workspace W"
    empty = "{}\n"
    prompt_options = ("--hook",)  # Claude Code describes the directory itself
    advice = "use/claude-code.md"

    def file(self, project: Path | None) -> Path:
        if project is not None:
            return project / ".claude" / "settings.local.json"
        return configured_directory("CLAUDE_CONFIG_DIR", "~/.claude") / "settings.json"

    def used(self, text: str, use: Use) -> str:
        text = with_value(text, _MEMORY, use.root)
        hook = {"type": "command", "command": use.command, "timeout": HOOK_TIMEOUT_S}
        for event in _EVENTS:
            text = with_item(text, event, {"hooks": [hook]})
        return text

    def unused(self, text: str, use: Use, before: str) -> str:
        if value_at(text, _MEMORY) == use.root:
            old = value_at(before, _MEMORY)
            text = without(text, _MEMORY) if old is None else with_value(text, _MEMORY, old)
        for event in _EVENTS:
            text = without_items(text, event, lambda item: _runs(item, use.command))
        for path in (*_EVENTS, _HOOKS):
            if not value_at(text, path) and value_at(before, path) is None:
                text = without(text, path)
        return text


def _runs(item: object, command: str) -> bool:
    """Return True if this is our entry, and ours only. Hooks that a person added beside it belong to that
    person."""
    hooks: Any = cast("dict[str, Any]", item).get("hooks") if isinstance(item, dict) else None
    return isinstance(hooks, list) and [
        cast("dict[str, Any]", hook).get("command") if isinstance(hook, dict) else None
        for hook in cast("list[Any]", hooks)
    ] == [command]
