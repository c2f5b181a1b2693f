"""What cannot be kept and why, places that sync has merged, and conflicts with both sides and a choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.presentation.status import REMEDIES
from harness.web.http.caller import Caller, CallerWorkspace
from harness.web.pages.parts.form import Form
from harness.web.pages.parts.rendering import led_to, shown
from harness.web.pages.parts.route import PageRoute
from workspaces.errors import Conflict, NotFound, Refused
from workspaces.file import File
from workspaces.history.diff import Span, words_between
from workspaces.history.revert import Files
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.tree.conflict_copy import is_conflict, original_path
from workspaces.tree.merge_marks import REVISIONS_MAX, open_marks
from workspaces.workspace.workspace import Workspace

router = APIRouter(route_class=PageRoute, include_in_schema=False, prefix="/w/{id}")

SHOWN_MAX = 20
"""Conflicts that are shown with both sides. The rest follows when these are decided."""

PROBLEMS_MAX = 200

SIDE_CHARACTERS_MAX = 20_000
"""The longest text that is compared on the page. Longer ones are named, with links to both."""


@dataclass(frozen=True, slots=True)
class ConflictPair:
    """A file and the version beside it that could not be merged."""

    path: str
    copy: str
    version: str
    """The version of the file; empty if it was deleted."""
    copy_version: str
    spans: Sequence[Span]
    """The difference from the file to the copy; empty if it is not shown."""
    is_long: bool


@router.get("/problems", response_model=None)
def problems_page(request: Request, caller: Caller, place: CallerWorkspace) -> Response:
    tree = place.tree.scan()
    problems = place.edits.problems(tree)
    copies = [one for one in problems if one.kind == "conflict"]
    others = [one for one in problems if one.kind != "conflict"]
    merges = [
        (one.id, one.trailers) for one in place.log(limit=REVISIONS_MAX) if len(one.parents) > 1
    ]
    return shown(
        request,
        "problems.html",
        caller=caller,
        record=place.record,
        conflicts=[_pair(place, one) for one in copies[:SHOWN_MAX]],
        conflicts_more=max(0, len(copies) - SHOWN_MAX),
        others=[(one, REMEDIES.get(one.kind)) for one in others[:PROBLEMS_MAX]],
        others_more=max(0, len(others) - PROBLEMS_MAX),
        marks=open_marks(place.history, merges),
        undo_path=f"/w/{place.record.id}/revert",
    )


@router.post("/problems", response_model=None)
def decide(request: Request, caller: Caller, place: CallerWorkspace, form: Form) -> Response:
    """Keep one of the two versions of a file. Both stay in the history."""
    copy = WorkspacePath(form.fields.get("copy", ""))
    if not is_conflict(copy):
        raise Refused("copy", copy, "is not a version beside a file")
    path = original_path(copy)
    takes_copy = form.text("keep") == "copy"

    def plan(now: Files) -> Files:
        for one, stated in ((path, form.text("version")), (copy, form.text("copy_version"))):
            data = now[one]
            found = "" if data is None else version_of(data)
            if found != stated:
                raise Conflict("file", one, expected=stated or None, actual=found or None)
        if now[copy] is None:
            raise NotFound("file", copy)
        return {path: now[copy] if takes_copy else now[path], copy: None}

    made = place.change([path, copy], plan, by=caller.principal.author("api"))
    return led_to(request, f"/w/{place.record.id}/problems", said="resolved", undo=made)


def _pair(place: Workspace, problem: Problem) -> ConflictPair:
    copy = WorkspacePath(problem.path)
    path = original_path(copy)
    one, other = _read(place, path), _read(place, copy)
    mine, theirs = _text(one), _text(other)
    is_long = max(len(mine), len(theirs)) > SIDE_CHARACTERS_MAX
    return ConflictPair(
        path,
        copy,
        one.version if one else "",
        other.version if other else "",
        () if is_long else words_between(mine, theirs),
        is_long,
    )


def _read(place: Workspace, path: str) -> File | None:
    try:
        return place.read(path)
    except NotFound:
        return None


def _text(file: File | None) -> str:
    return "" if file is None else file.data.decode(errors="replace")
