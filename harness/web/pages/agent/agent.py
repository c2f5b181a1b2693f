"""An agent: the chat with it, and its model, instructions, mounts and sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.agents.mounts import mount_name
from harness.agents.record import AgentRecord
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.conversations.conversation import Conversation
from harness.conversations.event_status import EventStatus
from harness.messages.event import SHARED_KEY, Approval, Event, check_event_id, check_key
from harness.runtime.async_bridge import run_in_thread
from harness.transcripts.transcript import Entry
from harness.web.http.caller import Caller
from harness.web.pages.agent.blocks import blocks_of
from harness.web.pages.agent.conversation import places_of
from harness.web.pages.agent.runs import active_memory_of, is_long
from harness.web.pages.agent.transcript_view import turns_of
from harness.web.pages.parts.form import Form, SentForm
from harness.web.pages.parts.rendering import led_to, shown
from harness.web.pages.parts.route import PageRoute
from harness.web.routes.talk.turns import AgentPath, begin_event, check_shared
from workspaces.errors import Forbidden, NotFound, Refused
from workspaces.ids import new_id
from workspaces.timestamp import Stamp, stamp_of

router = APIRouter(route_class=PageRoute, include_in_schema=False, prefix="/a/{id}")

ENTRIES_MAX = 30
"""The newest entries in the chat. The page of the conversation has all."""

CONVERSATIONS_MAX = 12
"""Conversations in the list beside the chat."""

RUNS_SHOWN = 5
"""Runs in the list beside the chat."""

WORKSPACES_MAX = 100
"""Workspaces to choose from as mounts."""

SWITCHES = {
    "reviewDecisions": (
        "Review previous decisions",
        "Before it decides, it looks at its recent decisions and what came of them.",
    ),
    "memoryEnabled": (
        "Facts of its own",
        "Its rows, and those of its user with it, are in its prompt.",
    ),
}
"""Settings that the page turns on and off: their titles, and what they do when they are on."""


@router.get("", response_model=None)
def agent_page(
    request: Request,
    caller: Caller,
    reference: AgentPath,
    c: str = "",
    e: str = "",
    new: str = "",
    edit: str = "",
) -> Response:
    """Show the chat: the conversation with key `c`, a new one, or the newest. `e` is the event to follow."""
    agent = caller.agents.get(reference)
    if edit:
        return _settings(request, caller, agent)
    listed = caller.conversations.list(agent.id, limit=CONVERSATIONS_MAX)
    memory = active_memory_of(caller, agent.id)
    if not c and not new and memory is not None and memory.is_enabled:
        c = SHARED_KEY  # chat and runs share one conversation
    if c:
        conversation = caller.conversations.find(agent.id, c)
        if conversation is None and c != SHARED_KEY:
            check_key(c, "c")
    else:
        conversation = listed[0] if listed and not new else None
    key = c or (conversation.key if conversation else _new_key(caller))
    following = _following(caller, agent, conversation, e)
    entries: list[Entry] = []
    if conversation is not None:
        transcript = caller.conversations.transcript(conversation)
        entries = transcript.page(ENTRIES_MAX, after=None, backwards=True)[::-1]
    pending = caller.conversations.pending(conversation) if conversation else ()
    return shown(
        request,
        "agent.html",
        caller=caller,
        agent=agent,
        key=key,
        conversation=conversation,
        conversations=listed,
        turns=turns_of(entries, pending),
        is_cut=bool(entries) and entries[0].number > 1,
        memory=memory,
        is_long=memory is not None and is_long(memory),
        is_shared=key == SHARED_KEY,
        runs=caller.runs.list(agent.id, limit=RUNS_SHOWN) if memory is not None else [],
        following=following,
        stream=_stream(agent, following),
        event_id=new_id("evt"),
        default_model=caller.settings.model,
        mounts=_mounts(caller, agent),
        sandbox=_sandbox_name(caller, agent),
        places=places_of(caller, conversation) if conversation else {},
        blocks=blocks_of(caller, agent),
        next_tick=_next_tick(caller, agent),
        switches=[(name, *SWITCHES[name], is_on(agent, name)) for name in SWITCHES],
    )


@router.post("/say", response_model=None)
async def say(request: Request, caller: Caller, reference: AgentPath, form: Form) -> Response:
    """Send a message. The same form sent twice is one message: it carries the id of its event."""
    agent = await run_in_thread(caller.agents.get, reference)
    key: str | None = form.text("c")
    if key == SHARED_KEY:
        check_shared(caller)
        key = None
    event = Event.said(form.text("event"), key, form.lines("text"))
    await begin_event(request, caller, agent, event)
    return led_to(request, f"/a/{agent.id}", c=event.conversation_key, e=event.id)


@router.post("/answer", response_model=None)
async def answer(request: Request, caller: Caller, reference: AgentPath, form: Form) -> Response:
    """Approve or deny a call that waits."""
    agent = await run_in_thread(caller.agents.get, reference)
    approval = Approval(
        call_id=form.text("call"),
        is_allowed=form.text("do") == "approve",
        reason=form.text("reason") or None,
    )
    conversation = await run_in_thread(_conversation, caller, agent, form)
    event_id = check_event_id(form.text("event"))
    event = Event(event_id, conversation.key, (approval,), has_reserved_key=True)
    await begin_event(request, caller, agent, event)
    return led_to(request, f"/a/{agent.id}", c=event.conversation_key, e=event.id)


@router.post("/cancel", response_model=None)
async def cancel(request: Request, caller: Caller, reference: AgentPath, form: Form) -> Response:
    agent = await run_in_thread(caller.agents.get, reference)
    conversation = await run_in_thread(_conversation, caller, agent, form)
    is_cancelled = await caller.dispatcher.cancel(conversation)
    said = "cancelled" if is_cancelled else "nothing"
    return led_to(request, f"/a/{agent.id}", c=conversation.key, said=said)


def _conversation(caller: PrincipalServices, agent: AgentRecord, form: SentForm) -> Conversation:
    found = caller.conversations.find(agent.id, form.text("c"))
    if found is None:
        raise NotFound("conversation", form.text("c"))
    return found


@router.post("/switch", response_model=None)
def switch(request: Request, caller: Caller, reference: AgentPath, form: Form) -> Response:
    """Turn one setting of the agent on or off."""
    agent, name = caller.agents.get(reference), form.text("name")
    if name not in SWITCHES:
        raise Refused("name", name, f"must be one of {', '.join(SWITCHES)}")
    caller.agents.patch(agent.id, {"config": {name: form.text("do") == "on"}})
    return led_to(request, f"/a/{agent.id}", c=form.text("c"), said="saved")


def is_on(agent: AgentRecord, name: str) -> bool:
    return bool(agent.config.model_dump(by_alias=True)[name])


@router.post("/settings", response_model=None)
def change(request: Request, caller: Caller, reference: AgentPath, form: Form) -> Response:
    agent = caller.agents.get(reference)
    caller.agents.patch(
        agent.id, {"name": form.text("name"), "config": _config(caller, agent, form)}
    )
    return led_to(request, f"/a/{agent.id}", said="saved")


def _config(caller: PrincipalServices, agent: AgentRecord, form: SentForm) -> dict[str, Any]:
    """Return the patch of a configuration. Mounts that stay keep their names and sandboxes."""
    chosen = {name.removeprefix("mount:") for name in form.fields if name.startswith("mount:")}
    kept = [one.as_json() for one in agent.config.workspaces if one.workspace_id in chosen]
    known = {one.workspace_id for one in agent.config.workspaces}
    names = {one["name"] for one in kept}
    for workspace_id in sorted(chosen - known):
        name = mount_name(caller.workspaces.record(workspace_id).name)
        while name in names:
            name = f"{name[:60]}-2"
        names.add(name)
        kept.append({"name": name, "workspaceId": workspace_id})
    cron = " ".join(form.text("cron").split())
    return {
        "model": form.text("model") or None,
        "system": form.lines("system").strip() or None,
        "defaultPrompt": form.lines("defaultPrompt").strip() or None,
        "schedule": {"cron": cron, "timezone": form.text("timezone") or "UTC"} if cron else None,
        "card": form.text("card") or None,
        "sandbox": form.text("sandbox") or None,
        "workspaces": kept,
        "extract": {"enabled": form.has("extract")},
        "sleep": {"enabled": form.has("sleep")},
    }


def _settings(request: Request, caller: PrincipalServices, agent: AgentRecord) -> Response:
    if not caller.principal.may_configure:
        raise Forbidden("change agents")
    mounted = {one.workspace_id for one in agent.config.workspaces}
    records = caller.workspaces.list()
    records.sort(key=lambda one: (one.id not in mounted, one.name))
    return shown(
        request,
        "agent-edit.html",
        caller=caller,
        agent=agent,
        mounted=mounted,
        workspaces=records[: max(WORKSPACES_MAX, len(mounted))],
        sandboxes=caller.sandboxes.list(),
        default_model=caller.settings.model,
    )


def _following(
    caller: PrincipalServices, agent: AgentRecord, conversation: Conversation | None, event_id: str
) -> EventStatus | None:
    """Return the event whose progress the page shows: the one that it was asked for, else a running one."""
    if event_id:
        try:
            return caller.dispatcher.status(agent.id, event_id)
        except NotFound:  # it is older than a day
            return None
    if conversation is None:
        return None
    turn_id = caller.conversations.queue(conversation).head().turn_id
    if turn_id is None:
        return None
    transcript = caller.conversations.transcript(conversation)
    newest: Sequence[Entry] = transcript.page(ENTRIES_MAX, after=None, backwards=True)
    running = next(
        (one.event_id for one in newest if one.turn_id == turn_id and one.event_id), None
    )
    return _following(caller, agent, conversation, running) if running else None


def _stream(agent: AgentRecord, following: EventStatus | None) -> str | None:
    """Return the path of the stream to follow; None if nothing runs."""
    if following is None or following.is_at_rest:
        return None
    return f"/v1/agents/{agent.id}/events/{quote(following.event_id, safe='')}/stream"


def _mounts(caller: PrincipalServices, agent: AgentRecord) -> list[tuple[str, str, bool]]:
    """Return name, workspace and writability of each mount. A user's key sees none: they are not its own."""
    if not caller.principal.may_configure:
        return []
    return [
        (mount.name, mount.workspace.record.id, mount.is_writable)
        for mount in caller.agents.bindings(agent)
        if not mount.is_private
    ]


def _sandbox_name(caller: PrincipalServices, agent: AgentRecord) -> str | None:
    if agent.config.sandbox is None:
        return None
    try:
        return caller.sandboxes.get(agent.config.sandbox).name
    except NotFound:
        return None


def _next_tick(caller: PrincipalServices, agent: AgentRecord) -> Stamp | None:
    schedule = agent.config.schedule
    tick = schedule.next_after(caller.clock.now()) if schedule else None
    return stamp_of(tick) if tick else None


def _new_key(caller: PrincipalServices) -> str:
    """Return a key for a new conversation: the minute at which it begins."""
    return f"chat-{caller.clock.now():%Y-%m-%d-%H%M%S}"
