"""Facts that a model proposes, and the decision which of them are stored.

The proposal is a stranger's input: any part of it may have another form than the schema says. What does not
fit is left out and counted, and nothing of it raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from harness.memory.facts.fact import Fact, check_key, check_value, slug_of
from harness.memory.facts.facts import FactEntry
from harness.memory.secrets import find_secrets
from harness.memory.similar import is_similar, word_set
from workspaces.errors import Failure
from workspaces.storage.records import JsonObject

FACTS_MAX = 5
"""Facts that one pass stores at most: more would be notes of what was said."""

CONFIDENCE_MIN = 0.6

CANDIDATES_MAX = 50
"""Proposed facts that are looked at. A reply has room for no more."""

KEY_PREFIX = "auto:"

LearnedScope = Literal["workspace", "agent"]

DropReason = Literal[
    "invalid",  # it has another form than the schema says, or it is too long
    "unsure",  # its confidence is missing or too low
    "secret",  # it looks like a secret
    "known",  # a fact says nearly the same, or exactly this
    "not_ours",  # its key holds a fact that extraction did not write
    "no_place",  # there is no place for facts of its scope
    "too_many",
]

FACT_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "key": {"type": "string", "description": "A short slug of a-z, 0-9 and dashes."},
        "value": {"type": "string", "description": "The fact, in one or two sentences."},
        "scope": {"type": "string", "enum": ["workspace", "agent"]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["key", "value", "scope", "confidence"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class FactCandidate:
    """A fact that a model proposes. Its key is the one under which it would be stored."""

    key: str
    value: str
    scope: LearnedScope

    def as_json(self) -> JsonObject:
        return {"key": self.key, "value": self.value, "scope": self.scope}


def candidate_of(data: JsonObject) -> FactCandidate:
    """Return a candidate that was stored."""
    return FactCandidate(data["key"], data["value"], data["scope"])


@dataclass(frozen=True, slots=True)
class FactPlan:
    """The facts to store in each scope, and how many were left out for which reason."""

    entries: Mapping[LearnedScope, Sequence[FactEntry]]
    dropped: Counter[DropReason] = field(default_factory=Counter["DropReason"])

    @property
    def count(self) -> int:
        return sum(map(len, self.entries.values()))


def checked(proposed: object) -> tuple[list[FactCandidate], Counter[DropReason]]:
    """Return the proposed facts that may be stored, and the reasons of the others."""
    found: list[FactCandidate] = []
    dropped: Counter[DropReason] = Counter()
    listed = cast("list[Any]", proposed) if isinstance(proposed, list) else []
    for one in listed[:CANDIDATES_MAX]:
        candidate = _candidate(one)
        if isinstance(candidate, FactCandidate):
            found.append(candidate)
        else:
            dropped[candidate] += 1
    dropped["too_many"] += max(0, len(listed) - CANDIDATES_MAX)
    return found, +dropped


def planned(
    candidates: Sequence[FactCandidate], known: Mapping[LearnedScope, Sequence[Fact]]
) -> FactPlan:
    """Decide which facts are stored. `known` holds the facts of each scope that has a place.

    Without a place for facts of a workspace, they are the agent's.
    """
    scopes = {scope: _Scope(facts) for scope, facts in known.items()}
    entries: dict[LearnedScope, list[FactEntry]] = {scope: [] for scope in known}
    dropped: Counter[DropReason] = Counter()
    for candidate in candidates:
        name = candidate.scope if candidate.scope in scopes else "agent"
        scope = scopes.get(name)
        if scope is None:
            dropped["no_place"] += 1
            continue
        reason = scope.objection(candidate)
        if reason is None and sum(map(len, entries.values())) >= FACTS_MAX:
            reason = "too_many"
        if reason is not None:
            dropped[reason] += 1
            continue
        scope.take(candidate)
        entries[name].append(FactEntry(candidate.key, candidate.value))
    return FactPlan(entries, dropped)


class _Scope:
    """The facts of one scope, with those that are kept so far.

    A handful of candidates is compared with each of them: an index of all facts would take longer to build.
    """

    def __init__(self, facts: Sequence[Fact]) -> None:
        self._by_key = {fact.key: fact for fact in facts}
        self._words = [word_set(fact.value) for fact in facts]
        self._taken: set[str] = set()

    def objection(self, candidate: FactCandidate) -> DropReason | None:
        """Return the reason for which a fact is not stored, or None."""
        if candidate.key in self._taken:
            return "known"
        known = self._by_key.get(candidate.key)
        if known is not None and known.source != "auto":
            return "not_ours"
        if known is not None:  # a corrected number differs little, and must not be lost
            return "known" if known.value == candidate.value else None
        own = word_set(candidate.value)
        return "known" if any(is_similar(own, words) for words in self._words) else None

    def take(self, candidate: FactCandidate) -> None:
        self._taken.add(candidate.key)
        self._words.append(word_set(candidate.value))


def _candidate(proposed: object) -> FactCandidate | DropReason:
    if not isinstance(proposed, dict):
        return "invalid"
    fields = cast("dict[str, Any]", proposed)
    key, value = fields.get("key"), fields.get("value")
    if not isinstance(key, str) or not isinstance(value, str):
        return "invalid"
    confidence = fields.get("confidence")
    if not isinstance(confidence, int | float) or isinstance(confidence, bool):
        return "unsure"
    if not CONFIDENCE_MIN <= confidence <= 1:  # also what is no number at all
        return "unsure"
    try:
        own = check_key(f"{KEY_PREFIX}{slug_of(key)}")
        value = check_value(value.strip())
    except Failure:
        return "invalid"
    if find_secrets(f"{key}: {value}") or find_secrets(value):
        return "secret"
    return FactCandidate(own, value, "workspace" if fields.get("scope") == "workspace" else "agent")
