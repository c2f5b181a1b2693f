"""The client: the calls of `Harness`, async, on a home that a server runs.

    async with Client("http://127.0.0.1:8642", key="wh_…") as client:
        print((await client.run("Remember that I like short answers.")).reply)

A message has an id of its own from the start. So the client sends it again until this server, or the next one
at that address, answers it; it is processed once. A stream that was cut goes on where it stopped. Other calls
that change data are sent once: a caller that gets no response has to look. Disconnecting does not cancel a
turn.
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
from harness.client.facts import FactRows
from harness.client.local_tools import declared, results_of
from harness.client.memorize import MemorizeClient
from harness.client.memory import MemoryClient
from harness.client.records import Agents, RecordReference, Records, reference_of
from harness.client.responses import outcome_of, pending_of
from harness.client.runs import RunClient
from harness.messages.event import Answer, Approval, OnBusy
from harness.messages.memory_policy import MemoryPolicy, PolicyKeys
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
"""Seconds to wait for an unreachable server before giving up an event. A restarted server is back by then."""
PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 2.0

AGENT = "assistant"
"""The agent that a new home has."""

Hearing = Callable[[StreamEvent], None]
Tools = Sequence[CustomTool | Callable[..., Any]]


def _ignore(event: StreamEvent) -> None:
    del event


class Client:
    """A client for one event loop. Use it as an async context manager, or call `close`.

    An agent or a workspace is named by its id, its name, or its record.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        user: str | None = None,
        patience_s: float = PATIENCE_S,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Create a client. With a key of an account, `user` names the user to act as, by id or by a
        platform's own id."""
        known = {} if key is None else {"Authorization": f"Bearer {key}"}
        headers = known if user is None else {**known, "X-Harness-User": user}
        self._connection = Connection(url, headers, transport)
        self._patience_s = patience_s
        self.workspaces = Records(self._connection, "workspaces")
        self.agents = Agents(self._connection)
        self.users = Records(self._connection, "users")
        self.sandboxes = Records(self._connection, "sandboxes")
        self.memory = MemoryClient(self._connection)
        self.memories = MemorizeClient(self._connection)
        self.runs = RunClient(self._connection)

    @classmethod
    def within(cls, app: App, key: str | None = None, *, user: str | None = None) -> Client:
        """Return a client for an app in this process, made by `create_app`, that no other server runs."""
        return cls(URL, key, user=user, transport=AsgiTransport(app))

    def workspace_facts(self, workspace: RecordReference) -> FactRows:
        """Return the facts of a workspace."""
        return FactRows(self._connection, "workspaces", workspace)

    def agent_facts(self, agent: RecordReference = AGENT) -> FactRows:
        """Return the facts of an agent."""
        return FactRows(self._connection, "agents", agent)

    # turns

    async def run(
        self,
        text: str,
        *,
        agent: RecordReference = AGENT,
        conversation: str | None = None,
        event_id: str | None = None,
        system: str | None = None,
        memory_policy: MemoryPolicy | PolicyKeys | None = None,
        on_busy: OnBusy | None = None,
        tools: Tools = (),
        hear: Hearing = _ignore,
    ) -> Outcome:
        """Send a message to an agent and wait for the outcome.

        `conversation` is the conversation's key; without it a new one begins. The keys of `memory_policy`
        replace those of the agent's. `tools` are functions that the
        agent can call in this turn; they run in this process. `hear` is called with every event of the stream
        meanwhile.
        """
        own = custom_tools(tools, ())
        policy = MemoryPolicy.of(memory_policy)
        body: JsonObject = {
            "eventId": new_id("evt") if event_id is None else event_id,
            "conversationKey": new_id("c") if conversation is None else conversation,
            "events": [{"type": "user", "content": text}],
            **({} if system is None else {"system": system}),
            **({} if policy is None else {"memory_policy": policy.as_json()}),
            **({} if on_busy is None else {"onBusy": on_busy}),
            **({"tools": declared(own)} if own else {}),
        }
        outcome = await self._outcome(_turns(agent), body, hear)
        return await self._run_local_tools(outcome, own, hear)

    async def answer(
        self,
        conversation_id: str,
        *answers: Answer,
        event_id: str | None = None,
        tools: Tools = (),
        hear: Hearing = _ignore,
    ) -> Outcome:
        """Answer pending calls, and wait for the outcome of the turn. The turn resumes when no call is
        pending any more.

        `tools` as in `run`, for calls that come later.
        """
        found = await self.conversation(conversation_id)
        body: JsonObject = {
            "eventId": new_id("evt") if event_id is None else event_id,
            "conversationKey": found["key"],
            "events": [one.as_json() for one in answers],
        }
        outcome = await self._outcome(_turns(found["agentId"]), body, hear)
        return await self._run_local_tools(outcome, custom_tools(tools, ()), hear)

    async def approve(
        self,
        conversation_id: str,
        call_id: str | None = None,
        *,
        is_allowed: bool = True,
        reason: str | None = None,
        tools: Tools = (),
        hear: Hearing = _ignore,
    ) -> Outcome:
        """Approve a pending call, or deny it; without `call_id` all calls that need approval."""
        waiting = await self.pending(conversation_id)
        ids = [one.id for one in waiting if one.asked.waits_for == "approval"]
        ids = ids if call_id is None else [call_id]
        if not ids:
            raise nothing_waits(None)
        approvals = [Approval(call_id=one, is_allowed=is_allowed, reason=reason) for one in ids]
        return await self.answer(conversation_id, *approvals, tools=tools, hear=hear)

    async def pending(self, conversation_id: str) -> tuple[PendingCall, ...]:
        """Return the pending calls of a conversation."""
        found = await self.ask("GET", f"{_conversation(conversation_id)}/approvals")
        return tuple(map(pending_of, found["approvals"]))

    async def cancel(self, conversation_id: str) -> bool:
        """Cancel the turn that runs or waits in a conversation, on any server. Return False when there is
        none."""
        return (await self.ask("POST", f"{_conversation(conversation_id)}/cancel"))["cancelled"]

    async def status(
        self, event_id: str, *, agent: RecordReference = AGENT, wait_s: float = 0
    ) -> JsonObject:
        """Return the status of an event. With `wait_s`, wait so long for its end, 60 s at most."""
        path = f"{_agent(agent)}/events/{quote(event_id, safe='')}"
        return await self.ask("GET", path, wait=wait_s)

    async def follow(
        self, event_id: str, *, agent: RecordReference = AGENT, after: int = 0
    ) -> AsyncGenerator[StreamEvent]:
        """Yield the events of a turn, from behind the entry `after` up to its outcome."""
        path = f"{_agent(agent)}/events/{quote(event_id, safe='')}/stream"
        async with aclosing(self._stream("GET", path, None, after)) as events:
            async for event in events:
                yield event

    # conversations

    async def conversations(self, agent: RecordReference = AGENT) -> AsyncGenerator[JsonObject]:
        """Yield the caller's conversations with an agent, the newest first."""
        async for one in self._pages(f"{_agent(agent)}/conversations", "conversations"):
            yield one

    async def conversation(self, conversation_id: str) -> JsonObject:
        return await self.ask("GET", _conversation(conversation_id))

    async def entries(
        self, conversation_id: str, *, after: int = 0, newest: bool = False
    ) -> AsyncGenerator[JsonObject]:
        """Yield the entries of a conversation from behind the entry `after` on; with `newest`, backwards
        from the end."""
        place = {"cursor": str(after)} if after else {}
        path = f"{_conversation(conversation_id)}/entries"
        async for one in self._pages(path, "entries", newest=newest, **place):
            yield one

    async def fork_conversation(
        self, conversation_id: str, key: str, *, at: int | None = None
    ) -> JsonObject:
        """Create a conversation that begins with the entries of this one, up to number `at` or all."""
        fields = {"key": key, **({} if at is None else {"at": at})}
        return await self.ask("POST", f"{_conversation(conversation_id)}/fork", fields)

    async def reset_conversation(self, conversation_id: str) -> JsonObject:
        """Start a new session of the conversation, and return it. Nothing is lost; the agent starts
        afresh."""
        return await self.ask("POST", f"{_conversation(conversation_id)}/reset")

    async def delete_conversation(self, conversation_id: str) -> None:
        await self.ask("DELETE", _conversation(conversation_id))

    # files

    async def read(
        self, workspace: RecordReference, path: str, *, revision: str | None = None
    ) -> File:
        """Return a file as it is, or as it was in a revision."""
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
        """Write a file as a revision of its own. With `expect`, write only if this version is there.

        Raises: Conflict if another version is there.
        """
        data = as_bytes(content) if isinstance(content, str) else content
        path, headers = _file(workspace, path), _conditions(expect)
        return (await self._connection.ask("PUT", path, data=data, headers=headers)).json

    async def delete(
        self, workspace: RecordReference, path: str, *, expect: Version | Wildcard = ANY
    ) -> None:
        """Delete a file. Its last version stays in the history."""
        await self._connection.ask("DELETE", _file(workspace, path), headers=_conditions(expect))

    async def files(self, workspace: RecordReference, prefix: str = "") -> list[JsonObject]:
        """Return path, size and version of each file."""
        return (await self.ask("GET", _workspace(workspace) + "/files", prefix=prefix))["files"]

    # the rest

    async def usage(self, *, by: str = "day", **query: str) -> JsonObject:
        """Return the usage of the account's models and its cost; `since` and `until` are days."""
        return await self.ask("GET", "/v1/usage", by=by, **query)

    async def ask(self, method: str, path: str, fields: object = None, **query: str | float) -> Any:
        """Call any route of docs/http.md that answers with JSON, once, and return the JSON."""
        texts = {name: _query_text(value) for name, value in query.items()}
        return (await self._connection.ask(method, path, fields=fields, query=texts)).json

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

    async def _outcome(self, path: str, body: JsonObject, hear: Hearing) -> Outcome:
        last: JsonObject = {}
        stream = self._stream("POST", path, {**body, "stream": True}, 0)
        async with aclosing(stream) as events:
            async for event in events:
                hear(event)
                last = event.data
        return outcome_of(last)

    async def _run_local_tools(
        self, outcome: Outcome, own: Sequence[CustomTool], hear: Hearing
    ) -> Outcome:
        """Call the caller's own functions as often as the turn asks for them. Return the final outcome."""
        while results := await results_of(outcome, own):
            outcome = await self.answer(outcome.conversation_id, *results, hear=hear)
        return outcome

    async def _stream(
        self, method: str, path: str, body: JsonObject | None, after: int
    ) -> AsyncGenerator[StreamEvent]:
        """Yield the events of a turn, however often the stream is cut. The last one is the outcome."""
        patience = _Patience(self._patience_s)
        while True:
            cut = unreachable(self._connection.url, "the stream ends before its first event")
            try:
                stream = self._connection.stream(method, path, fields=body, after=after)
                async with stream as events:
                    async for event in events:
                        if event.name == "reconnect":
                            break
                        patience.renew()
                        if event is SIGN:
                            continue
                        if event.name == "refused":
                            raise given_back(event.data["error"])
                        after = event.entry or after
                        yield event
                        if event.name == "outcome":
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
            if page["nextCursor"] is None:
                return
            query["cursor"] = page["nextCursor"]


class _Patience:
    """The time left to wait for a server that cuts the stream or does not answer, since its last sign of
    life."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._pause_s = PAUSE_S_MIN
        self._since: float | None = None

    async def spend(self, cut: Unavailable) -> None:
        """Wait a moment before the next attempt.

        Raises: `cut`, the reason, when the time is over.
        """
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
    """Return the address of a file. The path is parsed here, so that no part of it is taken for another
    address."""
    return f"{_workspace(workspace)}/files/{quote(WorkspacePath(path))}"


def _conditions(expect: Version | Wildcard) -> dict[str, str]:
    match expect:
        case Wildcard.ANY:
            return {}
        case Wildcard.ABSENT:
            return {"If-None-Match": "*"}
        case version:
            return {"If-Match": f'"{version}"'}


def _query_text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
