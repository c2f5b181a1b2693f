"""A memory: a fact that memorize wrote, as its file, the history and the archive tell it.

The file's front matter says the tags, the confidence and the groundings, each as every reader of YAML may
see them, and under `memorize` where the fact comes from. All values there are text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

from harness.memorize.archive.archives import Citation
from harness.memorize.grounding import Grounding
from harness.memory.facts.fact import Fact
from workspaces.errors import Conflict
from workspaces.ids import WorkspaceId

KEY_PREFIX = "memorize:"
"""Begins the key of every memory, so that none meets a person's key."""

_NO_WORD = re.compile(r"[\W_]+")
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)
_DECIMAL = re.compile(r"[0-9](?:\.[0-9]{1,20})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class MemoryOrigin:
    """The origin of a memory, as its file says."""

    conversation: str
    provider: str
    snapshot: str
    """The hash of the archived conversation that was cited."""
    body: str
    """The hash of the text that the groundings were given for."""
    request: str
    """The hash of what the caller sent."""
    project: str | None = None
    agent: str | None = None
    memory_key: str | None = None

    def as_attributes(self) -> dict[str, str]:
        told = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in told.items() if value is not None}


@dataclass(frozen=True, slots=True)
class CitedMoment:
    """A grounding as the fact's file says it."""

    message: int | None
    event: int
    start: int
    end: int
    quote: str
    hash: str


@dataclass(frozen=True, slots=True)
class MemorizedFact:
    fact: Fact
    origin: MemoryOrigin
    workspace: str
    """The name of its workspace."""
    workspace_id: WorkspaceId
    citation: Citation | None = None
    """What the archive keeps of it. None: the archive is gone, or another user's."""

    @property
    def tags(self) -> tuple[str, ...]:
        return tags_of(self.fact)

    @property
    def confidence(self) -> float | None:
        told = self.fact.attributes.get("confidence")
        return float(told) if isinstance(told, str) and _DECIMAL.fullmatch(told) else None

    @property
    def moments(self) -> tuple[CitedMoment, ...]:
        """The groundings as the file says them. Those that a person has broken are left out."""
        return moments_of(self.fact)

    @property
    def has_broken_moments(self) -> bool:
        """True if a person has changed a grounding so that it cannot be read."""
        return len(self.moments) < len(_told_moments(self.fact))

    @property
    def is_body_unchanged(self) -> bool:
        return body_hash(self.fact.value) == self.origin.body

    def as_json(self) -> dict[str, Any]:
        fact, origin, citation = self.fact, self.origin, self.citation
        return {
            "id": fact.id,
            "memory_key": origin.memory_key,
            "content": fact.value,
            "tags": list(self.tags),
            "confidence": self.confidence,
            "metadata": dict(citation.metadata) if citation is not None else {},
            "groundings": self._groundings(),
            "agent_id": origin.agent,
            "conversation_id": origin.conversation,
            "provider": origin.provider,
            "project": origin.project,
            "workspace": self.workspace,
            "source": fact.source,
            "created_at": fact.created_at,
            "updated_at": fact.updated_at,
        }

    def _groundings(self) -> list[dict[str, Any]]:
        if self.citation is not None:
            return [dict(one) for one in self.citation.groundings]
        return [
            {
                "message_position": one.message,
                "raw_event_index": one.event,
                "start_character": one.start,
                "end_character": one.end,
                "quote": one.quote,
                "hash": one.hash,
            }
            for one in self.moments
        ]


class EditedMemory(Conflict):
    """A person has edited the memory since it was memorized."""

    code = "edited"

    def __init__(self, memory: MemorizedFact) -> None:
        super().__init__(
            "memory", memory.fact.key, expected="the memorized text", actual="a person's text"
        )
        self.args = (f"a person has edited the memory {memory.fact.key!r} since",)
        self.remedy = "keep it, or send `overwrite: true` to replace the person's words"
        self.memory = memory


def body_hash(text: str) -> str:
    return sha256(text.encode(errors="backslashreplace")).hexdigest()


def attributes_of(
    origin: MemoryOrigin,
    tags: Sequence[str],
    confidence: float | None,
    groundings: Sequence[Grounding],
) -> dict[str, Any]:
    """Return the keys of the front matter; None removes one."""
    return {
        "tags": list(tags) or None,
        "confidence": None if confidence is None else f"{confidence:.6f}".rstrip("0").rstrip("."),
        "groundings": [one.as_attributes() for one in groundings] or None,
        "memorize": origin.as_attributes(),
    }


def origin_of(fact: Fact) -> MemoryOrigin | None:
    """Return the origin of a fact; None if memorize did not write it."""
    told = fact.attributes.get("memorize")
    if not isinstance(told, Mapping):
        return None
    said = {
        str(name): value
        for name, value in cast("Mapping[Any, Any]", told).items()
        if isinstance(value, str)
    }
    try:
        return MemoryOrigin(**said)
    except TypeError:  # a person has removed a part, or added one
        return None


def moments_of(fact: Fact) -> tuple[CitedMoment, ...]:
    """Return the groundings that the file of a fact says and that can be read."""
    return tuple(one for one in map(_moment, _told_moments(fact)) if one is not None)


def tag_slug(tag: str) -> str:
    """Return a tag in small letters, with `-` for everything that is no letter or digit."""
    return _NO_WORD.sub("-", tag.casefold()).strip("-")


def tags_of(fact: Fact) -> tuple[str, ...]:
    told = fact.attributes.get("tags")
    tags = cast("list[Any]", told) if isinstance(told, list) else []
    return tuple(tag for tag in tags if isinstance(tag, str))


def _told_moments(fact: Fact) -> list[Any]:
    told = fact.attributes.get("groundings")
    return cast("list[Any]", told) if isinstance(told, list) else []


def _moment(told: object) -> CitedMoment | None:
    if not isinstance(told, Mapping):
        return None
    said = cast("Mapping[str, Any]", told)
    numbers = {name: _number(said.get(name)) for name in ("message", "event", "start", "end")}
    quote, hash_ = said.get("quote"), said.get("hash")
    event, start, end = numbers["event"], numbers["start"], numbers["end"]
    if event is None or start is None or end is None:
        return None
    if not isinstance(quote, str) or not isinstance(hash_, str):
        return None
    return CitedMoment(numbers["message"], event, start, end, quote, hash_)


def _number(told: object) -> int | None:
    is_number = isinstance(told, str) and _NUMBER.fullmatch(told) is not None
    return int(cast("str", told)) if is_number else None
