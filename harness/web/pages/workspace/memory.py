"""The memory panel of rows: the facts of a workspace, and those of an agent.

Pinned and important rows come first. A person edits manual rows in place. A row that a model wrote is
read-only until a person makes it theirs. A memorized row leads to the quote that it rests on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, cast, get_args

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import Response

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.memorize.memory import moments_of, origin_of
from harness.memory.facts.fact import Fact
from harness.memory.facts.facts import FactChange, Facts
from harness.runtime.async_bridge import run_in_thread
from harness.web.http.caller import Caller
from harness.web.pages.parts.form import Form, SentForm
from harness.web.pages.parts.rendering import led_to, shown
from harness.web.pages.parts.route import PageRoute
from harness.web.pages.workspace.proof import proof_page
from workspaces.errors import Conflict, NotFound
from workspaces.history.source import Source
from workspaces.ids import Version
from workspaces.workspace.workspace import Workspace

ROWS_MAX = 50
"""Rows on one page."""

SOURCES: tuple[str, ...] = get_args(Source)

picker = APIRouter(route_class=PageRoute, include_in_schema=False)


@picker.get("/memory", response_model=None)
def pick_workspace(request: Request, caller: Caller, workspace: str = "") -> Response:
    """Go to the panel of the chosen workspace, or let the reader choose one."""
    if workspace:
        return led_to(request, f"/w/{caller.workspaces.reach(workspace).record.id}/memory")
    records = caller.workspaces.list() if caller.principal.may_configure else []
    return shown(
        request,
        "memory-picker.html",
        caller=caller,
        workspaces=records,
        agents=caller.agents.list(),
    )


async def _of_workspace(caller: Caller, reference: Annotated[str, Path(alias="id")]) -> Facts:
    return await run_in_thread(caller.facts.of_workspace, reference)


async def _of_agent(caller: Caller, reference: Annotated[str, Path(alias="id")]) -> Facts:
    return await run_in_thread(caller.facts.of_agent, reference)


def _router(prefix: str, find: Callable[..., Awaitable[Facts]]) -> APIRouter:
    """Return the pages of the facts that `find` returns."""
    router = APIRouter(route_class=PageRoute, include_in_schema=False, prefix=prefix)
    found: Any = Depends(find)

    @router.get("", response_model=None)
    def rows_page(  # pyright: ignore[reportUnusedFunction]
        request: Request,
        caller: Caller,
        facts: Facts = found,
        source: str = "",
        pinned: str = "",
        begin: int = 0,
    ) -> Response:
        return _page(request, caller, facts, source, bool(pinned), max(0, begin))

    @router.get("/{row}/proof", response_model=None)
    def row_proof(  # pyright: ignore[reportUnusedFunction]
        request: Request, caller: Caller, row: str, facts: Facts = found
    ) -> Response:
        return proof_page(request, caller, facts, row, base_of(facts))

    @router.post("", response_model=None)
    def change_rows(  # pyright: ignore[reportUnusedFunction]
        request: Request, caller: Caller, form: Form, facts: Facts = found
    ) -> Response:
        return _change(request, caller, facts, form)

    return router


workspace_rows = _router("/w/{id}/memory", _of_workspace)
agent_rows = _router("/a/{id}/rows", _of_agent)


def base_of(facts: Facts) -> str:
    """Return the path of the panel of these facts."""
    scope = facts.scope
    return f"/a/{scope.agent_id}/rows" if scope.agent_id else f"/w/{scope.workspace_id}/memory"


def _page(
    request: Request,
    caller: PrincipalServices,
    facts: Facts,
    source: str,
    pinned: bool,
    begin: int,
) -> Response:
    scope = facts.scope
    wanted = cast(Source, source) if source in SOURCES else None
    rows, problems = facts.list_with_problems(source=wanted, pinned=True if pinned else None)
    agent = caller.agents.get(scope.agent_id) if scope.agent_id else None
    record = None if agent else caller.workspaces.record(scope.workspace_id)
    return shown(
        request,
        "memory.html",
        caller=caller,
        agent=agent,
        record=record,
        workspace_id=scope.workspace_id,
        base=base_of(facts),
        rows=[(row, _quote(row)) for row in rows[begin : begin + ROWS_MAX]],
        begin=begin,
        all=len(rows),
        following=begin + ROWS_MAX if begin + ROWS_MAX < len(rows) else None,
        sources=SOURCES,
        source=source,
        pinned=pinned,
        problems=problems[:ROWS_MAX],
        undo_path=base_of(facts),
        authors=_names(caller),
    )


def _quote(row: Fact) -> str | None:
    """Return the first quote that a memorized row rests on, and "" if it cites none. None: no such row."""
    if origin_of(row) is None:
        return None
    return next((moment.quote for moment in moments_of(row)), "")


def _names(caller: PrincipalServices) -> dict[str, str]:
    """Return the names of users and agents, who write rows, by their ids."""
    records = (*caller.users.list(), *caller.agents.list())
    return {record.id: record.name for record in records}


def _change(request: Request, caller: PrincipalServices, facts: Facts, form: SentForm) -> Response:
    """Add, edit, pin or delete a row, or undo a deletion."""
    base, deed, row = base_of(facts), form.text("do"), form.text("row")

    def check(version: Version | None) -> None:
        """Check that the row is the one that the reader saw."""
        seen = form.text("version")
        if version != seen:
            raise Conflict("fact", form.text("key"), expected=seen, actual=version)

    match deed:
        case "add":
            facts.put(form.text("key"), form.lines("value").strip(), pinned=form.has("pinned"))
            return led_to(request, base, said="added")
        case "edit":
            change = FactChange(form.lines("value").strip(), adopts=form.has("adopts"))
            facts.change(row, change, check=check)
            return led_to(request, base, said="saved")
        case "pin" | "unpin":
            facts.change(row, FactChange(pinned=deed == "pin"))
            return led_to(request, base, said="pinned" if deed == "pin" else "unpinned")
        case "delete":
            path = facts.get(row).path
            facts.delete(row, check=check)
            newest = _workspace(caller, facts).log(path, limit=1)
            undo = newest[0].id if newest else None
            return led_to(request, base, said="deleted", undo=undo)
        case _:  # the notice's button
            author = caller.principal.author("api")
            _workspace(caller, facts).revert(form.text("revision"), by=author)
            return led_to(request, base, said="reverted")


def _workspace(caller: PrincipalServices, facts: Facts) -> Workspace:
    workspace = caller.workspaces.private(facts.scope.workspace_id, create=False)
    if workspace is None:
        raise NotFound("workspace", facts.scope.workspace_id)
    return workspace
