"""Deltas: how a conversation is told that memory, or the date, is not what its snapshot shows.

A delta says what changed in the *rendered* part, line by line, and is small where the change is. What
the model has before its eyes is then the snapshot's part with every delta applied; the next delta begins
from there, so only what is kept here is ever needed, never the file as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import SequenceMatcher
from functools import partial

from harness.context.fence import fenced, one_line
from harness.context.part import PromptPart, Render
from harness.context.prompt import date_text
from workspaces.revision import RevisionId
from workspaces.storage.records import JsonObject
from workspaces.tree.merge_marks import MergeMark

COMPARED_MAX = 4_000_000
"""Pairs of lines that differ at both ends of a change: 2 000 lines on each side, some tenths of a second.
Beyond, all of it counts as rewritten, which is more than a delta may tell."""

BEARING_CHARACTERS_MAX = 80
"""Of the line that is shown to say where a change is."""


SEAMS_MAX = 10
SEAM_LINES_MAX = 12
"""Of each side, in all places together: enough to see what it is about; the files hold all of it."""

SEAM_CHARACTERS_MAX = 200

Seams = Mapping[str, Sequence[MergeMark]]
"""By the source of a part: where sync has merged, since that part was shown."""


@dataclass(frozen=True, slots=True)
class ChangedLines:
    """Lines `start` to before `end` became these."""

    start: int
    end: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartChange:
    source: str
    text: str
    """How it is told."""
    revision: RevisionId | None = None
    """What the part was read from now; None when it is gone."""
    hunks: tuple[ChangedLines, ...] = ()
    lines_left_out: int = 0
    unavailable: str | None = None
    """Why the part could not be read now; then nothing else is known of it."""


@dataclass(frozen=True, slots=True)
class Delta:
    entry: int
    """The number of the message that it stands beside."""
    changes: tuple[PartChange, ...]
    day: date | None = None
    """The new one, when another day has begun."""
    day_text: str = ""

    @property
    def text(self) -> str:
        told = [change.text for change in self.changes]
        return "\n\n".join([*told, self.day_text] if self.day_text else told)

    def as_json(self) -> JsonObject:
        day = {"day": self.day.isoformat(), "dayText": self.day_text} if self.day else {}
        changes = [_change_json(one) for one in self.changes]
        return {"entry": self.entry, **day, **({"changes": changes} if changes else {})}


def delta_of(data: JsonObject) -> Delta:
    day = data.get("day")
    changes = tuple(_change_of(one) for one in data.get("changes", ()))
    if day is None:
        return Delta(data["entry"], changes)
    return Delta(data["entry"], changes, date.fromisoformat(day), data["dayText"])


def delta(
    entry: int,
    shown: Sequence[PromptPart],
    now: Sequence[PromptPart],
    day: date | None,
    render: Render,
    seams: Seams | None = None,
) -> Delta | None:
    """What is told beside message `entry` to whoever has `shown` before their eyes, so that they know
    what `now` holds; None when nothing is different. `day` is another day that has begun."""
    merged = seams or {}
    before = {part.source: part for part in shown if part.is_memory}
    after = {part.source: part for part in now if part.is_memory}
    sources = [*after, *(source for source in before if source not in after)]
    found = (
        _change(one, before.get(one), after.get(one), render, merged.get(one, ()))
        for one in sources
    )
    changes = tuple(change for change in found if change is not None)
    if day is not None:
        return Delta(entry, changes, day, date_text(day, render))
    return Delta(entry, changes) if changes else None


def with_deltas(parts: Sequence[PromptPart], deltas: Iterable[Delta]) -> tuple[PromptPart, ...]:
    """What the model has before its eyes."""
    shown = {part.source: part for part in parts}
    for change in (change for delta in deltas for change in delta.changes):
        old = shown.get(change.source)
        if change.unavailable is not None:
            text = old.text if old else ""
            shown[change.source] = PromptPart(
                change.source, False, text, unavailable=change.unavailable
            )
            continue
        lines = applied(_lines(old), change.hunks)
        if lines:
            left_out = change.lines_left_out
            shown[change.source] = PromptPart(
                change.source, False, "\n".join(lines), change.revision, lines_left_out=left_out
            )
        else:
            shown.pop(change.source, None)
    return tuple(shown.values())


def hunks(old: Sequence[str], new: Sequence[str]) -> tuple[ChangedLines, ...]:
    start = _equal(old, new)
    end = _equal(old[start:][::-1], new[start:][::-1])
    a, b = old[start : len(old) - end], new[start : len(new) - end]
    if len(a) * len(b) > COMPARED_MAX:
        return (ChangedLines(start, start + len(a), tuple(b)),)
    matcher = SequenceMatcher(None, a, b)
    return tuple(
        ChangedLines(start + i, start + i_end, tuple(b[j:j_end]))
        for tag, i, i_end, j, j_end in matcher.get_opcodes()
        if tag != "equal"
    )


def applied(lines: Sequence[str], changes: Iterable[ChangedLines]) -> list[str]:
    result: list[str] = []
    at = 0
    for hunk in changes:
        result += [*lines[at : hunk.start], *hunk.lines]
        at = hunk.end
    return [*result, *lines[at:]]


def _change(
    source: str,
    old: PromptPart | None,
    new: PromptPart | None,
    render: Render,
    seams: Sequence[MergeMark],
) -> PartChange | None:
    """Memory that cannot be read does not take away what was shown; it is told once."""
    told = partial(render, "prompt/memory-change.md", workspace=source.partition("/")[2])
    if new is not None and new.unavailable is not None:
        if old is not None and old.unavailable is not None:
            return None
        text = told(lines=[], seams=[], seams_left_out=0, unavailable=new.unavailable)
        return PartChange(source, text, unavailable=new.unavailable)
    if old is not None and new is not None and old.text == new.text:
        return None
    before, after = _lines(old), _lines(new)
    found = hunks(before, after)
    text = told(
        lines=_marked(before, found),
        seams=[_seam(seam) for seam in seams[:SEAMS_MAX]],
        seams_left_out=len(seams[SEAMS_MAX:]),
        unavailable=None,
    )
    revision, left_out = (new.revision, new.lines_left_out) if new else (None, 0)
    return PartChange(source, text, revision, found, left_out)


def _marked(old: Sequence[str], found: Iterable[ChangedLines]) -> list[str]:
    """Every line carries a mark, so that nothing in it can stand where our tags stand."""
    lines: list[str] = []
    for hunk in found:
        if hunk.start > 0:
            lines.append(f"  {_bearing(old[hunk.start - 1])}".rstrip())
        lines += [f"- {line}".rstrip() for line in old[hunk.start : hunk.end]]
        lines += [f"+ {line}".rstrip() for line in hunk.lines]
    return lines


def _seam(seam: MergeMark) -> dict[str, object]:
    """Each side's lines under a mark of their own."""
    one = [line for pair in seam.pairs for line in pair.one][:SEAM_LINES_MAX]
    other = [line for pair in seam.pairs for line in pair.other][:SEAM_LINES_MAX]
    marked = [("1", line) for line in one] + [("2", line) for line in other]
    lines = [f"{mark} {fenced(line)[:SEAM_CHARACTERS_MAX]}".rstrip() for mark, line in marked]
    return {"path": one_line(seam.path), "told": one_line(seam.summary), "lines": lines}


def _bearing(line: str) -> str:
    if len(line) <= BEARING_CHARACTERS_MAX:
        return line
    return line[: BEARING_CHARACTERS_MAX - 1] + "…"


def _equal(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def _lines(part: PromptPart | None) -> list[str]:
    return part.text.split("\n") if part and part.text else []


def _change_json(change: PartChange) -> JsonObject:
    return {
        "source": change.source,
        "text": change.text,
        **({"revision": change.revision} if change.revision else {}),
        **(
            {"hunks": [[one.start, one.end, list(one.lines)] for one in change.hunks]}
            if change.hunks
            else {}
        ),
        **({"linesLeftOut": change.lines_left_out} if change.lines_left_out else {}),
        **({"unavailable": change.unavailable} if change.unavailable else {}),
    }


def _change_of(data: JsonObject) -> PartChange:
    revision = data.get("revision")
    return PartChange(
        data["source"],
        data["text"],
        RevisionId(revision) if revision else None,
        tuple(
            ChangedLines(start, end, tuple(lines)) for start, end, lines in data.get("hunks", ())
        ),
        data.get("linesLeftOut", 0),
        data.get("unavailable"),
    )
