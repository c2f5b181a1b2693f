"""Recall over several workspaces at once: one ranking, and the JSON fields that every face shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from workspaces.errors import Refused
from workspaces.history.history import HEAD, View
from workspaces.search.index import OnIndexProgress
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
            "updated_at": line.updated_at,
            "author": line.author,
            "revision": line.revision,
            "why": list(line.why),
        }


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
