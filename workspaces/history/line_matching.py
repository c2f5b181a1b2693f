"""Which lines two versions of a text share.

First what is equal at both ends, then lines that occur exactly once on both sides, in their longest
common order (they are what a reader would call "the same line"), and between them the same again.
Where nothing is unique, small gaps are compared in full and large ones count as rewritten: the time
stays near linear whatever an agent puts into a file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

COMPARISONS_MAX = 100_000
"""Of a gap without unique lines: some milliseconds."""

DEPTH_MAX = 64

_Range = tuple[int, int, int, int]
_Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Hunk:
    """`old[old_start:old_end]` became `new[new_start:new_end]`."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def split_lines(data: bytes) -> list[bytes]:
    """As git counts them: each with its newline, the last perhaps without."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def hunks(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Hunk]:
    """What changed, in order. What lies between two hunks is equal."""
    found: list[Hunk] = []
    old_at = new_at = 0
    for i, j in [*shared(old, new), (len(old), len(new))]:
        if i > old_at or j > new_at:
            found.append(Hunk(old_at, i, new_at, j))
        old_at, new_at = i + 1, j + 1
    return found


def shared(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[_Pair]:
    """Pairs of positions of equal lines, ascending on both sides."""
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
            pairs += _compared(old, new, gap)
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
    """Of pairs ascending on the first side, the most that ascend on the second too."""
    ends: list[int] = []  # smallest second side that ends a run of this length …
    last: list[int] = []  # … and which pair that is
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


def _compared(old: Sequence[Hashable], new: Sequence[Hashable], gap: _Range) -> list[_Pair]:
    a, a_end, b, b_end = gap
    if (a_end - a) * (b_end - b) > COMPARISONS_MAX:
        return []
    matcher = SequenceMatcher(None, old[a:a_end], new[b:b_end], autojunk=False)
    return [
        (a + block.a + k, b + block.b + k)
        for block in matcher.get_matching_blocks()
        for k in range(block.size)
    ]
