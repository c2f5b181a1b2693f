"""Follow the lines of one revision through the later revisions of a file.

Each line gets a number when it is first seen. A later revision keeps the number of a line that it leaves
alone, and of a line that it moves. A revert and a restore give a line that they put back its number again.
So a line is known by where it came from, not by its place or its bytes.

A later revision may also write new lines in place of a line that the revision changed. Their numbers are
noted: whoever undoes the first change would have to guess what becomes of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from workspaces.history.line_matching import Hunk, hunks
from workspaces.revision import RevisionId

_NEW: Final = -1
"""A line that this parent does not explain. Another parent of a merge may."""

TextLines = Sequence[bytes]
Numbers = list[int]
_Pool = dict[bytes, deque[int]]


@dataclass(frozen=True, slots=True)
class LaterVersion:
    """A later revision of the file: its parents, as far as they changed the file, and its lines."""

    revision: RevisionId
    parents: tuple[RevisionId, ...]
    lines: TextLines
    reverted: RevisionId | None = None
    """The revision that this one reverts."""
    is_restore: bool = False
    last_child_of: frozenset[RevisionId] = frozenset()
    """Parents on which no later version builds: their lines need not be kept."""


@dataclass(frozen=True, slots=True)
class FollowedLines:
    """The numbers of the present lines, and what became of the lines that are not there.

    Line i of the file before the revision has number i. A line j that the revision added has number
    `len(before) + j`. TextLines of later revisions have higher numbers.
    """

    numbers: Numbers
    replacing: set[int]
    """Numbers of lines that were written in place of a line that the revision added or removed."""
    taken_out: set[int]
    """Numbers of lines that a revert took out."""
    put_back: set[int]
    """Numbers of lines that were put back after they had been removed, and that no revert took out again."""


def text_lines(data: bytes | None) -> list[bytes]:
    """Split into lines without their newlines. A file without a newline at its end has the same lines."""
    lines = (data or b"").split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def follow(
    revision: RevisionId,
    before: TextLines,
    after: TextLines,
    later: Iterable[LaterVersion],
    now: TextLines,
) -> FollowedLines:
    """Follow the lines of a revision to the present lines. `later` goes from parents to children."""
    walk = _Walk(revision, before, after)
    newest = revision
    for version in later:
        walk.step(version)
        newest = version.revision
    # the present file may hold an edit that no revision holds yet
    present = LaterVersion(RevisionId("present"), (newest,), now)
    return FollowedLines(walk.step(present), walk.replacing, walk.taken_out, walk.put_back)


class _Walk:
    """The versions met so far, with the numbers of their lines."""

    def __init__(self, revision: RevisionId, before: TextLines, after: TextLines) -> None:
        self.replacing: set[int] = set()
        self.taken_out: set[int] = set()
        self.put_back: set[int] = set()
        numbers = [len(before) + j for j in range(len(after))]
        _carry_over(hunks(before, after), range(len(before)), numbers)
        kept = set(numbers)
        removed = {i: before[i] for i in range(len(before)) if i not in kept}
        added = {number for number in numbers if number >= len(before)}
        self._oldest = set(range(len(before)))
        """The lines of all earlier revisions."""
        self._fresh = count(len(before) + len(after))
        self._changed = removed.keys() | added
        self._former = _pool((line, number) for number, line in removed.items())
        """The lines that the revision removed."""
        self._versions = {revision: (after, numbers)}
        self._added = {revision: added}
        self._removed = {revision: self._former}
        self._absent = removed
        """The lines that any revision removed, by their number. Some may be there again."""

    def step(self, version: LaterVersion) -> Numbers:
        """Return the numbers of the lines of a later version. Its parents were met before."""
        known = [self._versions[of] for of in version.parents if of in self._versions]
        numbers, replacing = [_NEW] * len(version.lines), set[int]()
        for lines, old_numbers in known:
            found, in_place = self._carry(lines, old_numbers, version)
            numbers = list(map(_older, numbers, found))
            replacing |= in_place
        for j, number in enumerate(numbers):
            if number == _NEW:
                numbers[j] = next(self._fresh)
                if j in replacing:
                    self.replacing.add(numbers[j])
        for _, old_numbers in known:
            added = set(numbers).difference(old_numbers)
            self._added[version.revision] = added & self._added.get(version.revision, added)
        self._versions[version.revision] = (version.lines, numbers)
        for parent in version.last_child_of:
            self._versions.pop(parent, None)
        return numbers

    def _carry(
        self, old: TextLines, old_numbers: Numbers, version: LaterVersion
    ) -> tuple[Numbers, set[int]]:
        """Return the numbers that a parent gives to the lines of a version, and the places of those that
        replace changed lines."""
        new, changes = version.lines, hunks(old, version.lines)
        numbers = [_NEW] * len(new)
        _carry_over(changes, old_numbers, numbers)
        removed = _pool((old[i], old_numbers[i]) for hunk in changes for i in _old_range(hunk))
        pool = self._pool_of(version, old_numbers)
        for j in (j for hunk in changes for j in _new_range(hunk)):
            numbers[j] = self._number_again(new[j], removed, pool)
        self._prefer_reverted(version, removed, old_numbers, numbers)
        gone = {number for left in removed.values() for number in left}
        replacing: set[int] = set()
        for hunk in changes:
            if self._is_replaced(hunk, old, old_numbers, gone):
                for j in _new_range(hunk):
                    if numbers[j] == _NEW and new[j].strip():
                        # the former line may have been typed again
                        numbers[j] = self._number_again(new[j], {}, self._former)
                        replacing.add(j)
        self._removed.setdefault(version.revision, removed)
        self._absent.update((number, line) for line, left in removed.items() for number in left)
        if version.reverted is not None:
            self.taken_out |= gone
            self.put_back -= gone
        return numbers, replacing

    def _pool_of(self, version: LaterVersion, present: Numbers) -> _Pool:
        """Return the lines that a revision may put back. Only a revert and a restore do so."""
        if version.reverted is not None:
            return self._removed.get(version.reverted, {})
        if version.is_restore:
            there = set(present)
            return _pool((line, n) for n, line in self._absent.items() if n not in there)
        return {}

    def _number_again(self, line: bytes, removed: _Pool, pool: _Pool) -> int:
        """Return the number of a line that was moved or put back, or `_NEW`."""
        if line.strip() and removed.get(line):  # one empty line is like any other: it does not move
            return removed[line].popleft()
        if pool.get(line):
            number = pool[line].popleft()
            self.put_back.add(number)
            self.taken_out.discard(number)
            return number
        return _NEW

    def _prefer_reverted(
        self, version: LaterVersion, removed: _Pool, old_numbers: Numbers, numbers: Numbers
    ) -> None:
        """Let a revert take out the lines of the revision that it reverts. Of several equal lines the
        comparison may have found another one missing: then the nearest one takes its place."""
        if version.reverted is None or not removed:
            return
        wanted = self._added.get(version.reverted, self._oldest)
        place_of = {number: i for i, number in enumerate(old_numbers)}
        kept: dict[bytes, list[tuple[int, int]]] = defaultdict(list)  # former and present place
        for j, number in enumerate(numbers):
            if number in wanted and version.lines[j] in removed and number in place_of:
                kept[version.lines[j]].append((place_of[number], j))
        for line, left in removed.items():
            candidates = sorted(kept[line])
            for k, number in enumerate(left):
                if number in wanted or not candidates:
                    continue
                at = bisect_left(candidates, (place_of[number],))
                _, j = candidates.pop(max(at - 1, 0))
                left[k], numbers[j] = numbers[j], number

    def _is_replaced(self, hunk: Hunk, old: TextLines, numbers: Numbers, gone: set[int]) -> bool:
        """Return True if the new lines of a hunk stand in place of a line that the revision changed."""
        return any(
            numbers[i] in gone and (numbers[i] in self._changed or numbers[i] in self.replacing)
            for i in _old_range(hunk)
            if old[i].strip()
        )


def _older(one: int, other: int) -> int:
    """Return the number that a line has in a merge. A line that one parent explains has its number there; of
    two numbers the older counts, because a branch that began before the revision numbers old lines anew."""
    return max(one, other) if _NEW in (one, other) else min(one, other)


def _carry_over(changes: Sequence[Hunk], old: Sequence[int], new: Numbers) -> None:
    """Give the lines between the hunks the numbers that they had."""
    old_at = new_at = 0
    for hunk in changes:
        new[new_at : hunk.new_start] = old[old_at : hunk.old_start]
        old_at, new_at = hunk.old_end, hunk.new_end
    new[new_at:] = old[old_at:]


def _old_range(hunk: Hunk) -> range:
    return range(hunk.old_start, hunk.old_end)


def _new_range(hunk: Hunk) -> range:
    return range(hunk.new_start, hunk.new_end)


def _pool(lines: Iterable[tuple[bytes, int]]) -> _Pool:
    pool: _Pool = defaultdict(deque)
    for line, number in lines:
        pool[line].append(number)
    return dict(pool)
