"""Find merge marks: places where a merge put both sides' lines next to each other, for a person to check.

A merge keeps the lines of both sides, and for one key of a front matter the later value. Nothing is lost,
but two lines may now contradict each other. So a revision that merged files names those with such places
in a trailer. The lines of each side are read from its two parents:

    Merged: MEMORY.md: 2 places | facts/tea.md: keys value, tags

A revision that merged two lines of history is the same on every machine and has no such trailer. For it,
files that both lines changed since they parted are merged once more to find the places.

A mark is open until the file is changed again. If one merge has more files than the trailer has room for,
the trailer ends with the number of the others. `harness sync` names them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from workspaces.errors import Failure, Refused
from workspaces.history.history import History
from workspaces.history.line_matching import hunks
from workspaces.paths import WorkspacePath
from workspaces.revision import FIELD_CHARACTERS_MAX, RevisionId
from workspaces.tree.merge import merge

TRAILER = "Merged"

REVISIONS_MAX = 200
"""Most revisions searched for merges. Older ones have been seen by a person."""

LINES_MAX = 5_000
"""Longest file in lines. A longer file is named, but its places are not searched for."""

_BETWEEN, _OF = " | ", ": "
"""Separators in the trailer. A path contains neither."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Neighbouring lines, as the two sides wrote them."""

    one: tuple[str, ...]
    other: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MergeMark:
    path: WorkspacePath
    revision: RevisionId
    """The revision that merged the file."""
    summary: str
    """The number of places, and the names of the keys."""
    pairs: tuple[Pair, ...] = ()


def describe_merge(overlaps: int, clashes: Sequence[str]) -> str:
    """Return the text that a revision's trailer has for a merged file. It is empty if the two sides' changes
    do not meet."""
    places = f"{overlaps} {'place' if overlaps == 1 else 'places'}" if overlaps else ""
    keys = f"keys {', '.join(clashes)}" if clashes else ""
    return ", ".join(filter(None, (places, keys)))


def trailer_of(merged: Mapping[WorkspacePath, str]) -> str:
    """Return the trailer for merged files, with as many of them as it has room for."""
    entries: list[str] = []
    characters_left = FIELD_CHARACTERS_MAX - len("and 10000 more")
    for path, summary in merged.items():
        entry = f"{path}{_OF}{summary}"
        characters_left -= len(entry) + len(_BETWEEN)
        if characters_left < 0:
            entries.append(f"and {len(merged) - len(entries)} more")
            break
        entries.append(entry)
    return _BETWEEN.join(entries)


def marks_since(history: History, newest: RevisionId, known: RevisionId | None) -> list[MergeMark]:
    """Return the marks of the revisions after `known` up to `newest`, newest first."""
    commit = history.commit(newest)
    for _ in range(REVISIONS_MAX):
        if commit.id == known:
            return []
        if len(commit.parents) != 1:  # a merge of two lines of history
            break
        commit = history.commit(commit.parents[0])
    revisions = history.log(start=newest, since=known, limit=REVISIONS_MAX)
    return [mark for one in revisions for mark in marks_of(history, one.id, one.trailers)]


def open_marks(
    history: History, merges: Iterable[tuple[RevisionId, Mapping[str, str]]]
) -> list[MergeMark]:
    """Return the marks of these revisions whose files have not changed since the merge."""
    tip = history.tip()
    return [
        mark
        for revision, trailers in merges
        for mark in marks_of(history, revision, trailers)
        if history.find(tip, mark.path) == history.find(revision, mark.path)
    ]


def marks_of(
    history: History, revision: RevisionId, trailers: Mapping[str, str]
) -> list[MergeMark]:
    """Return the marks of one revision. The revision beside a merge, by the same author, has none: it merged
    nothing."""
    if len(history.commit(revision).parents) < 2:
        return []
    if TRAILER not in trailers:
        return _marks_between(history, revision)
    marks: list[MergeMark] = []
    for entry in trailers[TRAILER].split(_BETWEEN):
        path, colon, summary = entry.partition(_OF)
        if colon:
            try:
                name = WorkspacePath(path)
                marks.append(MergeMark(name, revision, summary, _pairs_of(history, revision, name)))
            except Refused:  # not written by us: not a path
                continue
    return marks


def pairs(one: str, other: str, merged: str) -> tuple[Pair, ...]:
    """Return neighbouring lines of which each is new to one of the sides."""
    lines = merged.splitlines()
    if max(len(lines), one.count("\n"), other.count("\n")) > LINES_MAX:
        return ()
    new_to_one, new_to_other = _new(one.splitlines(), lines), _new(other.splitlines(), lines)
    neighbours: list[Pair] = []
    ours: list[str] = []
    theirs: list[str] = []
    for number, line in enumerate([*lines, None]):
        is_ours, is_theirs = number in new_to_other, number in new_to_one
        if line is not None and is_ours != is_theirs:
            (ours if is_ours else theirs).append(line)
            continue
        if ours and theirs:
            neighbours.append(Pair(tuple(ours), tuple(theirs)))
        ours, theirs = [], []
    return tuple(neighbours)


def _marks_between(history: History, revision: RevisionId) -> list[MergeMark]:
    parents = history.commit(revision).parents
    fork = history.fork(*parents)
    left, right = (history.differences(parent, revision) for parent in parents)
    marks: list[MergeMark] = []
    for path in sorted(left.keys() | right.keys()):
        merged = (left.get(path) or right[path])[1]
        one, other = (side[path][0] if path in side else merged for side in (left, right))
        base = history.find(fork, path)
        if one is None or other is None or base in {one, other}:
            continue  # only one of them had changed it, or one had deleted it
        read = (
            None if base is None else history.read(base),
            history.read(one),
            history.read(other),
        )
        merge_result = merge(path, *read)
        if merge_result is not None and not merge_result.is_clean:
            summary = describe_merge(merge_result.overlaps, merge_result.clashes)
            marks.append(MergeMark(path, revision, summary, _pairs_of(history, revision, path)))
    return marks


def _pairs_of(history: History, revision: RevisionId, path: WorkspacePath) -> tuple[Pair, ...]:
    """Return the pairs of a file. Return none if a version cannot be read: the file is still named as
    merged."""
    try:
        parents = history.commit(revision).parents
        texts = [
            history.read(blob).decode(errors="replace")
            for one in (*parents, revision)
            if (blob := history.find(one, path)) is not None
        ]
    except Failure:
        return ()
    return pairs(texts[0], texts[1], texts[2]) if len(texts) == 3 else ()


def _new(before: list[str], after: list[str]) -> set[int]:
    """Return the numbers of the lines in `after` that are not from `before`."""
    return {
        number for hunk in hunks(before, after) for number in range(hunk.new_start, hunk.new_end)
    }
