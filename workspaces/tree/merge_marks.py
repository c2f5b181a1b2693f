"""Seams: where sync put side by side what two sides had made of one place, for somebody to look at.

A merge keeps the lines of both sides, and of one key of a front matter the later value. Nothing is lost by
it, but two lines may now contradict each other. So a revision that merged files says in a trailer which have
such places, and what stood on each side is read from its two parents:

    Merged: MEMORY.md: 2 places | facts/tea.md: keys value, tags

One that merged two lines of history is the same on every machine and says nothing of its own: there what
both had changed since the lines had parted is merged once more.

A seam is open until somebody changes the file again. Where more files were merged at once than the trailer
has room for, it ends with how many more there are; `harness sync` names them all.
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
"""Looked through for merges: what is older than so many revisions was seen by somebody."""

LINES_MAX = 5_000
"""Of a file: a longer one is named, and its places are not looked for."""

_BETWEEN, _OF = " | ", ": "
"""A path holds neither."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Lines that stand side by side, as the two sides wrote them."""

    one: tuple[str, ...]
    other: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MergeMark:
    path: WorkspacePath
    revision: RevisionId
    """The merge."""
    told: str
    """How many places, which keys."""
    pairs: tuple[Pair, ...] = ()


def told_of(overlaps: int, clashes: Sequence[str]) -> str:
    """What a revision says of a merge; nothing of one whose sides did not meet."""
    places = f"{overlaps} {'place' if overlaps == 1 else 'places'}" if overlaps else ""
    keys = f"keys {', '.join(clashes)}" if clashes else ""
    return ", ".join(filter(None, (places, keys)))


def trailer_of(merged: Mapping[WorkspacePath, str]) -> str:
    """As many as there is room for."""
    kept: list[str] = []
    room = FIELD_CHARACTERS_MAX - len("and 10000 more")
    for path, told in merged.items():
        entry = f"{path}{_OF}{told}"
        room -= len(entry) + len(_BETWEEN)
        if room < 0:
            kept.append(f"and {len(merged) - len(kept)} more")
            break
        kept.append(entry)
    return _BETWEEN.join(kept)


def marks_since(history: History, newest: RevisionId, known: RevisionId | None) -> list[MergeMark]:
    """Those of the revisions that `newest` has grown from since `known`, newest first."""
    line = history.commit(newest)
    for _ in range(REVISIONS_MAX):
        if line.id == known:
            return []
        if len(line.parents) != 1:  # another line comes in here
            break
        line = history.commit(line.parents[0])
    grown = history.log(start=newest, since=known, limit=REVISIONS_MAX)
    return [seam for one in grown for seam in marks_of(history, one.id, one.trailers)]


def open_marks(
    history: History, merges: Iterable[tuple[RevisionId, Mapping[str, str]]]
) -> list[MergeMark]:
    """Those in these revisions whose files are still as the merge left them."""
    tip = history.tip()
    return [
        seam
        for revision, trailers in merges
        for seam in marks_of(history, revision, trailers)
        if history.find(tip, seam.path) == history.find(revision, seam.path)
    ]


def marks_of(
    history: History, revision: RevisionId, trailers: Mapping[str, str]
) -> list[MergeMark]:
    """None of the revision beside a merge, which is by the same author: it has merged nothing."""
    if len(history.commit(revision).parents) < 2:
        return []
    if TRAILER not in trailers:
        return _seams_between(history, revision)
    found: list[MergeMark] = []
    for entry in trailers[TRAILER].split(_BETWEEN):
        path, colon, told = entry.partition(_OF)
        if colon:
            try:
                name = WorkspacePath(path)
                found.append(MergeMark(name, revision, told, _pairs_of(history, revision, name)))
            except Refused:  # no words of ours
                continue
    return found


def pairs(one: str, other: str, merged: str) -> tuple[Pair, ...]:
    """Neighbouring lines of which each is new to one of the sides."""
    lines = merged.splitlines()
    if max(len(lines), one.count("\n"), other.count("\n")) > LINES_MAX:
        return ()
    new_to_one, new_to_other = _new(one.splitlines(), lines), _new(other.splitlines(), lines)
    found: list[Pair] = []
    ours: list[str] = []
    theirs: list[str] = []
    for number, line in enumerate([*lines, None]):
        is_ours, is_theirs = number in new_to_other, number in new_to_one
        if line is not None and is_ours != is_theirs:
            (ours if is_ours else theirs).append(line)
            continue
        if ours and theirs:
            found.append(Pair(tuple(ours), tuple(theirs)))
        ours, theirs = [], []
    return tuple(found)


def _seams_between(history: History, revision: RevisionId) -> list[MergeMark]:
    parents = history.commit(revision).parents
    fork = history.fork(*parents)
    left, right = (history.differences(parent, revision) for parent in parents)
    found: list[MergeMark] = []
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
        again = merge(path, *read)
        if again is not None and not again.is_clean:
            told = told_of(again.overlaps, again.clashes)
            found.append(MergeMark(path, revision, told, _pairs_of(history, revision, path)))
    return found


def _pairs_of(history: History, revision: RevisionId, path: WorkspacePath) -> tuple[Pair, ...]:
    """None where a version cannot be read: the place is named all the same."""
    try:
        parents = history.commit(revision).parents
        texts = [
            history.read(found).decode(errors="replace")
            for one in (*parents, revision)
            if (found := history.find(one, path)) is not None
        ]
    except Failure:
        return ()
    return pairs(texts[0], texts[1], texts[2]) if len(texts) == 3 else ()


def _new(before: list[str], after: list[str]) -> set[int]:
    """The numbers of the lines in `after` that are not from `before`."""
    return {
        number for hunk in hunks(before, after) for number in range(hunk.new_start, hunk.new_end)
    }
