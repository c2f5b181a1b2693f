"""The inbox: where an event becomes a turn, once.

claim → conversation → lease → brief → turn → outcome. What fails before the model was asked gives the
claim back, so that the event may be sent again; after that the outcome is stored with the claim, and
a repetition is answered with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from harness.agent import AgentRecord, Agents
from harness.briefing import brief
from harness.conversation import Conversation, Conversations
from harness.crossing import in_thread
from harness.event import Event, full_key
from harness.message import user
from harness.models.port import Model
from harness.progress import Emit
from harness.request import ModelFailure, Usage
from harness.tools.desk import Change, Desk
from harness.tools.port import Tool, Toolset
from harness.tools.result import Results
from harness.tools.workshop import Workshop
from harness.transcript import Transcript
from harness.turn import Outcome, Turn, run_turn
from workspaces.account import Principal
from workspaces.blobs import BlobStore
from workspaces.claim import Claims
from workspaces.errors import Failure, LeaseLost
from workspaces.ids import ConversationId, TurnId, lease_key, new_id
from workspaces.lease import LEASE_S, RENEW_S, STOP_EARLY_S, Lease, Leases
from workspaces.records import JsonObject, RecordStore
from workspaces.revision import Author


@dataclass(frozen=True, slots=True)
class Inbox:
    principal: Principal
    records: RecordStore
    large: BlobStore
    agents: Agents
    conversations: Conversations
    claims: Claims
    leases: Leases
    tools: tuple[Tool[Any], ...]
    open_model: Callable[[AgentRecord], Model]
    workshop: Callable[[], Awaitable[Workshop]]

    async def deliver(self, agent: AgentRecord, event: Event, emit: Emit) -> Outcome:
        """Process an event, or answer with what came of it before. Busy, Conflict."""
        account_id = self.principal.account_id
        claim = await in_thread(self.claims.claim, account_id, event.id, event.body_hash)
        if claim.outcome is not None:
            return _outcome_of(claim.outcome)
        begun: _Begun | None = None
        try:
            conversation = await in_thread(
                self.conversations.open, agent.id, event.conversation_key
            )
            key = lease_key(full_key(account_id, agent.id, event.conversation_key))
            async with self._leased(key) as lease:
                begun = await self._begin(agent, event, conversation, lease)
                outcome = await begun.run(emit)
        except BaseException:
            if begun is None:
                await in_thread(self.claims.release, claim)
            else:
                await in_thread(self.claims.finish, claim, begun.interrupted().as_json())
            raise
        await in_thread(self.claims.finish, claim, outcome.as_json())
        return outcome

    async def _begin(
        self, agent: AgentRecord, event: Event, conversation: Conversation, lease: Lease
    ) -> _Begun:
        """Everything up to the first question to the model."""
        turn_id = TurnId(new_id("turn"))
        model = self.open_model(agent)
        mounts = await in_thread(self.agents.bindings, agent)
        transcript = Transcript(conversation.id, self.records, self.large)
        entries = await in_thread(transcript.load)
        turn = Turn(
            turn_id,
            conversation.id,
            transcript,
            lease,
            await in_thread(brief, agent.config.system, mounts),
            tuple(entry.message for entry in entries),
            len(entries) + 1,
            agent.config.limits,
        )
        seen = {key: version for entry in entries for key, version in entry.seen.items()}
        desk = Desk(
            mounts,
            _authorship(agent, conversation, turn_id, event, model),
            seen=seen,
            workshop=await self.workshop(),
            results=Results(conversation.id, self.large),
        )
        return _Begun(await turn.append(user(event.content)), model, self.tools, desk)

    @asynccontextmanager
    async def _leased(self, key: str) -> AsyncGenerator[Lease]:
        """The lease of a conversation, kept alive while the body runs; the body is cancelled in
        good time when it cannot be."""
        lease = await in_thread(self.leases.acquire, key)
        holder = asyncio.current_task()
        pulse = asyncio.create_task(self._keep(lease, holder))
        try:
            yield lease
        except asyncio.CancelledError:
            if pulse.done() and not pulse.cancelled():
                raise LeaseLost(key) from None
            raise
        finally:
            pulse.cancel()
            await in_thread(self.leases.release, lease)

    async def _keep(self, lease: Lease, holder: asyncio.Task[Any] | None) -> None:
        """Renew until cancelled. Returns, cancelling the holder, when the lease cannot be kept."""
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while loop.time() - renewed < LEASE_S - STOP_EARLY_S - RENEW_S:
            await asyncio.sleep(RENEW_S)
            try:
                await in_thread(self.leases.renew, lease)
                renewed = loop.time()
            except LeaseLost:
                break
            except Failure:
                continue  # a store that does not answer may answer the next time
        if holder is not None:
            holder.cancel()


@dataclass(frozen=True, slots=True)
class _Begun:
    """A turn whose model may have been asked."""

    turn: Turn
    model: Model
    tools: tuple[Tool[Any], ...]
    desk: Desk

    async def run(self, emit: Emit) -> Outcome:
        toolset = Toolset(self.tools, self.desk)
        outcome = await run_turn(self.turn, model=self.model, toolset=toolset, emit=emit)
        return replace(outcome, changes=tuple(self.desk.changes))

    def interrupted(self) -> Outcome:
        failure = ModelFailure("broken", "the turn was interrupted", "say it again")
        outcome = self.turn.ended("failed", failure=failure)
        return replace(outcome, changes=tuple(self.desk.changes))


def _authorship(
    agent: AgentRecord, conversation: Conversation, turn_id: TurnId, event: Event, model: Model
) -> Callable[[str], Author]:
    trailers = {
        "Agent": agent.id,
        "Conversation": f"{conversation.id} {conversation.key}",
        "Turn": turn_id,
        "Event": event.id,
        "Model": model.name,
    }
    return lambda call_id: Author(agent.name, agent.id, "turn", {**trailers, "Call": call_id})


def _outcome_of(data: JsonObject) -> Outcome:
    usage, error = data["usage"], data.get("error")
    return Outcome(
        data["outcome"],
        data["reply"],
        ConversationId(data["conversation"]),
        TurnId(data["turn"]),
        Usage(usage["input"], usage["output"], usage["cacheRead"], usage["cacheWrite"]),
        tuple(Change(change["workspace"], change["revision"]) for change in data["revisions"]),
        ModelFailure(error["code"], error["message"], error["remedy"]) if error else None,
    )
