"""The client: the calls of `Harness`, async, on a home that a server keeps.

    async with Client("http://127.0.0.1:8642", key="wh_…") as client:
        print((await client.run("Remember that I like short answers.")).reply)

What is said has an id of its own from the start, so it is sent again until it is answered, by this server or
by the next one at that address, and is answered once; and what is told of it goes on where it was cut. What
else changes something is sent once: whoever does not hear of it looks. Nobody ends a turn by leaving.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx2

from harness.client.asgi_transport import URL, App, AsgiTransport
from harness.client.connection import SIGN, Connection, StreamEvent
from harness.client.errors import given_back, unreachable
from harness.client.local_tools import declared, results_of
from harness.client.records import Agents, RecordReference, Records, reference_of
from harness.client.responses import outcome_of, pending_of
from harness.messages.event import Answer, Approval, OnBusy
from harness.messages.pending_call import PendingCall
from harness.tools.custom import CustomTool, custom_tools
from harness.transcripts.approval import nothing_waits
from harness.transcripts.outcome import Outcome
from workspaces.conditions import ANY, Wildcard
from workspaces.errors import Unavailable
from workspaces.file import File, as_bytes
from workspaces.ids import Version, new_id
from workspaces.paths import WorkspacePath
from workspaces.storage.records import JsonObject

PATIENCE_S = 60.0
"""For a server that is not there, before an event is given up: by then one that was replaced is back."""
PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 2.0

AGENT = "assistant"
"""The one that a home is born with."""

Hearing = Callable[[StreamEvent], None]
Tools = Sequence[CustomTool | Callable[..., Any]]


def _unheard(told: StreamEvent) -> None:
    del told


class Client:
    """Use it as an async context manager, or call `close`; in one event loop. An agent or a workspace is
    named by its id, its name, or the record of it."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        user: str | None = None,
        patience_s: float = PATIENCE_S,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """`user`: for whom a key of the account acts, by id or by the platform's own."""
        known = {} if key is None else {"Authorization": f"Bearer {key}"}
        headers = known if user is None else {**known, "X-Harness-User": user}
        self._connection = Connection(url, headers, transport)
        self._patience_s = patience_s
        self.workspaces = Records(self._connection, "workspaces")
        self.agents = Agents(self._connection)
        self.users = Records(self._connection, "users")
        self.sandboxes = Records(self._connection, "sandboxes")

    @classmethod
    def within(cls, app: App, key: str | None = None, *, user: str | None = None) -> Client:
        """On an app in this process, as `create_app` makes it, which nobody else serves."""
        return cls(URL, key, user=user, transport=AsgiTransport(app))

    # turns

    async def run(
        self,
        text: str,
        *,
        agent: RecordReference = AGENT,
        conversation: str | None = None,
        event_id: str | None = None,
        system: str | None = None,
        on_busy: OnBusy | None = None,
        tools: Tools = (),
        hear: Hearing = _unheard,
    ) -> Outcome:
        """Say something to an agent and wait for what comes of it.

        `conversation` is its key, else it is a new one. `tools`: functions that the agent can call in this
        turn; they are run here. `hear` is called with whatever is told meanwhile.
        """
        own = custom_tools(tools, ())
        body: JsonObject = {
            "eventId": new_id("evt") if event_id is None else event_id,
            "conversationKey": new_id("c") if conversation is None else conversation,
            "events": [{"type": "user", "content": text}],
            **({} if system is None else {"system": system}),
            **({} if on_busy is None else {"onBusy": on_busy}),
            **({"tools": declared(own)} if own else {}),
        }
        outcome = await self._heard(_turns(agent), body, hear)
        return await self._with_own(outcome, own, hear)

    async def answer(
        self,
        conversation_id: str,
        *answers: Answer,
        event_id: str | None = None,
        tools: Tools = (),
        hear: Hearing = _unheard,
    ) -> Outcome:
        """Answer calls that wait, and wait for what comes of the turn: it goes on when none waits any more.
        `tools` as in `run`, for calls that come then."""
        found = await self.conversation(conversation_id)
        body: JsonObject = {
            "eventId": new_id("evt") if event_id is None else event_id,
            "conversationKey": found["key"],
            "events": [one.as_json() for one in answers],
        }
        outcome = await self._heard(_turns(found["agentId"]), body, hear)
        return await self._with_own(outcome, custom_tools(tools, ()), hear)

    async def approve(
        self,
        conversation_id: str,
        call_id: str | None = None,
        *,
        is_allowed: bool = True,
        reason: str | None = None,
        tools: Tools = (),
        hear: Hearing = _unheard,
    ) -> Outcome:
        """Allow a call that waits, or deny it; without `call_id` all that wait for that."""
        waiting = await self.pending(conversation_id)
        ids = [one.id for one in waiting if one.asked.waits_for == "approval"]
        ids = ids if call_id is None else [call_id]
        if not ids:
            raise nothing_waits(None)
        approvals = [Approval(call_id=one, is_allowed=is_allowed, reason=reason) for one in ids]
        return await self.answer(conversation_id, *approvals, tools=tools, hear=hear)

    async def pending(self, conversation_id: str) -> tuple[PendingCall, ...]:
        """The calls that wait in it."""
        found = await self.ask("GET", f"{_conversation(conversation_id)}/approvals")
        return tuple(map(pending_of, found["pending"]))

    async def cancel(self, conversation_id: str) -> bool:
        """End the turn that runs or waits in it, whichever server runs it. False when there is none."""
        return (await self.ask("POST", f"{_conversation(conversation_id)}/cancel"))["cancelled"]

    async def status(
        self, event_id: str, *, agent: RecordReference = AGENT, wait_s: float = 0
    ) -> JsonObject:
        """Where an event stands; `wait_s`: as soon as it is settled, or after so long, 60 s at most."""
        path = f"{_agent(agent)}/events/{quote(event_id, safe='')}"
        return await self.ask("GET", path, wait=wait_s)

    async def follow(
        self, event_id: str, *, agent: RecordReference = AGENT, after: int = 0
    ) -> AsyncGenerator[StreamEvent]:
        """What is told of an event, from behind the entry `after` on to its outcome."""
        path = f"{_agent(agent)}/events/{quote(event_id, safe='')}/stream"
        async with aclosing(self._followed("GET", path, None, after)) as telling:
            async for told in telling:
                yield told

    # conversations

    async def conversations(self, agent: RecordReference = AGENT) -> AsyncGenerator[JsonObject]:
        """One's own with an agent, the newest first."""
        async for one in self._pages(f"{_agent(agent)}/conversations", "conversations"):
            yield one

    async def conversation(self, conversation_id: str) -> JsonObject:
        return await self.ask("GET", _conversation(conversation_id))

    async def entries(
        self, conversation_id: str, *, after: int = 0, newest: bool = False
    ) -> AsyncGenerator[JsonObject]:
        """What was said in it, from behind the entry `after` on; `newest`: from the end back."""
        place = {"cursor": str(after)} if after else {}
        path = f"{_conversation(conversation_id)}/entries"
        async for one in self._pages(path, "entries", newest=newest, **place):
            yield one

    async def fork_conversation(
        self, conversation_id: str, key: str, *, at: int | None = None
    ) -> JsonObject:
        """A new one that begins with the entries of this one, up to number `at` or all."""
        fields = {"key": key, **({} if at is None else {"at": at})}
        return await self.ask("POST", f"{_conversation(conversation_id)}/fork", fields)

    async def reset_conversation(self, conversation_id: str) -> JsonObject:
        """Nothing is lost, and the agent starts afresh: the session that begins."""
        return await self.ask("POST", f"{_conversation(conversation_id)}/reset")

    async def delete_conversation(self, conversation_id: str) -> None:
        await self.ask("DELETE", _conversation(conversation_id))

    # files

    async def read(
        self, workspace: RecordReference, path: str, *, revision: str | None = None
    ) -> File:
        """A file, as it is or was."""
        query = {} if revision is None else {"revision": revision}
        answer = await self._connection.ask("GET", _file(workspace, path), query=query)
        return File(WorkspacePath(path), answer.body)

    async def write(
        self,
        workspace: RecordReference,
        path: str,
        content: str | bytes,
        *,
        expect: Version | Wildcard = ANY,
    ) -> JsonObject:
        """As a revision of its own; `expect`: only if this version is there. Conflict."""
        data = as_bytes(content) if isinstance(content, str) else content
        path, headers = _file(workspace, path), _conditions(expect)
        return (await self._connection.ask("PUT", path, data=data, headers=headers)).json

    async def delete(
        self, workspace: RecordReference, path: str, *, expect: Version | Wildcard = ANY
    ) -> None:
        """Its last version stays in the history."""
        await self._connection.ask("DELETE", _file(workspace, path), headers=_conditions(expect))

    async def files(self, workspace: RecordReference, prefix: str = "") -> list[JsonObject]:
        """Path, size and version of each."""
        return await self.ask("GET", _workspace(workspace) + "/files", prefix=prefix)

    # the rest

    async def usage(self, *, by: str = "day", **query: str) -> JsonObject:
        """What the account's models have used up, and what it cost; `since` and `until` are days."""
        return await self.ask("GET", "/v1/usage", by=by, **query)

    async def ask(self, method: str, path: str, fields: object = None, **query: str | float) -> Any:
        """Any route of docs/http.md that answers with JSON, once."""
        stated = {name: _stated(value) for name, value in query.items()}
        return (await self._connection.ask(method, path, fields=fields, query=stated)).json

    async def close(self) -> None:
        await self._connection.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _heard(self, path: str, body: JsonObject, hear: Hearing) -> Outcome:
        last: JsonObject = {}
        followed = self._followed("POST", path, {**body, "stream": True}, 0)
        async with aclosing(followed) as telling:
            async for told in telling:
                hear(told)
                last = told.data
        return outcome_of(last)

    async def _with_own(
        self, outcome: Outcome, own: Sequence[CustomTool], hear: Hearing
    ) -> Outcome:
        """With the calls of one's own functions made, as often as there are some."""
        while results := await results_of(outcome, own):
            outcome = await self.answer(outcome.conversation_id, *results, hear=hear)
        return outcome

    async def _followed(
        self, method: str, path: str, body: JsonObject | None, after: int
    ) -> AsyncGenerator[StreamEvent]:
        """The last one is its outcome, however often the stream is cut."""
        patience = _Patience(self._patience_s)
        while True:
            cut = unreachable(self._connection.url, "it breaks off before anything is told")
            try:
                asked = self._connection.told(method, path, fields=body, after=after)
                async with asked as telling:
                    async for told in telling:
                        if told.name == "reconnect":
                            break
                        patience.renew()
                        if told is SIGN:
                            continue
                        if told.name == "refused":
                            raise given_back(told.data["error"])
                        after = told.entry or after
                        yield told
                        if told.name == "outcome":
                            return
            except Unavailable as failure:
                cut = failure
            await patience.spend(cut)

    async def _pages(
        self, path: str, name: str, **query: str | float
    ) -> AsyncGenerator[JsonObject]:
        while True:
            page = await self.ask("GET", path, **query)
            for one in page[name]:
                yield one
            if page["next"] is None:
                return
            query["cursor"] = page["next"]


class _Patience:
    """With a server that breaks off, or is not there, and has given no sign of life for so long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._pause_s = PAUSE_S_MIN
        self._since: float | None = None

    async def spend(self, cut: Unavailable) -> None:
        """Wait a moment before it is asked again; raises what has cut it, once there was time enough."""
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        if now + self._pause_s > self._since + self._seconds:
            raise cut
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)


def _agent(agent: RecordReference) -> str:
    return f"/v1/agents/{reference_of(agent)}"


def _turns(agent: RecordReference) -> str:
    return f"{_agent(agent)}/turns"


def _conversation(conversation_id: str) -> str:
    return f"/v1/conversations/{quote(conversation_id, safe='')}"


def _workspace(workspace: RecordReference) -> str:
    return f"/v1/workspaces/{reference_of(workspace)}"


def _file(workspace: RecordReference, path: str) -> str:
    """Parsed here, so that no part of a path is taken for one of the address."""
    return f"{_workspace(workspace)}/files/{quote(WorkspacePath(path))}"


def _conditions(expect: Version | Wildcard) -> dict[str, str]:
    match expect:
        case Wildcard.ANY:
            return {}
        case Wildcard.ABSENT:
            return {"If-None-Match": "*"}
        case version:
            return {"If-Match": f'"{version}"'}


def _stated(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
