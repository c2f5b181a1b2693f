"""Recall over several workspaces at once: one ranking, its cut, and the JSON fields that every face shows.

An answer shows the lines from half of the best score on. If no line bears on the question, it is empty and
says so. The rule is in `workspaces.search.ranking`; `cut="off"` shows every line up to the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import Any, Literal, Protocol

from workspaces.errors import Refused
from workspaces.history.history import HEAD, View
from workspaces.search.index import OnIndexProgress
from workspaces.search.ranking import is_shown, lowest_shown
from workspaces.search.recall import EVERYTHING, RecallHit, Scope
from workspaces.timestamp import Stamp, stamp_of
from workspaces.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Hit:
    workspace: str
    """The name under which the caller knows the workspace."""
    line: RecallHit

    def as_json(self) -> dict[str, Any]:
        line = self.line
        return {
            "path": line.path,
            "line_number": line.line_number,
            "content": line.content,
            "score": line.score,
            "workspace": self.workspace,
            "kind": line.kind,
            "updated_at": line.updated_at,
            "author": line.author,
            "revision": line.revision,
            "why": list(line.why),
        }


CutMode = Literal["auto", "off"]


@dataclass(frozen=True, slots=True)
class AnswerCut:
    """Where the cut of an answer lies."""

    shown: int
    behind: int
    """Lines that were found within the limit and score too low to be shown."""
    lowest: float
    """The lowest score that is shown."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RecallAnswer:
    """What recall answers to a question."""

    hits: Sequence[Hit]
    cut: AnswerCut | None
    """None without a cut, and if nothing is shown."""
    nothing_known: bool
    """True if no line bears on the question. False if lines were listed without a question."""


def answer(hits: Sequence[Hit], query: str, cut: CutMode = "auto") -> RecallAnswer:
    """Make the answer from the ranked lines of a query."""
    if cut == "off" or not query.strip():
        return RecallAnswer(hits, None, nothing_known=not hits and bool(query.strip()))
    lowest = lowest_shown(hit.line for hit in hits)
    if lowest is None:
        return RecallAnswer((), None, nothing_known=True)
    shown = [hit for hit in hits if is_shown(hit.line, lowest)]
    last = min(hit.line.score for hit in shown)
    return RecallAnswer(
        shown, AnswerCut(len(shown), len(hits) - len(shown), last), nothing_known=False
    )


EMPTY = (
    "Nothing was found that bears on this. Try other words, or fewer filters; `cut: off` shows every line"
    " with a word of it."
)
"""What a model is told when nothing is known about its question."""


class _HasBehind(Protocol):
    @property
    def behind(self) -> int: ...


def behind_text(cut: _HasBehind | None) -> list[str]:
    """Tell a model how many lines stand behind the cut, if there are any."""
    if cut is None or not cut.behind:
        return []
    return [f"({_lines(cut.behind)} that fit less: `cut: off` shows them)"]


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


def age_of(updated_at: str | None, age_days: int | None) -> str:
    """Return the day on which a line was written, and how long ago that is."""
    if updated_at is None or age_days is None:
        return "not in a revision yet"
    ago = {0: "today", 1: "a day ago"}.get(age_days, f"{age_days} days ago")
    return f"{updated_at[:10]}, {ago}"


@dataclass(frozen=True, slots=True)
class SearchedPlace:
    """A workspace to search, under the name by which the caller knows it, and the part to search."""

    name: str
    workspace: Workspace
    scope: Scope


def recall(
    places: Iterable[tuple[str, Workspace]],
    query: str,
    *,
    limit: int = 10,
    scope: Scope = EVERYTHING,
    view: View = HEAD,
    on_progress: OnIndexProgress | None = None,
) -> list[Hit]:
    """Return the best lines of all these workspaces. Equal lines keep the order of the workspaces.

    `on_progress` is told how far each index has come, as `Index.find` brings it up to date."""
    searched = [SearchedPlace(name, workspace, scope) for name, workspace in places]
    return recall_in(searched, query, limit=limit, view=view, on_progress=on_progress)


def recall_in(
    places: Iterable[SearchedPlace],
    query: str,
    *,
    limit: int = 10,
    view: View = HEAD,
    on_progress: OnIndexProgress | None = None,
) -> list[Hit]:
    """Return the best lines of workspaces that are searched each in a scope of its own."""
    hits: Sequence[Hit] = [
        Hit(place.name, line)
        for place in places
        for line in place.workspace.recall.find(
            query, limit=limit, view=view, scope=place.scope, on_progress=on_progress
        )
    ]
    ranked = sorted(hits, key=lambda hit: (not hit.line.is_named, -hit.line.score))
    return ranked[:limit]


def since_of(text: str) -> Stamp:
    """Return the time of a date or a date with time. Without a zone it is UTC.

    Raises: Refused if the text is neither.
    """
    try:
        if len(text) == len("2026-01-31"):
            moment = datetime.combine(date.fromisoformat(text), datetime.min.time(), tzinfo=UTC)
        else:
            moment = datetime.fromisoformat(text)
    except ValueError as error:
        remedy = "write 2026-01-31, or 2026-01-31T14:00"
        raise Refused("since", text, "is not a date or a date with time", remedy=remedy) from error
    return stamp_of(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
