"""Deltas: tell the model that memory, or the date, differs from what the snapshot shows.

A delta describes the change of the *rendered* part line by line, so a small change gives a small delta. The
model then sees the snapshot's part with every delta applied. The next delta starts from there, so only the
stored deltas are needed, never the earlier file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import SequenceMatcher
from functools import partial

from harness.context.fence import fenced, one_line
from harness.context.part import BLOCKS, PromptPart, Render
from harness.context.prompt import date_text
from workspaces.revision import RevisionId
from workspaces.storage.records import JsonObject
from workspaces.tree.merge_marks import MergeMark

COMPARED_MAX = 4_000_000
"""Pairs of lines compared between the first and the last difference: 2 000 lines on each side take some
tenths of a second. Beyond this limit all lines count as rewritten, which is more than a delta may hold."""

CONTEXT_LINE_CHARACTERS_MAX = 80
"""Characters of the context line that shows where a change is."""


MERGES_MAX = 10
MERGE_LINES_MAX = 12
"""Lines of each side, over all places: enough to show the subject; the files hold all of it."""

MERGE_CHARACTERS_MAX = 200

MergesBySource = Mapping[str, Sequence[MergeMark]]
"""Maps the source of a part to the merges that sync made there since the part was shown."""


@dataclass(frozen=True, slots=True)
class ChangedLines:
    """A replacement of the lines from `start`, up to but not including `end`."""

    start: int
    end: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartChange:
    source: str
    text: str
    """The text that the model reads."""
    revision: RevisionId | None = None
    """The revision that the part was read from; None if the part is gone."""
    hunks: tuple[ChangedLines, ...] = ()
    lines_left_out: int = 0
    unavailable: str | None = None
    """The reason why the part could not be read; then nothing else is known about it."""
    rows: tuple[str, ...] = ()
    """The ids of the facts that the part shows after the change."""


@dataclass(frozen=True, slots=True)
class Delta:
    entry: int
    """The number of the message that the delta stands beside."""
    changes: tuple[PartChange, ...]
    day: date | None = None
    """The new date, if another day has begun."""
    day_text: str = ""

    @property
    def text(self) -> str:
        texts = [change.text for change in self.changes]
        return "\n\n".join([*texts, self.day_text] if self.day_text else texts)

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
    merges: MergesBySource | None = None,
) -> Delta | None:
    """Return the delta beside message `entry` that turns the parts `shown` into the parts `now`.

    `day` is the new date, if another day has begun. Return None if nothing differs.
    """
    merges_of = merges or {}
    before = {part.source: part for part in shown if part.is_memory}
    after = {part.source: part for part in now if part.is_memory}
    sources = [*after, *(source for source in before if source not in after)]
    part_changes = (
        _change(one, before.get(one), after.get(one), render, merges_of.get(one, ()))
        for one in sources
    )
    changes = tuple(change for change in part_changes if change is not None)
    if day is not None:
        return Delta(entry, changes, day, date_text(day, render))
    return Delta(entry, changes) if changes else None


def with_deltas(parts: Sequence[PromptPart], deltas: Iterable[Delta]) -> tuple[PromptPart, ...]:
    """Return the parts as the model sees them: the snapshot's parts with all deltas applied."""
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
            shown[change.source] = PromptPart(
                change.source,
                False,
                "\n".join(lines),
                change.revision,
                lines_left_out=change.lines_left_out,
                rows=change.rows,
            )
        else:
            shown.pop(change.source, None)
    return tuple(shown.values())


def hunks(old: Sequence[str], new: Sequence[str]) -> tuple[ChangedLines, ...]:
    start = _equal_lines(old, new)
    end = _equal_lines(old[start:][::-1], new[start:][::-1])
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
    merges: Sequence[MergeMark],
) -> PartChange | None:
    """Return the change of one part, or None. Memory that cannot be read does not remove the text that was
    shown; the model is informed once."""
    text_of = partial(render, "prompt/memory-change.md", **_attributes(source))
    if new is not None and new.unavailable is not None:
        if old is not None and old.unavailable is not None:
            return None
        text = text_of(lines=[], seams=[], seams_left_out=0, unavailable=new.unavailable)
        return PartChange(source, text, unavailable=new.unavailable)
    if old is not None and new is not None and old.text == new.text:
        return None
    before, after = _lines(old), _lines(new)
    changed = hunks(before, after)
    text = text_of(
        lines=_marked(before, changed),
        seams=[_merge_variables(merge) for merge in merges[:MERGES_MAX]],
        seams_left_out=len(merges[MERGES_MAX:]),
        unavailable=None,
    )
    if new is None:
        return PartChange(source, text, hunks=changed)
    return PartChange(
        source, text, new.revision, changed, lines_left_out=new.lines_left_out, rows=new.rows
    )


def _attributes(source: str) -> dict[str, str]:
    """Return the names of the part, as variables of the template."""
    kind, _, name = source.partition("/")
    return {"workspace": "", "scope": name} if kind == BLOCKS else {"workspace": name, "scope": ""}


def _marked(old: Sequence[str], changed: Iterable[ChangedLines]) -> list[str]:
    """Return the changed lines. Each one begins with a mark, so that no line can imitate our tags."""
    lines: list[str] = []
    for hunk in changed:
        if hunk.start > 0:
            lines.append(f"  {_context_line(old[hunk.start - 1])}".rstrip())
        lines += [f"- {line}".rstrip() for line in old[hunk.start : hunk.end]]
        lines += [f"+ {line}".rstrip() for line in hunk.lines]
    return lines


def _merge_variables(merge: MergeMark) -> dict[str, object]:
    """Return the template variables of a merge. The lines of each side carry that side's mark."""
    one = [line for pair in merge.pairs for line in pair.one][:MERGE_LINES_MAX]
    other = [line for pair in merge.pairs for line in pair.other][:MERGE_LINES_MAX]
    marked = [("1", line) for line in one] + [("2", line) for line in other]
    lines = [f"{mark} {fenced(line)[:MERGE_CHARACTERS_MAX]}".rstrip() for mark, line in marked]
    return {"path": one_line(merge.path), "told": one_line(merge.summary), "lines": lines}


def _context_line(line: str) -> str:
    if len(line) <= CONTEXT_LINE_CHARACTERS_MAX:
        return line
    return line[: CONTEXT_LINE_CHARACTERS_MAX - 1] + "…"


def _equal_lines(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of equal lines at the beginning."""
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
        **({"rows": list(change.rows)} if change.rows else {}),
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
        rows=tuple(data.get("rows", ())),
    )
