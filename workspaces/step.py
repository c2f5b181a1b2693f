"""Steps: from one revision to the next, which blob took which one's place at which path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workspaces.commit import EARLIEST
from workspaces.objects import ObjectId
from workspaces.revision import RevisionId, trailers_of
from workspaces.stamp import Stamp

RAW_OPTIONS = ("--raw", "-z", "--no-abbrev", "--no-renames", "--no-ext-diff", "--no-textconv")

_RECORD, _FIELD = "\x1e", "\x1f"
STEP_FORMAT = "--format=" + _RECORD + _FIELD.join(("%H", "%P", "%B", ""))

_NOTHING = "0" * 40
_FILE_MODES = ("100", "120")
"""Regular files and links; somebody else's history may hold more."""


@dataclass(frozen=True, slots=True)
class BlobChange:
    path: str
    before: ObjectId | None
    after: ObjectId | None


@dataclass(frozen=True, slots=True)
class Step:
    before: RevisionId | None
    revision: RevisionId
    at: Stamp
    is_plain: bool
    """False when more than `changes` tell led here: a merge, or several revisions in one."""
    changes: tuple[BlobChange, ...]


def parse_steps(out: bytes) -> list[Step]:
    """`git log` with STEP_FORMAT and RAW_OPTIONS."""
    found: list[Step] = []
    for text in out.decode(errors="surrogateescape").split(_RECORD)[1:]:
        revision, parents, body, raw = text.split(_FIELD, 3)
        before = [RevisionId(parent) for parent in parents.split()]
        found.append(
            Step(
                before[0] if before else None,
                RevisionId(revision),
                Stamp(trailers_of(body).get("At", EARLIEST)),
                len(before) <= 1,
                tuple(parse_raw(raw)),
            )
        )
    return found


def parse_raw(text: str) -> Iterator[BlobChange]:
    words = iter(text.split("\0"))
    for word in words:
        if not word.lstrip("\n").startswith(":"):
            continue
        _, mode_after, before, after, _ = word.lstrip("\n")[1:].split(" ")
        path = next(words)
        gone = after == _NOTHING or not mode_after.startswith(_FILE_MODES)
        yield BlobChange(path, _object(before), None if gone else ObjectId(after))


def _object(text: str) -> ObjectId | None:
    return None if text == _NOTHING else ObjectId(text)
