"""Steps from one revision to the next: at each changed path, the blob before and the blob after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from workspaces.errors import Unavailable
from workspaces.history.git.objects import ObjectId
from workspaces.history.log import FORMAT, entries, revision_of
from workspaces.paths import WorkspacePath
from workspaces.revision import Revision, RevisionId
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


@dataclass(frozen=True, slots=True)
class LaterChange:
    """A revision that changed a file. Its parents are the last revisions before it that changed the file."""

    revision: Revision
    blob: ObjectId | None
    """The file in this revision. None if it has no such file."""


def read_later(
    git: Callable[..., bytes],
    find: Callable[[RevisionId, WorkspacePath], ObjectId | None],
    path: WorkspacePath,
    *,
    since: RevisionId,
    tip: RevisionId,
) -> list[LaterChange]:
    """Return the revisions since one that changed a file, parents first. A merge is among them only if both
    sides changed the file."""
    walk = ("--topo-order", "--reverse", "--parents", "--simplify-merges", FORMAT)
    shown = ("--diff-merges=first-parent", *RAW_OPTIONS, "--end-of-options")
    command = ("log", *walk, *shown, tip, f"^{since}", "--", path)
    later: list[LaterChange] = []
    for header, raw in entries(git(*command), nul=True):
        revision = revision_of(header, ())
        change = next(iter(parse_raw(raw)), None)  # None: a merge that equals its first parent
        later.append(LaterChange(revision, change.after if change else find(revision.id, path)))
    return later


def read_steps(
    git: Callable[..., bytes], known: RevisionId | None, tip: RevisionId, at: Callable[[], Stamp]
) -> list[RevisionStep] | None:
    """Return the steps from a known revision to `tip`, ascending, or None if it is no ancestor of `tip`. `at`
    returns the stamp of `tip`."""
    wanted = ["--end-of-options", tip, *([f"^{known}"] if known else []), "--"]
    walk = ("--first-parent", "--reverse", "--diff-merges=first-parent", FORMAT)
    try:
        steps = parse_steps(git("log", *walk, *RAW_OPTIONS, *wanted))
        if not steps or steps[0].before == known:
            return steps
        if known is None or git("rev-list", "-n1", known, f"^{tip}", "--"):
            return None
    except Unavailable:  # `known` belongs to a history that was replaced
        if known is None:
            raise
        return None
    raw = git("diff-tree", "-r", *RAW_OPTIONS, known, tip, "--").decode()
    return [RevisionStep(known, tip, at(), False, tuple(parse_raw(raw)))]


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
