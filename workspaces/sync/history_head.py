"""The head: what the history of a workspace has come to in S3, and the packs that hold it.

    .history/<namespace>/head.json       {format, tip, reviewed, packs: [{name, bytes, tip}]}
    .history/<namespace>/<name>.bundle   one pack; its name is the SHA-256 of its bytes

The head is the one thing in S3 that decides what the history is. It is moved with a condition, only to a
revision that descends from the one it names, and only after the packs it names were written. Packs stand
in the order in which they build on each other: each needs nothing but those before it.

A pack for every turn makes many of them. Beyond `PACKS_MAX` the newest are folded into one, as many as
are not dwarfed by what follows them: so a large old one is rarely written or fetched again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from workspaces.errors import OverLimit, Refused
from workspaces.revision import RevisionId

FORMAT = 1
"""Of head.json. A newer one is refused: what it means is not known here."""

NAME = "head.json"

PACKS_MAX = 32
"""Whoever comes new fetches each; from so many on they are folded."""

PACKS_READ_MAX = 1024
"""What is taken for a head at all: some other machine may be late with folding."""

HEAD_BYTES_MAX = 256 * 1024
"""A thousand packs have room in it."""

FOLD_FACTOR = 2
"""A pack this many times as large as all that follow it is left as it is."""

_REVISION = re.compile(r"[0-9a-f]{40}")
_PACK = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Pack:
    name: str
    """Hex SHA-256 of its bytes."""
    bytes: int
    tip: RevisionId
    """The newest revision in it."""

    @property
    def blob(self) -> str:
        return f"{self.name}.bundle"


@dataclass(frozen=True, slots=True)
class HistoryHead:
    tip: RevisionId | None
    """None where there is no head yet."""
    packs: tuple[Pack, ...] = ()
    reviewed: RevisionId | None = None


@lru_cache(maxsize=4)  # what is written is remembered as well
def head_bytes(head: HistoryHead) -> bytes:
    packs = [{"name": one.name, "bytes": one.bytes, "tip": one.tip} for one in head.packs]
    told = {
        "format": FORMAT,
        "tip": head.tip,
        "reviewed": head.reviewed,
        "packs": packs,
    }
    return (json.dumps(told, indent=1) + "\n").encode()


def parse_head(data: bytes) -> HistoryHead:
    """Refused, for whoever wrote it may have written anything; OverLimit."""
    if len(data) > HEAD_BYTES_MAX:
        raise OverLimit(f"size of {NAME}", maximum=HEAD_BYTES_MAX, actual=len(data), unit="bytes")
    try:
        told: Any = json.loads(data)
    except (ValueError, RecursionError):
        raise Refused(NAME, data[:100].decode(errors="replace"), "is no JSON") from None
    if not isinstance(told, dict):
        raise Refused(NAME, told, "is no object")
    fields = cast("dict[str, Any]", told)
    version = fields.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise Refused(f"{NAME}: format", version, "is no number of a format")
    if version > FORMAT:
        raise Refused(
            f"{NAME}: format",
            version,
            f"is newer than this version can read ({FORMAT})",
            remedy="install the newest workspace-harness on this machine",
        )
    packs = cast("list[Any]", fields.get("packs"))
    if type(packs) is not list or len(packs) > PACKS_READ_MAX:
        raise Refused(f"{NAME}: packs", packs, f"is no list of at most {PACKS_READ_MAX}")
    tip = _revision(fields.get("tip"), "tip")
    found = tuple(_pack(one) for one in packs)
    if (tip is None) != (not found) or (found and found[-1].tip != tip):
        raise Refused(f"{NAME}: tip", tip, "is not the newest revision of the last pack")
    return HistoryHead(tip, found, _revision(fields.get("reviewed"), "reviewed"))


def fold_from(packs: Sequence[Pack]) -> int | None:
    """The first of the packs that become one; None while they are few."""
    if len(packs) <= PACKS_MAX:
        return None
    rest = sum(one.bytes for one in packs)
    for number, one in enumerate(packs):
        rest -= one.bytes
        if one.bytes < FOLD_FACTOR * rest:
            return number
    return len(packs) - 2


def _pack(told: Any) -> Pack:
    if not isinstance(told, dict):
        raise Refused(f"{NAME}: packs", told, "holds what is no object")
    fields = cast("dict[str, Any]", told)
    name = fields.get("name")
    if not isinstance(name, str) or not _PACK.fullmatch(name):
        raise Refused(f"{NAME}: packs.name", name, "is no SHA-256")
    tip = _revision(fields.get("tip"), "packs.tip")
    if tip is None:
        raise Refused(f"{NAME}: packs.tip", tip, "is missing")
    return Pack(name, _number(fields.get("bytes"), "packs.bytes"), tip)


def _number(told: Any, field: str) -> int:
    if not isinstance(told, int) or isinstance(told, bool) or not 0 <= told < 2**53:
        raise Refused(f"{NAME}: {field}", told, "is no number")
    return told


def _revision(told: Any, field: str) -> RevisionId | None:
    if told is None:
        return None
    if not isinstance(told, str) or not _REVISION.fullmatch(told):
        raise Refused(f"{NAME}: {field}", told, "is no id of a revision")
    return RevisionId(told)
