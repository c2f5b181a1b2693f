"""Find the lines that two versions of a text share (a patience diff).

Equal lines at both ends match first. Then lines match that occur exactly once on both sides, in their
longest common order: a reader would call them "the same line". The gaps between them are matched in the
same way. In a gap without unique lines, a small gap is compared in full and a large one counts as
rewritten. So the time stays near linear, whatever an agent puts into a file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

COMPARISONS_MAX = 100_000
"""Line pairs that a gap without unique lines may have to be compared in full: some milliseconds."""

DEPTH_MAX = 64

BLOCK_LINES = 64
"""Lines compared in one step. Most versions of a file differ in one place only."""

_Range = tuple[int, int, int, int]
_Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Hunk:
    """A change: `old[old_start:old_end]` became `new[new_start:new_end]`."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def split_lines(data: bytes) -> list[bytes]:
    """Split into lines as git counts them: each keeps its newline, the last may have none."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def hunks(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Hunk]:
    """Return the changes from `old` to `new`, in order. The lines between two hunks are equal."""
    old, new = list(old), list(new)
    start = _common_start(old, new)
    rest = min(len(old), len(new)) - start
    end = _common_start(old[::-1][:rest], new[::-1][:rest])
    middle = shared(old[start : len(old) - end], new[start : len(new) - end])
    changes: list[Hunk] = []
    old_at = new_at = start
    pairs = ((start + i, start + j) for i, j in middle)
    for i, j in [*pairs, (len(old) - end, len(new) - end)]:
        if i > old_at or j > new_at:
            changes.append(Hunk(old_at, i, new_at, j))
        old_at, new_at = i + 1, j + 1
    return changes


def _common_start(one: list[Hashable], other: list[Hashable]) -> int:
    """Return the number of equal lines that both begin with. Whole blocks are compared at once."""
    at, size = 0, min(len(one), len(other))
    while at < size and one[at : at + BLOCK_LINES] == other[at : at + BLOCK_LINES]:
        at += BLOCK_LINES
    at = min(at, size)
    while at < size and one[at] == other[at]:
        at += 1
    return at


def shared(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[_Pair]:
    """Return pairs of positions of equal lines, ascending on both sides."""
    pairs: list[_Pair] = []
    ranges: list[tuple[_Range, int]] = [((0, len(old), 0, len(new)), 0)]
    while ranges:
        (a, a_end, b, b_end), depth = ranges.pop()
        while a < a_end and b < b_end and old[a] == new[b]:
            pairs.append((a, b))
            a, b = a + 1, b + 1
        while a < a_end and b < b_end and old[a_end - 1] == new[b_end - 1]:
            a_end, b_end = a_end - 1, b_end - 1
            pairs.append((a_end, b_end))
        if a == a_end or b == b_end:
            continue
        gap = (a, a_end, b, b_end)
        anchors = _anchors(old, new, gap) if depth < DEPTH_MAX else []
        if not anchors:
            pairs += _compare_fully(old, new, gap)
            continue
        pairs += anchors
        for i, j in [*anchors, (a_end, b_end)]:
            ranges.append(((a, i, b, j), depth + 1))
            a, b = i + 1, j + 1
    return sorted(pairs)


def _anchors(old: Sequence[Hashable], new: Sequence[Hashable], gap: _Range) -> list[_Pair]:
    a, a_end, b, b_end = gap
    old_count, new_count = Counter(old[a:a_end]), Counter(new[b:b_end])
    where = {new[j]: j for j in range(b, b_end) if new_count[new[j]] == 1}
    unique = [
        (i, where[old[i]]) for i in range(a, a_end) if old_count[old[i]] == 1 and old[i] in where
    ]
    return _longest_ascending(unique)


def _longest_ascending(pairs: list[_Pair]) -> list[_Pair]:
    """Return the longest run that also ascends on the second side. `pairs` ascends on the first side."""
    ends: list[int] = []  # smallest second side that ends a run of this length
    last: list[int] = []  # number of the pair with that second side
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        length = bisect_left(ends, j)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [j]
        last[length : length + 1] = [number]
    chosen: list[_Pair] = []
    number = last[-1] if last else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = before[number]
    return chosen[::-1]


def _compare_fully(old: Sequence[Hashable], new: Sequence[Hashable], gap: _Range) -> list[_Pair]:
    a, a_end, b, b_end = gap
    if (a_end - a) * (b_end - b) > COMPARISONS_MAX:
        return []
    matcher = SequenceMatcher(None, old[a:a_end], new[b:b_end], autojunk=False)
    return [
        (a + block.a + k, b + block.b + k)
        for block in matcher.get_matching_blocks()
        for k in range(block.size)
    ]
