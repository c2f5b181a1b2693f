"""Decisions: the structured results of runs, each a file that is never rewritten.

    decisions/<date>-<run>.md        the result as front matter, with the card as it was; then readable text
    decisions/<date>-<run>.log.md    what was noted later: outcomes and re-examinations, one line each

`data` and `card` stand in the front matter as JSON on one line, which YAML reads as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from harness.memory.decisions.result_card import ResultCard, parsed_card
from workspaces.errors import Refused
from workspaces.paths import WorkspacePath
from workspaces.storage.records import JsonObject
from workspaces.timestamp import is_stamp

FOLDER = "decisions"
LOG_SUFFIX = ".log.md"


@dataclass(frozen=True, slots=True)
class Decision:
    """A result as it was submitted."""

    run_id: str
    card: ResultCard
    data: JsonObject
    created_at: str | None = None
    """When the run was created; None in files without it."""
    chain: JsonObject | None = None
    """Of a chain's decision: the `agents` up to this one, and the `task`."""

    @property
    def line(self) -> str:
        return self.card.summary(self.data)

    def as_json(self) -> JsonObject:
        return {"type": self.card.type, "data": self.data, "line": self.line}

    def stored(self) -> JsonObject:
        """Return the JSON with the card, and with the chain if it is a chain's decision."""
        chain = {} if self.chain is None else {"chain": self.chain}
        return {"card": self.card.as_json(), "data": self.data, **chain}

    def file(self) -> str:
        """Return the text of the decision's file."""
        head = {
            "run": self.run_id,
            **({} if self.created_at is None else {"createdAt": self.created_at}),
            **({} if self.chain is None else {"chain": self.chain}),
            "type": self.card.type,
            "data": self.data,
            "card": self.card.as_json(),
        }
        front = "".join(f"{name}: {_json(value)}\n" for name, value in head.items())
        parts = [f"---\n{front}---\n# {self.card.title}: {self.line}\n"]
        for name, value in self.card.slot_values(self.data):
            parts.append(f"\n## {name}\n\n{value}\n")
        return "".join(parts)


def stored_decision(run_id: str, value: Mapping[str, Any]) -> Decision:
    """Return the decision from its stored JSON."""
    card = parsed_card(value["card"], "card")
    return Decision(run_id, card, dict(value["data"]), chain=value.get("chain"))


def decision_of(text: str, name: str) -> Decision:
    """Return the decision from the text of its file.

    Raises: Refused if the file is not one.
    """
    lines = text.split("\n")
    if lines[0] != "---" or "---" not in lines[1:]:
        raise Refused(name, None, "has no front matter")
    head: dict[str, Any] = {}
    for line in lines[1 : lines.index("---", 1)]:
        key, _, value = line.partition(": ")
        try:
            head[key] = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise Refused(name, line[:80], "is not JSON") from error
    try:
        card = parsed_card(head["card"], name)
        created_at = str(head.get("createdAt", ""))
        return Decision(
            str(head["run"]),
            card,
            card.checked(head["data"]),
            created_at if is_stamp(created_at) else None,
            None if head.get("chain") is None else _chain_of(head["chain"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise Refused(name, None, "is not a decision") from error


def path_of_decision(created_at: str, run_id: str) -> WorkspacePath:
    return WorkspacePath(f"{FOLDER}/{created_at[:10]}-{run_id}.md")


def path_of_log(created_at: str, run_id: str) -> WorkspacePath:
    return WorkspacePath(f"{FOLDER}/{created_at[:10]}-{run_id}{LOG_SUFFIX}")


def ago(since: datetime, now: datetime) -> str:
    """Return the time since a moment, in one unit: `just now`, `5m ago`, `2h ago` or `2d ago`."""
    minutes = int(max(now - since, timedelta()).total_seconds() // 60)
    if minutes < 1:
        return "just now"
    if minutes < 60:
        return f"{minutes}m ago"
    hours = minutes // 60
    return f"{hours}h ago" if hours < 24 else f"{hours // 24}d ago"


def _chain_of(value: Mapping[str, Any]) -> JsonObject:
    agents, task = value["agents"], value["task"]
    if not isinstance(task, str) or not all(isinstance(one, str) for one in agents):
        raise TypeError("a chain has agents and a task")
    return {"agents": list(agents), "task": task}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True)
