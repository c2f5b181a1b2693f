"""A fact: a key, a value, and how much it counts. One Markdown file holds it, `facts/<slug>.md`.

The file says key, pin and importance in its front matter, and the value in its body. Stamps, source and
author come from the history.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from workspaces.errors import OverLimit, Refused
from workspaces.history.source import Source
from workspaces.ids import ID_HEX_DIGITS, Namespace, Version
from workspaces.paths import WorkspacePath, broken_rule
from workspaces.timestamp import Stamp

DIRECTORY = "facts"

KEY_CHARACTERS_MAX = 255
"""Code points of a key: the length that the rows of other stores have."""

VALUE_CHARACTERS_MAX = 2_000
"""Code points of a value. A fact is a sentence or two; longer texts are notes."""

IMPORTANCE_MAX = 100

SLUG_CHARACTERS_MAX = 60
HASH_DIGITS = 8

FactOrder = Literal["agent", "workspace"]
"""The order of a list: of an agent's facts by key, of a workspace's the newest first."""

FactScopeName = Literal["agent", "workspace"]

_ID = re.compile(rf"mem_[0-9a-f]{{{ID_HEX_DIGITS}}}")
_OTHERS = re.compile(r"[^a-z0-9]+")
_ENDS_LIKE_HASH = re.compile(rf"(?:^|-)[0-9a-f]{{{HASH_DIGITS}}}$")


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact, as its file and the history tell it."""

    id: str
    path: WorkspacePath
    version: Version
    key: str
    value: str
    pinned: bool
    importance: int
    created_at: Stamp
    updated_at: Stamp
    source: Source
    author: str
    is_truncated: bool = False
    """True if the file holds more than a fact may; `value` is then its beginning."""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else the front matter says, such as tags."""


def check_key(key: str) -> str:
    """Return the key.

    Raises: Refused if it is no key.
    """
    if not key:
        raise Refused("key", key, "is empty", message="the key is empty")
    if len(key) > KEY_CHARACTERS_MAX:
        raise Refused("key", key, f"is longer than {KEY_CHARACTERS_MAX} characters")
    if key != key.strip():
        raise Refused("key", key, "begins or ends with a space")
    if any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in key):
        raise Refused("key", key, "contains a control character or a line break")
    return key


def check_value(value: str) -> str:
    """Return the value, with line ends as `\\n`.

    Raises: Refused if it says nothing or cannot be stored; OverLimit if it is too long.
    """
    value = value.replace("\r\n", "\n")
    if not value.strip():
        raise Refused("value", value, "is empty", message="the value is empty")
    if len(value) > VALUE_CHARACTERS_MAX:
        raise OverLimit("value", maximum=VALUE_CHARACTERS_MAX, actual=len(value), unit="characters")
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise Refused("value", value, "contains NUL or half of a character (a lone surrogate)")
    return value


def check_importance(importance: int) -> int:
    if not 0 <= importance <= IMPORTANCE_MAX:
        raise Refused("importance", importance, f"is not between 0 and {IMPORTANCE_MAX}")
    return importance


def fact_id(namespace: Namespace, key: str) -> str:
    """Return the id of a fact: equal on every machine, and the same after an edit by hand."""
    return "mem_" + _digest(f"{namespace}\0{key}")[:ID_HEX_DIGITS]


def is_fact_id(text: str) -> bool:
    """Return True for an id. A reference of this form never means a key."""
    return _ID.fullmatch(text) is not None


def canonical_path(key: str) -> WorkspacePath:
    """Return the path of a new fact with this key. No two keys have the same one."""
    slug = slug_of(key)
    name = f"{DIRECTORY}/{slug}.md"
    if slug != key or _ENDS_LIKE_HASH.search(slug) or broken_rule(name) is not None:
        return hashed_path(key)
    return WorkspacePath(name)


def hashed_path(key: str) -> WorkspacePath:
    """Return the path with a part of the key's hash. It serves where another file has the plain name."""
    return WorkspacePath(f"{DIRECTORY}/{slug_of(key)}-{_digest(key)[:HASH_DIGITS]}.md")


def is_fact_path(path: str) -> bool:
    """Return True for `facts/<name>.md`. Files in folders below are no facts."""
    directory, _, name = path.rpartition("/")
    return directory == DIRECTORY and name.endswith(".md") and name != ".md"


def slug_of(key: str) -> str:
    """Return the key in lowercase letters, digits and single dashes: `fact` if it has none of them."""
    slug = _OTHERS.sub("-", key.lower()).strip("-")[:SLUG_CHARACTERS_MAX].strip("-")
    return slug or "fact"


def in_order(facts: Iterable[Fact], order: FactOrder) -> list[Fact]:
    """Return the facts in the order of a list: pinned first, then by importance, then as `order` says."""
    ordered = sorted(facts, key=_by_key)
    if order == "workspace":
        ordered.sort(key=_by_update, reverse=True)
    ordered.sort(key=_by_weight)
    return ordered


def _by_key(fact: Fact) -> str:
    return fact.key


def _by_update(fact: Fact) -> str:
    return fact.updated_at


def _by_weight(fact: Fact) -> tuple[bool, int]:
    return not fact.pinned, -fact.importance


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
