"""Merge two versions of a text with their common base, by kind of file.

    base ──► ours
      └────► theirs          merged = base + our changes + their changes

If only one side changed a part, its change is taken. If both changed the same lines, **the new lines of
both sides are kept**, ours first. Memory is a list of statements. One statement too many is a nuisance, but
one statement lost is a loss. A line that one side removed and the other left alone is removed. A line that
one side removed and the other rewrote stays as rewritten.

The kind of file decides how far the merge goes:

    Markdown                        front matter key by key, the rest by lines
    other lines (text, logs, csv)   by lines
    other text (code, JSON, YAML)   by lines if the two changes do not touch; else not at all, because both
                                    sides' lines in sequence would be neither side's program
    decisions/                      never: they are never rewritten
    no text, or lines so long
    that "line" means nothing       never

If both sides changed a key differently, the later side's value is taken, and the key is reported. The
caller keeps two files if they cannot be merged.

This is written here and not taken from a library. The well-kept library (merge3) is GPL. Git's own merge
works on files and marks conflicts instead of keeping both sides. The whole idea fits on two screens.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from workspaces.history.line_matching import hunks
from workspaces.paths import WorkspacePath

LINE_CHARACTERS_MAX = 10_000
"""Longest line of a text. A longer line is data, not prose: a change anywhere in it would conflict with every
other change."""

LINES_MAX = 20_000
"""Most differing lines of one side, without the lines that both begin and end with. More lines than that are
data."""

MARKDOWN = (".md", ".markdown")
LINES = (*MARKDOWN, ".txt", ".log", ".csv", ".tsv", ".jsonl", ".rst", ".org")

Side = Literal["ours", "theirs"]

_KEY = re.compile(r"[^\s#:-][^:]*:(\s|$)")
_FENCE = "---"


@dataclass(frozen=True, slots=True)
class MergeResult:
    data: bytes
    overlaps: int = 0
    """Number of places where both sides changed the same lines, and the lines of both were kept."""
    clashes: tuple[str, ...] = ()
    """Keys of the front matter that both sides changed. The later side's value is in the result."""

    @property
    def is_clean(self) -> bool:
        return not self.overlaps and not self.clashes


def merge(
    path: WorkspacePath, base: bytes | None, ours: bytes, theirs: bytes, *, later: Side = "ours"
) -> MergeResult | None:
    """Return both sides' changes merged, or None if this kind of file cannot be merged. `base` None: there
    was no file."""
    if ours == theirs or theirs == base:
        return MergeResult(ours)
    if ours == base:
        return MergeResult(theirs)
    texts = [_text(data) for data in (base or b"", ours, theirs)]
    if path.startswith("decisions/") or any(text is None for text in texts):
        return None
    kind = path.name.lower()
    documents = [_Document.of(text or "", has_front=kind.endswith(MARKDOWN)) for text in texts]
    front, clashes = _merge_front([document.front for document in documents], later)
    body = _merge_lines(*(document.body for document in documents))
    if body is None:
        return None
    lines, overlaps = body
    if overlaps and not kind.endswith(LINES):
        return None
    return MergeResult("\n".join([*front, *lines]).encode(), overlaps, clashes)


@dataclass(frozen=True, slots=True)
class _Document:
    front: dict[str, list[str]]
    """Key → its lines. The two fences have the keys `` and `---`."""
    body: list[str]

    @classmethod
    def of(cls, text: str, *, has_front: bool) -> _Document:
        lines = text.split("\n")
        if not has_front or lines[0] != _FENCE or _FENCE not in lines[1:]:
            return cls({}, lines)
        end = lines.index(_FENCE, 1)
        front: dict[str, list[str]] = {"": [_FENCE]}
        key = ""
        for line in lines[1:end]:
            if _KEY.match(line):
                key = line.partition(":")[0]
            front.setdefault(key, []).append(line)
        front[_FENCE] = [_FENCE]
        return cls(front, lines[end + 1 :])


def _merge_front(
    fronts: Sequence[dict[str, list[str]]], later: Side
) -> tuple[list[str], tuple[str, ...]]:
    """Merge the front matter key by key. A front matter that one side removed stays removed, unless the other
    side changed something in it."""
    base, ours, theirs = fronts
    order = [key for key in {**ours, **theirs} if key != _FENCE]
    lines: list[str] = []
    clashes: list[str] = []
    for key in order:
        before, mine, other = base.get(key), ours.get(key), theirs.get(key)
        if mine == other or other == before:  # both made the same change, or only ours changed it
            chosen = mine
        elif mine == before:  # only theirs changed it
            chosen = other
        else:  # both changed it differently
            clashes.append(key)
            chosen = mine if later == "ours" else other
        lines += chosen or []
    if lines and lines[0] != _FENCE:
        lines.insert(0, _FENCE)
    return ([*lines, _FENCE] if lines else []), tuple(clashes)


def _merge_lines(
    base: list[str], ours: list[str], theirs: list[str]
) -> tuple[list[str], int] | None:
    mine, other = _changes(base, ours), _changes(base, theirs)
    if mine is None or other is None:
        return None
    merged: list[str] = []
    overlaps = 0
    position = 0
    for begin, end in _regions(mine + other):
        merged += base[position:begin]
        before = base[begin:end]
        left, right = _apply(base, mine, begin, end), _apply(base, other, begin, end)
        if left == right or right == before:  # both made the same change, or only ours changed it
            merged += left
        elif left == before:  # only theirs changed it
            merged += right
        else:  # both changed it: keep the lines of both
            overlaps += 1
            merged += left + _unknown_lines(Counter(left) | Counter(before), right)
        position = end
    return merged + base[position:], overlaps


def _unknown_lines(known: Counter[str], lines: list[str]) -> list[str]:
    """Return the lines that are not among the known ones, each as often as it occurs beyond the known
    count."""
    unknown: list[str] = []
    for line in lines:
        if known[line] > 0:
            known[line] -= 1
        else:
            unknown.append(line)
    return unknown


@dataclass(frozen=True, slots=True, order=True)
class _Change:
    """A change of one side: `base[begin:end]` became `lines`."""

    begin: int
    end: int
    lines: tuple[str, ...]


def _changes(base: list[str], side: list[str]) -> list[_Change] | None:
    head = _common_prefix(base, side)
    tail = _common_prefix(base[head:][::-1], side[head:][::-1])
    if max(len(base), len(side)) - head - tail > LINES_MAX:
        return None
    return [
        _Change(hunk.old_start, hunk.old_end, tuple(side[hunk.new_start : hunk.new_end]))
        for hunk in hunks(base, side)
    ]


def _regions(changes: list[_Change]) -> list[tuple[int, int]]:
    """Return the stretches of the base that either side changed. Changes that meet form one stretch. Two
    insertions at one place meet, and so does an insertion at the edge of a change."""
    regions: list[tuple[int, int]] = []
    for change in sorted(changes):
        if regions and _meets(regions[-1], change):
            regions[-1] = (regions[-1][0], max(regions[-1][1], change.end))
        else:
            regions.append((change.begin, change.end))
    return regions


def _meets(region: tuple[int, int], change: _Change) -> bool:
    if change.begin == change.end or region[0] == region[1]:
        return change.begin <= region[1]
    return change.begin < region[1]


def _apply(base: list[str], changes: list[_Change], begin: int, end: int) -> list[str]:
    """Return `base[begin:end]` with one side's changes made."""
    lines: list[str] = []
    position = begin
    for change in islice(changes, bisect_left(changes, begin, key=_begin), None):
        if change.begin > end:
            break
        if change.end <= end:
            lines += [*base[position : change.begin], *change.lines]
            position = change.end
    return lines + base[position:end]


def _begin(change: _Change) -> int:
    return change.begin


def _common_prefix(one: list[str], other: list[str]) -> int:
    """Return the number of lines that both begin with."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if "\0" in text or any(len(line) > LINE_CHARACTERS_MAX for line in text.split("\n")):
        return None
    return text
