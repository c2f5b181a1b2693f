"""The head: a record in S3 of the newest revision of a workspace's history, and the packs that hold it.

    .history/<namespace>/head.json       {format, tip, reviewed, packs: [{name, bytes, tip}]}
    .history/<namespace>/<name>.bundle   one pack; its name is the SHA-256 of its bytes

The head alone decides which history S3 holds. It is moved with a condition, only to a revision that
descends from the one it names, and only after the packs it names were written. Packs are ordered so that
each needs only the packs before it.

One pack for every turn adds up to many packs. Beyond `PACKS_MAX`, the newest are folded into one. A pack
stays as it is if all packs after it are small in comparison. So a large old pack is rarely written or
fetched again.
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
"""Format of head.json. A newer format is refused, because its meaning is not known here."""

NAME = "head.json"

PACKS_MAX = 32
"""Number of packs beyond which they are folded. A new machine fetches each pack."""

PACKS_READ_MAX = 1024
"""Largest number of packs accepted in a head. Another machine may be late with folding."""

HEAD_BYTES_MAX = 256 * 1024
"""Largest size of a head, enough for a thousand packs."""

FOLD_FACTOR = 2
"""A pack this many times as large as all later packs together is not folded."""

_REVISION = re.compile(r"[0-9a-f]{40}")
_PACK = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Pack:
    name: str
    """Hex SHA-256 of the pack's bytes."""
    bytes: int
    tip: RevisionId
    """The newest revision in the pack."""

    @property
    def blob(self) -> str:
        return f"{self.name}.bundle"


@dataclass(frozen=True, slots=True)
class HistoryHead:
    tip: RevisionId | None
    """None if no head exists yet."""
    packs: tuple[Pack, ...] = ()
    reviewed: RevisionId | None = None


@lru_cache(maxsize=4)  # a head that was written is stored in the baseline as well
def head_bytes(head: HistoryHead) -> bytes:
    packs = [{"name": pack.name, "bytes": pack.bytes, "tip": pack.tip} for pack in head.packs]
    value = {
        "format": FORMAT,
        "tip": head.tip,
        "reviewed": head.reviewed,
        "packs": packs,
    }
    return (json.dumps(value, indent=1) + "\n").encode()


def parse_head(data: bytes) -> HistoryHead:
    """Return the head stored in these bytes, which another program may have written.

    Raises: Refused for anything but a valid head; OverLimit if it is too large.
    """
    if len(data) > HEAD_BYTES_MAX:
        raise OverLimit(f"size of {NAME}", maximum=HEAD_BYTES_MAX, actual=len(data), unit="bytes")
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError):
        raise Refused(NAME, data[:100].decode(errors="replace"), "is not JSON") from None
    if not isinstance(value, dict):
        raise Refused(NAME, value, "is not an object")
    fields = cast("dict[str, Any]", value)
    version = fields.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise Refused(f"{NAME}: format", version, "is not a format number")
    if version > FORMAT:
        raise Refused(
            f"{NAME}: format",
            version,
            f"is newer than this version can read ({FORMAT})",
            remedy="install the newest workspace-harness on this machine",
        )
    packs = cast("list[Any]", fields.get("packs"))
    if type(packs) is not list or len(packs) > PACKS_READ_MAX:
        raise Refused(f"{NAME}: packs", packs, f"is not a list of at most {PACKS_READ_MAX} packs")
    tip = _revision(fields.get("tip"), "tip")
    parsed = tuple(_pack(entry) for entry in packs)
    if (tip is None) != (not parsed) or (parsed and parsed[-1].tip != tip):
        raise Refused(f"{NAME}: tip", tip, "is not the newest revision of the last pack")
    return HistoryHead(tip, parsed, _revision(fields.get("reviewed"), "reviewed"))


def fold_from(packs: Sequence[Pack]) -> int | None:
    """Return the position of the first pack to fold, or None while there are few packs."""
    if len(packs) <= PACKS_MAX:
        return None
    rest = sum(pack.bytes for pack in packs)
    for number, pack in enumerate(packs):
        rest -= pack.bytes
        if pack.bytes < FOLD_FACTOR * rest:
            return number
    return len(packs) - 2


def _pack(value: Any) -> Pack:
    if not isinstance(value, dict):
        raise Refused(f"{NAME}: packs", value, "contains an entry that is not an object")
    fields = cast("dict[str, Any]", value)
    name = fields.get("name")
    if not isinstance(name, str) or not _PACK.fullmatch(name):
        raise Refused(f"{NAME}: packs.name", name, "is not a SHA-256")
    tip = _revision(fields.get("tip"), "packs.tip")
    if tip is None:
        raise Refused(f"{NAME}: packs.tip", tip, "is missing")
    return Pack(name, _number(fields.get("bytes"), "packs.bytes"), tip)


def _number(value: Any, field: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise Refused(f"{NAME}: {field}", value, "is not a number")
    return value


def _revision(value: Any, field: str) -> RevisionId | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _REVISION.fullmatch(value):
        raise Refused(f"{NAME}: {field}", value, "is not a revision id")
    return RevisionId(value)
