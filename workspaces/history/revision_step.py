"""Steps from one revision to the next: at each changed path, the blob before and the blob after."""

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
"""Modes of regular files and links. A foreign history may hold other modes."""


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
    """True if `changes` explain this step alone. False for a merge or several revisions in one step."""
    changes: tuple[BlobChange, ...]


def parse_steps(out: bytes) -> list[RevisionStep]:
    """Parse the output of `git log` with FORMAT and RAW_OPTIONS."""
    steps: list[RevisionStep] = []
    for header, raw in entries(out, nul=True):
        revision = revision_of(header, ())
        before = revision.parents[0] if revision.parents else None
        is_plain = len(revision.parents) <= 1
        changes = tuple(parse_raw(raw))
        steps.append(RevisionStep(before, revision.id, revision.at, is_plain, changes))
    return steps


def parse_raw(text: str) -> Iterator[BlobChange]:
    words = iter(text.split("\0"))
    for word in words:
        if not word.lstrip("\n").startswith(":"):
            continue
        _, mode_after, before, after, _ = word.lstrip("\n")[1:].split(" ")
        path = next(words)
        is_gone = after == _NOTHING or not mode_after.startswith(_FILE_MODES)
        yield BlobChange(path, _object(before), None if is_gone else ObjectId(after))


def _object(text: str) -> ObjectId | None:
    return None if text == _NOTHING else ObjectId(text)
