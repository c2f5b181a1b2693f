"""Undoing a revision: what it did is taken back, what was done since stays.

A file is three versions: as the revision left it, as it was before, and as it is now. Lines that the
revision changed and nobody has touched since go back; where someone has, there is nothing to guess.
"""

from __future__ import annotations

from collections.abc import Mapping

from workspaces.errors import Refused
from workspaces.history.history import History
from workspaces.history.line_matching import Hunk, hunks, split_lines
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId

Files = Mapping[WorkspacePath, bytes | None]
"""Files and their bytes; None where there is no file."""


def touched_paths(history: History, revision: RevisionId) -> list[WorkspacePath]:
    """What a revision did something to; of a merge, to its first parent."""
    return [WorkspacePath(file.path) for file in history.show(revision).files]


def undo_changes(history: History, revision: RevisionId, files: Files) -> Files:
    """Those of the files, as they are now, that should be otherwise. Refused where the same lines
    were changed again."""
    parents = history.commit(revision).parents
    parent = parents[0] if parents else None
    changes: dict[WorkspacePath, bytes | None] = {}
    for path, now in files.items():
        left, before = _at(history, revision, path), _at(history, parent, path)
        if now == before:
            continue  # undone already
        if now != left and (now is None or left is None or before is None):
            raise _changed_again(path, revision)
        should = before if now == left else _without(path, revision, left, before, now)
        if should != now:
            changes[path] = should
    return changes


def merged(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """`ours` with what leads from `base` to `theirs`; None when both changed the same lines."""
    old, mine, other = split_lines(base), split_lines(ours), split_lines(theirs)
    my_hunks = hunks(old, mine)
    result: list[bytes] = []
    at = 0
    for hunk in hunks(old, other):
        if any(_is_same(hunk, other, my_hunk, mine) for my_hunk in my_hunks):
            continue  # both sides did it
        if any(_touch(hunk, my_hunk) for my_hunk in my_hunks):
            return None
        start = hunk.old_start + _shift(my_hunks, hunk.old_start)
        result += [*mine[at:start], *other[hunk.new_start : hunk.new_end]]
        at = start + hunk.old_end - hunk.old_start
    return b"".join([*result, *mine[at:]])


def _without(
    path: WorkspacePath,
    revision: RevisionId,
    left: bytes | None,
    before: bytes | None,
    now: bytes | None,
) -> bytes:
    found = None
    if left is not None and before is not None and now is not None:
        found = merged(left, now, before)
    if found is None:
        raise _changed_again(path, revision)
    return found


def _touch(one: Hunk, other: Hunk) -> bool:
    """Adjacent counts: between two neighbouring changes no line says which comes first."""
    return one.old_start <= other.old_end and other.old_start <= one.old_end


def _is_same(one: Hunk, one_lines: list[bytes], other: Hunk, other_lines: list[bytes]) -> bool:
    return (one.old_start, one.old_end) == (other.old_start, other.old_end) and (
        one_lines[one.new_start : one.new_end] == other_lines[other.new_start : other.new_end]
    )


def _shift(mine: list[Hunk], position: int) -> int:
    """How far the lines at `position` have moved through the hunks before them."""
    return sum(
        (hunk.new_end - hunk.new_start) - (hunk.old_end - hunk.old_start)
        for hunk in mine
        if hunk.old_end <= position
    )


def _at(history: History, revision: RevisionId | None, path: WorkspacePath) -> bytes | None:
    found = history.find(revision, path)
    return history.read(found) if found else None


def _changed_again(path: WorkspacePath, revision: RevisionId) -> Refused:
    return Refused(
        "path",
        path,
        f"was changed again since {revision[:10]} where that changed it",
        message=f"Cannot undo {revision[:7]}: later changes touch the same lines of {path}.",
        remedy=f"edit it by hand, or restore the whole file: harness restore W {path} --revision R",
    )
