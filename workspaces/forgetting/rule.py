"""A rule that forbids: a text (by its tombstone), a pattern, or a detector such as one for keys.

A rule has an id of its own that says nothing of what it forbids. The same text, pattern or detector has the
same id on every machine, so rules of several machines are joined by their ids: the later change counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal, cast, get_args

from workspaces.errors import OverLimit, Refused
from workspaces.forgetting.tombstone import KEY_BYTES, TextTombstone, tombstone_from_json
from workspaces.storage.records import JsonObject
from workspaces.timestamp import Stamp, moment_of, stamp_of

RuleKind = Literal["text", "pattern", "detector"]

PATTERN_CHARACTERS_MAX = 1_000
PATTERNS_MAX = 64
"""Patterns of an account. Every text that is written is searched for all of them."""

FORMAT = 1

_ID = re.compile("[fpd]_[0-9a-f]{8}")
_KEY_ID = re.compile("k_[0-9a-f]{8}")
_DETECTOR = re.compile("[a-z]{1,40}")
_OTHER_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class ForbiddenRule:
    id: str
    """`f_`, `p_` or `d_`, and 8 hex digits."""
    kind: RuleKind
    at: Stamp
    """When it was made or lifted last."""
    by: str
    workspace_id: str | None = None
    """The workspace for which it counts. None: all of the account."""
    is_lifted: bool = False
    forgetting_id: str | None = None
    """The forgetting that made it. None: a person forbade the text without a forgetting."""
    key_id: str | None = None
    tombstone: TextTombstone | None = None
    pattern: str | None = None
    detector: str | None = None

    def as_json(self) -> JsonObject:
        value: JsonObject = {
            "format": FORMAT,
            "id": self.id,
            "kind": self.kind,
            "at": self.at,
            "by": self.by,
            "workspaceId": self.workspace_id,
            "isLifted": self.is_lifted,
            "forgettingId": self.forgetting_id,
        }
        if self.tombstone is not None:
            value |= {"keyId": self.key_id, **self.tombstone.as_json()}
        if self.pattern is not None:
            value["pattern"] = self.pattern
        if self.detector is not None:
            value["detector"] = self.detector
        return value

    def shown(self) -> JsonObject:
        """Return the rule for people: without the hashes of a text."""
        value = {name: one for name, one in self.as_json().items() if name not in _HIDDEN}
        if self.tombstone is not None:
            value["words"] = self.tombstone.words
        return value


_HIDDEN = ("format", "digests", "keyId")


@dataclass(frozen=True, slots=True)
class TombstoneKey:
    """A key of an account for the hashes of its tombstones. Machines that share a bucket share it there."""

    id: str
    secret: bytes

    def as_json(self) -> JsonObject:
        return {"format": FORMAT, "id": self.id, "kind": "key", "secret": self.secret.hex()}


RuleEntry = ForbiddenRule | TombstoneKey
"""What machines exchange of what is forbidden."""


def new_key(secret: bytes) -> TombstoneKey:
    return TombstoneKey(f"k_{_short_hash('key', secret.hex())}", secret)


def pattern_id(pattern: str, workspace_id: str | None) -> str:
    return f"p_{_short_hash(pattern, workspace_id or '')}"


def detector_id(detector: str, workspace_id: str | None) -> str:
    return f"d_{_short_hash(detector, workspace_id or '')}"


def rule_from_json(value: object) -> ForbiddenRule | TombstoneKey:
    """Read what `as_json` gives, of a rule or a key. The bucket's entries are untrusted.

    Raises: Refused for anything else.
    """
    try:
        return _parsed(cast("JsonObject", value))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise Refused("rule", None, f"is not a valid rule: {error}") from error


def is_later(entry: RuleEntry, before: RuleEntry | None) -> bool:
    """Return True if a rule says more than what was known of it. A key never changes."""
    if before is None:
        return True
    if isinstance(entry, TombstoneKey) or isinstance(before, TombstoneKey):
        return False
    # at one moment what forbids counts: to lift it again is easy
    return (entry.at, not entry.is_lifted) > (before.at, not before.is_lifted)


def check_pattern_text(pattern: str) -> None:
    """Raise if a pattern is empty, too long, or has a line end."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise OverLimit(
            "forbid.pattern",
            maximum=PATTERN_CHARACTERS_MAX,
            actual=len(pattern),
            unit="characters",
        )
    if not pattern or "\n" in pattern or "\0" in pattern:
        raise Refused("pattern", pattern, "must be one line that is not empty")


def _parsed(value: JsonObject) -> ForbiddenRule | TombstoneKey:
    if value["format"] != FORMAT:
        raise ValueError("it has an unknown format")
    if value["kind"] == "key":
        key = new_key(bytes.fromhex(value["secret"]))
        if (
            len(key.secret) != KEY_BYTES
            or not _KEY_ID.fullmatch(value["id"])
            or key.id != value["id"]
        ):
            raise ValueError("the id of a key does not fit its secret")
        return key
    kind, rule_id = value["kind"], value["id"]
    if (
        kind not in get_args(RuleKind)
        or not _ID.fullmatch(rule_id)
        or rule_id[0] != kind.replace("text", "f")[0]
    ):
        raise ValueError("id and kind do not fit")
    if type(value["isLifted"]) is not bool:
        raise ValueError("isLifted is true or false")
    at = value["at"]
    if stamp_of(moment_of(Stamp(at.removesuffix("Z")))) != at:
        raise ValueError("`at` is no stamp")
    rule = ForbiddenRule(
        rule_id,
        kind,
        Stamp(at),
        _short(value["by"]),
        workspace_id=_short_or_none(value["workspaceId"]),
        is_lifted=value["isLifted"],
        forgetting_id=_short_or_none(value["forgettingId"]),
    )
    return _with_subject(rule, value)


def _with_subject(rule: ForbiddenRule, value: JsonObject) -> ForbiddenRule:
    """Return the rule with what it forbids, which must fit its id."""
    if rule.kind == "text":
        key_id = value["keyId"]
        if not _KEY_ID.fullmatch(key_id):
            raise ValueError("keyId is not the id of a key")
        return replace(rule, key_id=key_id, tombstone=tombstone_from_json(value))
    if rule.kind == "pattern":
        check_pattern_text(value["pattern"])
        if pattern_id(value["pattern"], rule.workspace_id) != rule.id:
            raise ValueError("the id does not fit the pattern")
        return replace(rule, pattern=value["pattern"])
    if (
        not _DETECTOR.fullmatch(value["detector"])
        or detector_id(value["detector"], rule.workspace_id) != rule.id
    ):
        raise ValueError("the id does not fit the detector")
    return replace(rule, detector=value["detector"])


def _short(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _OTHER_CHARACTERS_MAX:
        raise ValueError("a name or id is not a short text")
    return value


def _short_or_none(value: object) -> str | None:
    return None if value is None else _short(value)


def _short_hash(subject: str, scope: str) -> str:
    return sha256(f"{scope}\0{subject}".encode()).hexdigest()[:8]
