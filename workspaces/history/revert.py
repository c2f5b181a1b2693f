"""Revert a revision: take its changes back and keep later changes.

Each file has three versions: before the revision, after it, and now. Lines that the revision changed and
that no later change touched go back. If a later change touched them, the revert is refused, not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping

from workspaces.errors import Refused
from workspaces.history.history import History
from workspaces.history.line_matching import Hunk, hunks, split_lines
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId

Files = Mapping[WorkspacePath, bytes | None]
"""Files with their bytes. None stands for no file."""


def touched_paths(history: History, revision: RevisionId) -> list[WorkspacePath]:
    """Return the paths that a revision changed. A merge is compared with its first parent."""
    return [WorkspacePath(file.path) for file in history.show(revision).files]


def undo_changes(history: History, revision: RevisionId, files: Files) -> Files:
    """Return the files to change, with their bytes after the undo. `files` holds their present bytes.

    Raises: Refused when later changes touch the same lines."""
    parents = history.commit(revision).parents
    parent = parents[0] if parents else None
    changes: dict[WorkspacePath, bytes | None] = {}
    for path, now in files.items():
        after, before = _read_at(history, revision, path), _read_at(history, parent, path)
        if now == before:
            continue  # already undone
        if now != after and (now is None or after is None or before is None):
            raise _changed_again(path, revision)  # created or deleted since: no lines to merge
        undone = before if now == after else _undo_lines(path, revision, after, before, now)
        if undone != now:
            changes[path] = undone
    return changes


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Apply the changes from `base` to `theirs` to `ours`. Return None if both changed the same lines."""
    old, mine, other = split_lines(base), split_lines(ours), split_lines(theirs)
    my_hunks = hunks(old, mine)
    result: list[bytes] = []
    at = 0
    for hunk in hunks(old, other):
        if any(_is_same(hunk, other, my_hunk, mine) for my_hunk in my_hunks):
            continue  # both sides made the same change
        if any(_touch(hunk, my_hunk) for my_hunk in my_hunks):
            return None
        start = hunk.old_start + _shift(my_hunks, hunk.old_start)
        result += [*mine[at:start], *other[hunk.new_start : hunk.new_end]]
        at = start + hunk.old_end - hunk.old_start
    return b"".join([*result, *mine[at:]])


def _undo_lines(
    path: WorkspacePath,
    revision: RevisionId,
    after: bytes | None,
    before: bytes | None,
    now: bytes | None,
) -> bytes:
    undone = None
    if after is not None and before is not None and now is not None:
        undone = merge_lines(after, now, before)
    if undone is None:
        raise _changed_again(path, revision)
    return undone


def _touch(one: Hunk, other: Hunk) -> bool:
    """Return True if two changes overlap or are adjacent. Between adjacent changes no line shows their
    order."""
    return one.old_start <= other.old_end and other.old_start <= one.old_end


def _is_same(one: Hunk, one_lines: list[bytes], other: Hunk, other_lines: list[bytes]) -> bool:
    return (one.old_start, one.old_end) == (other.old_start, other.old_end) and (
        one_lines[one.new_start : one.new_end] == other_lines[other.new_start : other.new_end]
    )


def _shift(mine: list[Hunk], position: int) -> int:
    """Return the number of lines by which the hunks before `position` have moved it."""
    return sum(
        (hunk.new_end - hunk.new_start) - (hunk.old_end - hunk.old_start)
        for hunk in mine
        if hunk.old_end <= position
    )


def _read_at(history: History, revision: RevisionId | None, path: WorkspacePath) -> bytes | None:
    blob = history.find(revision, path)
    return history.read(blob) if blob else None


def _changed_again(path: WorkspacePath, revision: RevisionId) -> Refused:
    return Refused(
        "path",
        path,
        f"has later changes on the lines that {revision[:10]} changed",
        message=f"Cannot undo {revision[:7]}: later changes touch the same lines of {path}.",
        remedy=f"edit it by hand, or restore the whole file: harness restore W {path} --revision R",
    )
