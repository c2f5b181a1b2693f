"""Ingress: where an event becomes a turn, once.

accept → wait in line → lease → brief → turn → outcome. Whoever waits for an answer works for it: when the
lease of the conversation is to be had, it takes what is first in line, and goes on until its own event is
done, so that the line moves as long as anyone waits, and no process has to live for another. Events that
nobody waits for any more are looked after by a job (`look_after`).

What ends a turn before its time:

- the caller cancels. The event that it brought is over: withdrawn while it waited, "interrupted" once it
  ran. One that somebody else brought, be it the same one earlier, is left as it stands for the next holder;
- the lease is lost. Nothing more is written; another process is at it, and we wait for what comes of it;
- the process dies. The next holder of the lease goes on with the turn where its entries end, a few times
  at most, and then reports it as failed;
- something breaks. Before the first entry the event is given back, after it the turn has failed; the
  line moves on either way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from weakref import WeakValueDictionary

from harness.agent import AgentRecord, Agents, dangling
from harness.allowance import Allowance
from harness.briefing import Briefing
from harness.conversation import Conversation, Conversations
from harness.crossing import in_thread, or_undone, to_the_end
from harness.event import Event
from harness.freshness import pull, push
from harness.inbox import Accepted, Inbox, Running, Waiting
from harness.models.port import Model
from harness.outcome import Ending, Outcome, ending_of, outcome_of
from harness.progress import Emit, Queued, silent
from harness.pulse import kept_alive
from harness.request import ModelFailure
from harness.tools.desk import Desk
from harness.tools.port import Tool, Toolset
from harness.tools.result import Results
from harness.tools.workshop import Workshop
from harness.turn import Turn, run_turn
from workspaces.claim import Claim
from workspaces.clock import Clock
from workspaces.errors import Busy, Conflict, Failure, LeaseLost, NotFound
from workspaces.ids import AgentId, ConversationId, TurnId, new_id
from workspaces.lease import Lease, Leases
from workspaces.records import JsonObject
from workspaces.revision import Author

ATTEMPTS_MAX = 3
"""A turn whose process died this often is what kills it."""

LOOK_S_MIN, LOOK_S_MAX = 0.01, 0.5
"""Between two looks at a conversation that another process is at: a turn takes seconds."""

State = Literal["queued", "running", "done", "failed", "refused"]


@dataclass(frozen=True, slots=True)
class EventStatus:
    """Where an event stands, for whoever did not wait."""

    event_id: str
    state: State
    conversation_id: ConversationId
    outcome: Outcome | None = None
    refusal: JsonObject | None = None
    """Why it was given back before anything happened; it may be sent again."""


class GivenBack(Failure):
    """The event failed before anything happened, in another process; it may be sent again."""

    def __init__(self, refusal: JsonObject) -> None:
        super().__init__(refusal["message"], remedy=refusal["remedy"])
        self.code = refusal["code"]


@dataclass(frozen=True, slots=True)
class Ingress:
    """Of one principal."""

    clock: Clock
    agents: Agents
    conversations: Conversations
    inbox: Inbox
    leases: Leases
    tools: tuple[Tool[Any], ...]
    allowance: Allowance
    open_model: Callable[[AgentRecord, ConversationId | None], Model]
    workshop: Callable[[], Workshop]
    results: Callable[[ConversationId], Results]
    _turnstiles: WeakValueDictionary[tuple[object, str], asyncio.Lock] = field(
        default_factory=WeakValueDictionary[tuple[object, str], asyncio.Lock]
    )
    """One waiter of this process contends for a conversation at a time."""

    async def deliver(self, agent: AgentRecord, event: Event, emit: Emit = silent) -> Outcome:
        """Process an event, or answer with what came of it before. What `accept` refuses is refused."""
        accepted = await self.accept(agent, event)
        return await self.answer(accepted, emit)

    async def accept(self, agent: AgentRecord, event: Event) -> Accepted:
        """Durably in line, from now on. Conflict, Busy, TooMany, NotFound."""
        rejects = (event.on_busy or agent.config.on_busy) == "reject"
        return await or_undone(
            lambda: self.inbox.accept(agent.id, event, rejects=rejects), self._given_up
        )

    async def answer(self, accepted: Accepted, emit: Emit = silent) -> Outcome:
        """What comes of an accepted event; until then, work for it."""
        try:
            if accepted.lease is not None:
                await self._work(accepted.conversation, accepted.lease, accepted, emit)
                return await self._awaited(accepted, emit)
            turnstile = self._turnstile(accepted.conversation)
            if turnstile.locked():
                emit(Queued(await in_thread(self.inbox.ahead, accepted)))
            async with turnstile:
                return await self._awaited(accepted, emit)
        except asyncio.CancelledError:
            if accepted.is_new:
                with suppress(Failure):  # then the job looks after it
                    await in_thread(self.inbox.withdraw, accepted)
            raise

    async def look_after(self, conversation_id: str) -> None:
        """Whatever is unfinished in a conversation. Busy while somebody is at it; LeaseLost."""
        try:
            conversation = await in_thread(self.conversations.get, conversation_id)
        except NotFound:  # deleted, and its events with it
            return
        lease = await self._acquired(conversation)
        async with self._leased(lease):
            await self._line(conversation, lease, None, silent)

    def status(self, agent_id: AgentId, event_id: str) -> EventStatus:
        """NotFound for an id that was never used, or more than a day ago."""
        claim = self.inbox.claim(self.inbox.claim_key(agent_id, event_id))
        if claim is None:
            raise NotFound("event", event_id)
        conversation = self.conversations.get(claim.about["conversation"])
        outcome = self._outcome(conversation, claim)
        state: State
        if claim.refusal is not None:
            state = "refused"
        elif outcome is not None:
            state = "failed" if outcome.status == "failed" else "done"
        elif self.inbox.is_running(conversation, claim.about["number"]):
            state = "running"
        else:
            state = "queued"
        return EventStatus(event_id, state, conversation.id, outcome, claim.refusal)

    async def _awaited(self, accepted: Accepted, emit: Emit) -> Outcome:
        """Work whenever the conversation is free, until the event is done."""
        pause, is_told = LOOK_S_MIN, False
        while (outcome := await in_thread(self._settled, accepted)) is None:
            try:
                lease = await self._acquired(accepted.conversation)
            except Busy:
                if not is_told:
                    emit(Queued(await in_thread(self.inbox.ahead, accepted)))
                    is_told = True
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, LOOK_S_MAX)
                continue
            await self._work(accepted.conversation, lease, accepted, emit)
            await asyncio.sleep(pause := LOOK_S_MIN)
        return outcome

    async def _acquired(self, conversation: Conversation) -> Lease:
        """Busy."""
        key = conversation.lease_key
        return await or_undone(lambda: self.leases.acquire(key), self.leases.release)

    async def _work(
        self, conversation: Conversation, lease: Lease, accepted: Accepted, emit: Emit
    ) -> None:
        """Move the line until our own event is done, or the lease is lost."""
        with suppress(LeaseLost):
            async with self._leased(lease):
                await self._line(conversation, lease, accepted, emit)

    async def _line(
        self, conversation: Conversation, lease: Lease, accepted: Accepted | None, emit: Emit
    ) -> None:
        while True:
            found = await in_thread(self.inbox.next, conversation, lease)
            if found is None or (accepted is not None and found.number > accepted.number):
                return
            is_mine = accepted is not None and found.number == accepted.number
            may_end = is_mine and accepted is not None and accepted.is_new
            at_it = _AtIt(self, conversation, lease, is_mine, may_end, emit if is_mine else silent)
            if isinstance(found, Waiting):
                await at_it.begin(found)
            else:
                await at_it.go_on(found)

    @asynccontextmanager
    async def _leased(self, lease: Lease) -> AsyncGenerator[None]:
        try:
            async with kept_alive(lambda: self.leases.renew(lease), self.leases.terms, lease.key):
                yield
        finally:
            with suppress(Failure):  # it ends by itself
                await to_the_end(self.leases.release, lease)

    def _given_up(self, accepted: Accepted) -> None:
        if accepted.lease is not None:
            self.leases.release(accepted.lease)
        if accepted.is_new:
            self.inbox.withdraw(accepted)

    def _turnstile(self, conversation: Conversation) -> asyncio.Lock:
        key = (asyncio.get_running_loop(), conversation.id)
        return self._turnstiles.setdefault(key, asyncio.Lock())

    def _settled(self, accepted: Accepted) -> Outcome | None:
        """None as long as it is on its way. GivenBack; NotFound when the conversation was deleted."""
        claim = self.inbox.claim(accepted.claim)
        if claim is None:
            raise NotFound("conversation", accepted.conversation.key)
        if claim.about["number"] != accepted.number:
            told = "it was given back, and sent again by somebody else"
            raise GivenBack({"code": "conflict", "message": told, "remedy": None})
        if claim.refusal is not None:
            raise GivenBack(claim.refusal)
        return self._outcome(accepted.conversation, claim)

    def _outcome(self, conversation: Conversation, claim: Claim) -> Outcome | None:
        if claim.outcome is None:
            return None
        ending = ending_of(claim.outcome)
        transcript = self.conversations.transcript(conversation)
        own = list(transcript.entries(ending.first, ending.last))
        return outcome_of(ending, conversation.id, own)


@dataclass(frozen=True, slots=True)
class _AtIt:
    """The holder of the lease, at one event. `is_mine`: somebody waits for it in this very call, and hears
    what goes wrong. `may_end`: they are the one who brought it, so their cancellation is its end."""

    ingress: Ingress
    conversation: Conversation
    lease: Lease
    is_mine: bool
    may_end: bool
    emit: Emit

    async def begin(self, waiting: Waiting) -> None:
        """Everything up to the first question to the model gives the event back when it fails. A turn
        that is gone on with was admitted when it began."""
        async with AsyncExitStack() as stack:
            begun = await self._begun(waiting, stack)
            if begun is not None:
                await self._begin(waiting, begun)

    async def _begun(self, waiting: Waiting, stack: AsyncExitStack) -> _Begun | None:
        """None when the event was given back."""
        account_id = self.conversation.account_id
        try:
            await stack.enter_async_context(self.ingress.allowance.admitted(account_id))
            return await in_thread(self._prepared, waiting.event, TurnId(new_id("turn")), None)
        except Exception as problem:  # whatever it is: the event must not stand in the way for ever
            why = problem if isinstance(problem, Failure) else Failure(_told(problem))
            give_back = (self.conversation, waiting, why, self.lease)
            await to_the_end(lambda: self.ingress.inbox.give_back(*give_back))
            if self.is_mine:
                raise
            return None

    async def _begin(self, waiting: Waiting, begun: _Begun) -> None:
        turn, inbox = begun.turn, self.ingress.inbox
        entry = turn.entry(waiting.event.message, event_id=waiting.event.id)
        running, also = inbox.beginning(self.conversation, waiting, turn.id, turn.first)
        try:
            await to_the_end(lambda: turn.transcript.append(entry, self.lease, *also))
        except Conflict as conflict:
            if conflict.name == str(waiting.item.key):
                return  # withdrawn in this instant
            raise LeaseLost(self.lease.key) from conflict
        except asyncio.CancelledError:
            if self.may_end:
                await self._fail(running, _INTERRUPTED)
            raise
        await self._run(running, begun.with_turn(turn.with_entry(entry)))

    async def go_on(self, running: Running) -> None:
        """With a turn that was interrupted, where it stopped."""
        if running.attempt >= ATTEMPTS_MAX:
            told = f"whoever ran it ended in the middle, {running.attempt} times"
            await self._fail(running, told)
            return
        inbox = self.ingress.inbox
        running = await in_thread(inbox.resume, self.conversation, running, self.lease)
        try:
            begun = await in_thread(self._prepared, running.event, running.turn_id, running.first)
        except Exception as problem:  # noqa: BLE001 - or the event would stand in the way for ever
            await self._fail(running, _told(problem))
            return
        await self._run(running, begun)

    async def _run(self, running: Running, begun: _Begun) -> None:
        try:
            turn, ending = await run_turn(
                begun.turn, model=begun.model, toolset=begun.toolset, emit=self.emit
            )
            changed = [change.workspace for entry in turn.entries for change in entry.changes]
            is_shared = await in_thread(push, begun.toolset.desk.mounts, changed)
        except LeaseLost:
            raise
        except BaseException as problem:
            is_end_of_process = not isinstance(problem, Exception)
            if is_end_of_process and not self.may_end:
                raise  # the next holder goes on with it
            await self._fail(running, _INTERRUPTED if is_end_of_process else _told(problem))
            if self.is_mine:
                raise
            return
        told = replace(ending, left_out=begun.left_out, is_shared=is_shared)
        await self._finish(running, told)

    async def _finish(self, running: Running, ending: Ending) -> None:
        finish = (self.conversation, running, ending, self.lease)
        await to_the_end(lambda: self.ingress.inbox.finish(*finish))

    async def _fail(self, running: Running, reason: str) -> None:
        newest = await in_thread(self.ingress.conversations.transcript(self.conversation).newest)
        last = newest.number if newest else running.first
        failure = ModelFailure("broken", reason, "say it again")
        ending = Ending("failed", running.turn_id, running.first, last, failure)
        await self._finish(running, ending)

    def _prepared(self, event: Event, turn_id: TurnId, first: int | None) -> _Begun:
        """The turn with all that it works on; `first` is the first entry of one that was interrupted."""
        ingress, conversation = self.ingress, self.conversation
        agent = ingress.agents.get(conversation.agent_id)
        model = ingress.open_model(agent, conversation.id)
        mounts = ingress.agents.bindings(agent)
        pull(mounts)
        transcript = ingress.conversations.transcript(conversation)
        window = transcript.window()
        first = window.next_number if first is None else first
        turn = Turn(
            turn_id,
            transcript,
            self.lease,
            ingress.clock,
            window.session,
            Briefing(agent.config, mounts, model=model.name),
            ingress.conversations.showing(conversation),
            agent.config.limits,
            tuple(entry for entry in window.entries if entry.number < first),
            first,
            tuple(entry for entry in window.entries if entry.number >= first),
        )
        seen = {key: version for entry in window.entries for key, version in entry.seen.items()}
        desk = Desk(
            mounts,
            _authorship(agent, conversation, turn_id, event, model),
            seen=seen,
            workshop=ingress.workshop(),
            results=ingress.results(conversation.id),
        )
        left_out = tuple(dangling(agent, mounts))
        return _Begun(turn, model, Toolset(ingress.tools, desk), left_out)


@dataclass(frozen=True, slots=True)
class _Begun:
    turn: Turn
    model: Model
    toolset: Toolset
    left_out: tuple[str, ...]
    """Mounts that lead nowhere."""

    def with_turn(self, turn: Turn) -> _Begun:
        return replace(self, turn=turn)


_INTERRUPTED = "the turn was interrupted"


def _told(problem: BaseException) -> str:
    return str(problem) if isinstance(problem, Failure) else f"{type(problem).__name__}: {problem}"


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
