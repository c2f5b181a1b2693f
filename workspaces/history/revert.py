"""Revert a revision line by line: take its changes back and keep all later ones.

Its lines are followed to the present file (`line_identity`), so it does not matter what was written beside
them since. A line that the revision added is taken out. A line that it removed goes back after its nearest
neighbour above that is still there, else before the nearest one below, else to the end. A line that it
changed becomes the former line again, at its present place.

If a line of the revision was rewritten since, nothing is undone: the caller would have to guess.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from workspaces.errors import ChangedLine, LinesChanged
from workspaces.history.history import History
from workspaces.history.line_identity import (
    FollowedLines,
    LaterVersion,
    TextLines,
    follow,
    text_lines,
)
from workspaces.history.line_matching import Hunk, hunks
from workspaces.history.revision_step import LaterChange
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId

Files = Mapping[WorkspacePath, bytes | None]
"""Files with their bytes. None stands for no file."""


def touched_paths(history: History, revision: RevisionId) -> list[WorkspacePath]:
    """Return the paths that a revision changed. A merge is compared with its first parent."""
    return [WorkspacePath(file.path) for file in history.show(revision).files]


def undo_changes(history: History, revision: RevisionId, files: Files) -> Files:
    """Return the files to change, with their bytes after the undo. `files` holds their present bytes.

    Raises: LinesChanged when lines of the revision were rewritten since, in any of the files."""
    parents = history.commit(revision).parents
    parent = parents[0] if parents else None
    changes: dict[WorkspacePath, bytes | None] = {}
    rewritten: list[ChangedLine] = []
    for path, now in files.items():
        change = _FileChange(_read_at(history, parent, path), _read_at(history, revision, path))
        later = history.later_changes(revision, path)
        try:
            undone = _undo(history, revision, change, later, now)
        except _Rewritten as lines:
            rewritten += [ChangedLine(path, number, text) for number, text in lines.found]
            continue
        if undone != now:
            changes[path] = undone
    if rewritten:
        raise LinesChanged(revision[:7], rewritten)
    return changes


@dataclass(frozen=True, slots=True)
class _FileChange:
    """The bytes of a file before and after a revision."""

    before: bytes | None
    after: bytes | None


class _Rewritten(Exception):
    """TextLines of the revision were rewritten since. Each comes with its present number, if it has one."""

    def __init__(self, found: Sequence[tuple[int | None, bytes]]) -> None:
        super().__init__()
        self.found = [(number, line.decode(errors="replace")) for number, line in found]


def _undo(
    history: History,
    revision: RevisionId,
    change: _FileChange,
    later: Sequence[LaterChange],
    now: bytes | None,
) -> bytes | None:
    """Return the bytes of a file without a revision's change to it."""
    if not later and now == change.after:
        return change.before
    if any(b"\0" in (data or b"") for data in (change.before, change.after, now)):
        return _undo_whole(change, now)  # a binary file has no lines
    before, after, present = map(text_lines, (change.before, change.after, now))
    followed = follow(revision, before, after, _versions(history, later), present)
    if now is None and None not in (change.before, change.after):
        _check_undone(before, after, followed)
    lines = _undo_lines(before, after, present, followed)
    return _joined(lines, change, now)


def _versions(history: History, later: Sequence[LaterChange]) -> Iterator[LaterVersion]:
    """Read the later versions of a file, one at a time."""
    last_child = {parent: one.revision.id for one in later for parent in one.revision.parents}
    for one in later:
        reverted = one.revision.trailers.get("Reverted")
        yield LaterVersion(
            revision=one.revision.id,
            parents=one.revision.parents,
            lines=text_lines(history.read(one.blob) if one.blob else None),
            reverted=RevisionId(reverted) if reverted else None,
            is_restore="Restored" in one.revision.trailers,
            last_child_of=frozenset(
                parent for parent in one.revision.parents if last_child[parent] == one.revision.id
            ),
        )


def _check_undone(before: TextLines, after: TextLines, followed: FollowedLines) -> None:
    """Check that a file was deleted only after the revision had been undone. It may have been renamed."""
    for hunk in hunks(before, after):
        added = range(len(before) + hunk.new_start, len(before) + hunk.new_end)
        removed = range(hunk.old_start, hunk.old_end)
        if not (followed.taken_out.issuperset(added) and followed.put_back.issuperset(removed)):
            raise _Rewritten([(None, b"(the file was deleted)")])


def _undo_whole(change: _FileChange, now: bytes | None) -> bytes | None:
    if now not in (change.before, change.after):
        raise _Rewritten([(None, b"(the binary file was changed)")])
    return change.before


def _joined(lines: TextLines, change: _FileChange, now: bytes | None) -> bytes | None:
    if now is None and not lines:
        return None  # the revision deleted an empty file, or its file was deleted since
    if now == change.after and lines == text_lines(change.before):
        return change.before
    if change.before is None and not lines:
        return None  # the revision created the file, and nothing else is in it
    model = now or change.before or b"\n"
    # an empty last line is one only with its newline
    ending = b"\n" if model.endswith(b"\n") or not (lines and lines[-1]) else b""
    return b"\n".join(lines) + ending if lines else b""


def _undo_lines(
    before: TextLines, after: TextLines, now: TextLines, followed: FollowedLines
) -> list[bytes]:
    """Return the present lines without the revision's change.

    Raises: _Rewritten when a line of the revision was rewritten, or replaced one that was removed since."""
    replacing = [
        (i + 1, now[i]) for i, number in enumerate(followed.numbers) if number in followed.replacing
    ]
    if replacing:
        raise _Rewritten(replacing)
    state = _State(before, after, now, followed)
    taken: set[int] = set()
    returning: dict[int, int | None] = {}  # line before → the place of the line that replaced it
    for hunk in hunks(before, after):
        found = state.added_by(hunk)
        missing = state.missing_from(hunk)
        if missing and not found and state.has_lost_lines(hunk):
            lines = after[hunk.new_start : hunk.new_end]
            raise _Rewritten([(None, line) for line in lines])
        taken.update(found)
        returning |= dict.fromkeys(missing, min(found, default=None))
    return _rebuilt(before, now, state.places, taken, returning)


class _State:
    """The present lines, and where the lines of the revision are among them."""

    def __init__(
        self, before: TextLines, after: TextLines, now: TextLines, followed: FollowedLines
    ) -> None:
        self._before = before
        self._after = after
        self._followed = followed
        self._count_before = Counter(before)
        self._count_now = Counter(now)
        self._other = {
            line: i
            for i, line in enumerate(now)
            if followed.numbers[i] >= len(before) + len(after) and line.strip()
        }
        """TextLines that later revisions wrote, with their places."""
        self.places = {number: i for i, number in enumerate(followed.numbers)}

    def added_by(self, hunk: Hunk) -> list[int]:
        """Return the present places of the lines that the revision added here."""
        found = [
            self._place_of_added(j, self._after[j]) for j in range(hunk.new_start, hunk.new_end)
        ]
        return [place for place in found if place is not None]

    def missing_from(self, hunk: Hunk) -> list[int]:
        """Return the lines that the revision removed here and that nobody has put back."""
        return [
            i
            for i in range(hunk.old_start, hunk.old_end)
            if i not in self.places
            and i not in self._followed.put_back  # put back, and removed again later
        ]

    def has_lost_lines(self, hunk: Hunk) -> bool:
        """Return True if a line that the revision added here was removed, and not by a revert."""
        return any(
            self._after[j].strip() and len(self._before) + j not in self._followed.taken_out
            for j in range(hunk.new_start, hunk.new_end)
        )

    def _place_of_added(self, j: int, line: bytes) -> int | None:
        number = len(self._before) + j
        if number in self.places:
            return self.places[number]
        if number in self._followed.taken_out:
            return None
        # its trace is lost: exactly one line has these bytes, and there was none before the revision
        is_sure = self._count_now[line] == 1 and line not in self._count_before
        return self._other.get(line) if is_sure else None


def _rebuilt(
    before: TextLines,
    now: TextLines,
    places: Mapping[int, int],
    taken: set[int],
    returning: Mapping[int, int | None],
) -> list[bytes]:
    """Return the present lines without `taken` and with the `returning` ones of `before`."""
    # slot 2·i lies before the present line i, slot 2·i + 1 after it
    slots: dict[int, list[bytes]] = defaultdict(list)
    below = _slots_below(len(before), places, 2 * len(now))
    slot: int | None = None
    for i, line in enumerate(before):
        if i in places:
            slot = 2 * places[i] + 1
        elif i in returning:
            replaced = returning[i]
            if replaced is not None:
                slot = 2 * replaced
            elif slot is None:
                slot = below[i]
            slots[slot].append(line)
    lines: list[bytes] = []
    for i, line in enumerate(now):
        lines += slots[2 * i]
        if i not in taken:
            lines.append(line)
        lines += slots[2 * i + 1]
    return lines + slots[2 * len(now)]


def _slots_below(count: int, places: Mapping[int, int], end: int) -> list[int]:
    """Return for each line the slot before its nearest neighbour below that is still there, or the end."""
    slots: list[int] = []
    slot = end
    for i in reversed(range(count)):
        if i in places:
            slot = 2 * places[i]
        slots.append(slot)
    return slots[::-1]


def _read_at(history: History, revision: RevisionId | None, path: WorkspacePath) -> bytes | None:
    blob = history.find(revision, path)
    return history.read(blob) if blob else None
