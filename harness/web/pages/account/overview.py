"""The first page: what wants attention, the workspaces, the agents, and the dollars of the month."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from harness.agents.record import AgentRecord
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.jobs.job import JobView
from harness.runs.active_memory import MemoryView
from harness.runtime.async_bridge import run_in_thread
from harness.web.http.caller import Caller, services_of
from harness.web.pages.account.sign_in import signed_in
from harness.web.pages.agent.decisions import doubted
from harness.web.pages.parts.form import Form
from harness.web.pages.parts.rendering import is_owner, led_to, link, shown
from harness.web.pages.parts.route import PageRoute
from workspaces.errors import Failure, Forbidden, NotFound
from workspaces.home.workspaces import private_to_user
from workspaces.ids import AgentId
from workspaces.problem import LISTED_ONLY, Problem
from workspaces.timestamp import Stamp
from workspaces.workspace.workspace import Workspace
from workspaces.workspace_record import WorkspaceRecord

router = APIRouter(route_class=PageRoute, include_in_schema=False)

CONVERSATIONS_MAX = 30
"""The newest conversations in which waiting calls are looked for. `harness status` looks at more."""

LINE_CHARACTERS_MAX = 70
"""Characters of a decision's summary in the list of what wants attention."""

ROWS_MAX = 100
"""The most workspaces, and the most agents, on this page."""


@dataclass(frozen=True, slots=True)
class Attention:
    """One thing that a person should look at."""

    level: str
    subject: str
    told: str
    path: str
    deed: str
    """The words of the link or button."""
    retry: str = ""
    """The job that the button tries again."""


@dataclass(frozen=True, slots=True)
class WorkspaceLine:
    """A workspace with its last change and its size."""

    record: WorkspaceRecord
    at: Stamp | None = None
    author: str = ""
    files: int = 0
    bytes: int = 0
    failure: str = ""


@router.get("/", response_model=None)
async def overview(request: Request, token: str | None = None) -> Response:
    if token is not None:
        return await signed_in(request, token, "/")
    caller = await services_of(request)
    return await run_in_thread(_page, request, caller)


@router.post("/workspaces", response_model=None)
def create_workspace(request: Request, caller: Caller, form: Form) -> Response:
    _check_right(caller, "create workspaces")
    made = caller.workspaces.create(form.text("name"), description=form.text("description") or None)
    return led_to(request, f"/w/{made.record.id}/files", said="created")


@router.post("/agents", response_model=None)
def create_agent(request: Request, caller: Caller, form: Form) -> Response:
    _check_right(caller, "create agents")
    stated = form.text("workspace")
    mounted = [caller.workspaces.get(stated)] if stated else []
    made = caller.agents.create(form.text("name"), workspaces=mounted)
    return led_to(request, f"/a/{made.id}", said="created")


@router.post("/jobs/{id}/retry", response_model=None)
def retry_job(
    request: Request, caller: Caller, job_id: Annotated[str, Path(alias="id")], form: Form
) -> Response:
    del form
    _check_right(caller, "retry jobs")
    if not any(view.job.id == job_id for view in _own_jobs(caller)):
        raise NotFound("job", job_id)
    caller.jobs.retry(job_id)
    return led_to(request, "/", said="retried")


def _check_right(caller: PrincipalServices, deed: str) -> None:
    if not caller.principal.may_configure:
        raise Forbidden(deed)


def _page(request: Request, caller: PrincipalServices) -> Response:
    attention: list[Attention] = []
    records = _records(caller)
    lines = [_line(caller, record, attention) for record in records[:ROWS_MAX]]
    agents = caller.agents.list()
    attention += _waiting(caller, agents)
    memories = caller.runs.memory_summary() if is_owner(caller) else {}
    attention += _long_sessions(agents, memories)
    if is_owner(caller):
        attention += _doubted(caller, agents)
    attention += _set_aside(caller)
    lines.sort(key=lambda line: line.at or "", reverse=True)
    return shown(
        request,
        "overview.html",
        caller=caller,
        attention=attention,
        workspaces=lines,
        workspaces_more=max(0, len(records) - ROWS_MAX),
        agents=agents[:ROWS_MAX],
        memories=memories,
        agents_more=max(0, len(agents) - ROWS_MAX),
        default_model=caller.settings.model,
        spent=caller.usage.report(by="purpose").total,
    )


def _records(caller: PrincipalServices) -> Sequence[WorkspaceRecord]:
    """Return the workspaces that the caller may open."""
    if caller.principal.may_configure:
        return caller.workspaces.list()
    own = caller.workspaces.private(private_to_user(caller.principal.user_id), create=False)
    return [] if own is None else [own.record]


def _line(
    caller: PrincipalServices, record: WorkspaceRecord, attention: list[Attention]
) -> WorkspaceLine:
    try:
        workspace = caller.workspaces.open(record)
        return _read_line(workspace, attention)
    except Failure as failure:  # one unreadable workspace does not hide the others
        attention.append(
            Attention("problem", record.name, str(failure), f"/w/{record.id}/problems", "Look")
        )
        return WorkspaceLine(record, failure=str(failure))


def _read_line(workspace: Workspace, attention: list[Attention]) -> WorkspaceLine:
    record, tree = workspace.record, workspace.tree.glance()
    attention += _problems(record, workspace.edits.problems(tree))
    tip = workspace.history.tip()
    newest = workspace.history.commit(tip) if tip else None
    return WorkspaceLine(
        record,
        newest.at if newest else None,
        newest.author if newest else "",
        files=len(tree.files),
        bytes=tree.bytes,
    )


def _problems(record: WorkspaceRecord, problems: Sequence[Problem]) -> Iterator[Attention]:
    path = f"/w/{record.id}/problems"
    conflicts = sum(problem.kind == "conflict" for problem in problems)
    if conflicts:
        told = "A file was changed in two places at once, and both versions were kept."
        if conflicts > 1:
            told = f"{conflicts} files were changed in two places at once; all versions were kept."
        yield Attention("conflict", record.name, told, path, "Choose")
    lost = sum(problem.kind not in LISTED_ONLY for problem in problems)
    if lost:
        told = "1 file is not kept." if lost == 1 else f"{lost} files are not kept."
        yield Attention("problem", record.name, told, path, "See why")
    others = len(problems) - conflicts - lost
    if others:
        told = "1 thing needs a look." if others == 1 else f"{others} things need a look."
        yield Attention("problem", record.name, told, path, "See why")


def _waiting(caller: PrincipalServices, agents: Sequence[AgentRecord]) -> Iterator[Attention]:
    names = {agent.id: agent.name for agent in agents}
    for conversation in caller.conversations.list(limit=CONVERSATIONS_MAX):
        for call in caller.conversations.pending(conversation):
            if call.asked.waits_for != "approval":
                continue  # a client runs it; there is nothing to decide
            name = names.get(conversation.agent_id, "an agent")
            path = link(f"/a/{conversation.agent_id}", c=conversation.key)
            told = f"{name} asks to run {call.call.name} in “{conversation.key}”."
            yield Attention("waiting", "Approval", told, path, "Decide")


def _long_sessions(
    agents: Sequence[AgentRecord], memories: Mapping[AgentId, MemoryView]
) -> Iterator[Attention]:
    for agent in agents:
        view = memories.get(agent.id)
        if view is not None and view.warning is not None:
            yield Attention("warn", agent.name, f"{view.warning}.", f"/a/{agent.id}", "Look")


def _doubted(caller: PrincipalServices, agents: Sequence[AgentRecord]) -> Iterator[Attention]:
    names = {agent.id: agent.name for agent in agents}
    for view in doubted(caller, agents):
        found = view.conviction or {}
        line = textwrap.shorten(view.decision.line, LINE_CHARACTERS_MAX, placeholder=" …")
        told = f"The conviction in “{line}” is down to {found['score']} of 100: {found['action']}."
        yield Attention("doubt", names[view.run.agent_id], told, f"/runs/{view.run.id}", "Look")


def _set_aside(caller: PrincipalServices) -> Iterator[Attention]:
    if not caller.principal.may_configure:
        return
    for view in _own_jobs(caller):
        told = f"{view.job.kind} failed too often: {view.error or 'no reason is known'}"
        yield Attention("problem", "Job", told, "/", "Try again", retry=view.job.id)


def _own_jobs(caller: PrincipalServices) -> Iterator[JobView]:
    """Yield the jobs of this account that were set aside. The list of jobs is that of the whole home."""
    for view in caller.jobs.list():
        if view.is_aside and view.job.payload.get("accountId") == caller.principal.account_id:
            yield view
