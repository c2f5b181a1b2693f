"""Steps: from one revision to the next, which blob took which one's place at which path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workspaces.history.git.objects import ObjectId
from workspaces.history.log import entries, revision_of
from workspaces.revision import RevisionId
from workspaces.timestamp import Stamp

RAW_OPTIONS = ("--raw", "-z", "--no-abbrev", "--no-renames", "--no-ext-diff", "--no-textconv")

_NOTHING = "0" * 40
_FILE_MODES = ("100", "120")
"""Regular files and links; somebody else's history may hold more."""


@dataclass(frozen=True, slots=True)
class BlobChange:
    path: str
    before: ObjectId | None
    after: ObjectId | None


@dataclass(frozen=True, slots=True)
class RevisionStep:
    before: RevisionId | None
    revision: RevisionId
    at: Stamp
    is_plain: bool
    """False when more than `changes` tell led here: a merge, or several revisions in one."""
    changes: tuple[BlobChange, ...]


def parse_steps(out: bytes) -> list[RevisionStep]:
    """`git log` with FORMAT and RAW_OPTIONS."""
    found: list[RevisionStep] = []
    for header, raw in entries(out, nul=True):
        revision = revision_of(header, ())
        before = revision.parents[0] if revision.parents else None
        is_plain = len(revision.parents) <= 1
        changes = tuple(parse_raw(raw))
        found.append(RevisionStep(before, revision.id, revision.at, is_plain, changes))
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
