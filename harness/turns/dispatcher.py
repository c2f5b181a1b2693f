"""Ingress: where an event becomes a turn, once.

accept → wait in line → lease → brief → turn → outcome. An event that nothing is before, and whose sender
waits for the answer, is not kept waiting: brief → accept, lease and first entry in one batch → turn →
outcome. What was briefed is thrown away when somebody was faster, and the event goes the long way.

Whoever waits for an answer works for it: when the lease of the conversation is to be had, it takes what is
first in line, and goes on until its own event is done, so that the line moves as long as anyone waits, and
no process has to live for another. Events that nobody waits for any more are looked after by a job
(`look_after`).

What ends a turn before its time:

- its time is up, or somebody wants it to end (`cancel`), here or in another process: calls that were under
  way get a result that says so, and the outcome is "out_of_time" or "interrupted";
- the caller cancels. The event that it brought is over: withdrawn while it waited, "interrupted" once it
  ran. One that somebody else brought, be it the same one earlier, is left as it stands for the next holder;
- the lease is lost. Nothing more is written; another process is at it, and we wait for what comes of it;
- the process dies. The next holder of the lease goes on with the turn where its entries end, a few times
  at most, and then reports it as failed;
- something breaks. Before the first entry the event is given back, after it the turn has failed; the
  line moves on either way.

A turn may rest meanwhile: a call of it waits for a person or for the client. Then the lease is let go, and
the next event answers the call, and the same turn goes on; or it says something else, and ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from harness.agents.record import AgentRecord
from harness.conversations.conversation import Conversation
from harness.conversations.event_queue import Opening, QueuedEvent
from harness.conversations.event_status import EventStatus, GivenBack, state_of
from harness.conversations.queue_state import NextEvent
from harness.jobs.heartbeat import kept_alive
from harness.messages.client_tool import check_names
from harness.messages.event import Event
from harness.messages.pending_call import PendingCall
from harness.messages.progress import Emit, Queued, silent
from harness.prompts.compaction import Compacted
from harness.runtime.async_bridge import (
    ForGood,
    handing_up,
    run_in_thread,
    run_or_abandon,
    run_or_undo,
    run_shielded,
)
from harness.transcripts.approval import pending
from harness.transcripts.outcome import Ending, Outcome, ending_of, outcome_of
from harness.turns.broadcast import Channel, ChannelClosed, Subscriber, both
from harness.turns.turn_dependencies import TurnDependencies
from harness.turns.turn_runner import Opened, TurnRunner
from workspaces.coordination.lease import Lease
from workspaces.errors import Busy, Conflict, Failure, LeaseLost, NotFound
from workspaces.ids import AgentId

LOOK_S_MIN, LOOK_S_MAX = 0.01, 0.5
"""Between two looks at a conversation that another process is at: a turn takes seconds. The end of one that
runs in this process is heard at once."""

BEGIN_S_MAX = 5.0
"""For the turn of an event that was just accepted to begin, when somebody wants it to end: opening workspaces
takes seconds where they are shared."""


@dataclass(frozen=True, slots=True)
class Dispatcher(TurnDependencies):
    """Of one principal."""

    _turnstiles: WeakValueDictionary[tuple[object, str], asyncio.Lock] = field(
        default_factory=WeakValueDictionary[tuple[object, str], asyncio.Lock]
    )
    """One waiter of this process contends for a conversation at a time."""

    async def run(self, agent: AgentRecord, event: Event, emit: Emit = silent) -> Outcome:
        """Process an event, or answer with what came of it before. What `accept` refuses is refused."""
        async with self._turnstile(f"{agent.id} {event.conversation_key}"):  # first come, first in
            found = await self._received(agent, event, emit)
        if isinstance(found, QueuedEvent):
            return await self.wait(found, emit)
        outcome = None
        with suppress(LeaseLost):
            async with self._leased(found.runner.lease):
                outcome = await found.run()
        return outcome or await self._awaited(found.accepted, emit)

    async def enqueue(self, agent: AgentRecord, event: Event) -> QueuedEvent:
        """Durably in line, from now on. Conflict, Busy, TooMany, NotFound, Forbidden, Refused."""
        rejects = self._checked(agent, event)
        return await run_or_undo(
            lambda: self.event_queue.accept(agent.id, event, rejects=rejects), self._given_up
        )

    async def wait(self, accepted: QueuedEvent, emit: Emit = silent) -> Outcome:
        """What comes of an accepted event; until then, work for it."""
        try:
            if accepted.lease is not None:
                await self._work(accepted.conversation, accepted.lease, accepted, emit)
                return await self._awaited(accepted, emit)
            turnstile = self._turnstile(accepted.conversation.id)
            if turnstile.locked():
                emit(Queued(await run_in_thread(self.event_queue.ahead, accepted)))
            async with turnstile:
                return await self._awaited(accepted, emit)
        except asyncio.CancelledError:
            if accepted.is_new:
                with suppress(Failure):  # then the job looks after it
                    await run_in_thread(self.event_queue.withdraw, accepted)
            raise

    async def look_after(self, conversation_id: str) -> None:
        """Whatever is unfinished in a conversation. Busy while somebody is at it; LeaseLost."""
        try:
            conversation = await run_in_thread(self.conversations.get, conversation_id)
        except NotFound:  # deleted, and its events with it
            return
        lease = await self._acquired(conversation)
        async with self._leased(lease):
            await self._line(conversation, lease, None, silent)

    async def compact(self, conversation: Conversation, emit: Emit = silent) -> Compacted:
        """Summarise the beginning of a conversation now, however short it is. Busy while a turn runs, waits
        or was interrupted; LeaseLost."""
        lease = await run_or_undo(
            lambda: self.conversations.acquire(conversation), self.leases.release
        )
        async with self._leased(lease):
            await run_in_thread(self.conversations.check_at_rest, conversation)
            with self.broadcaster.stage(conversation.id) as stage:
                holder = TurnRunner(
                    self, conversation, lease, True, True, both(emit, stage.emit), stage
                )
                return await holder.compact()

    async def cancel(self, conversation: Conversation) -> bool:
        """End the turn that runs or waits in it, or is about to begin: its outcome will be "interrupted".
        Here it is stopped at once, in another process when that looks next. False when there is none. Busy
        while it is changing from one to the other. What waits in line behind it stays."""
        give_up_at = asyncio.get_running_loop().time() + BEGIN_S_MAX
        while not await self._cancelled(conversation):
            line = await run_in_thread(self.event_queue.state, conversation)
            is_about_to_begin = line.waiting > 0 or line.turn_id is not None
            if not is_about_to_begin or asyncio.get_running_loop().time() > give_up_at:
                return False
            await asyncio.sleep(LOOK_S_MIN)
        return True

    async def _cancelled(self, conversation: Conversation) -> bool:
        turn_id = await run_in_thread(self.event_queue.cancel, conversation)
        if turn_id is not None:
            stop = self.cancellations.get(turn_id)
            if stop is not None:
                stop.cancel()
            return True
        if await run_in_thread(self.event_queue.paused, conversation) is None:
            return False
        lease = await self._acquired(conversation)
        async with self._leased(lease):
            paused = await run_in_thread(self.event_queue.paused, conversation)
            if paused is None:
                return False
            with self.broadcaster.stage(conversation.id) as stage:
                holder = TurnRunner(self, conversation, lease, False, False, stage.emit, stage)
                await run_shielded(holder.abandon, paused, "cancelled")
        return True

    def status(self, agent_id: AgentId, event_id: str) -> EventStatus:
        """NotFound for an id that was never used, or more than a day ago."""
        claim = self.event_queue.claim(self.event_queue.claim_key(agent_id, event_id))
        if claim is None:
            raise NotFound("event", event_id)
        conversation = self.conversations.get(claim.about["conversation"])
        event = EventStatus(event_id, "queued", conversation.id, claim.about["number"])
        if claim.refusal is not None:
            return replace(event, state="refused", refusal=claim.refusal)
        began = self.event_queue.began(conversation, claim)
        if began.outcome is not None:
            ending = ending_of(began.outcome)
            outcome = self._outcome(conversation, ending)
            turn_id, first, state = ending.turn_id, ending.first, state_of(outcome)
            return replace(event, state=state, turn_id=turn_id, first=first, outcome=outcome)
        found = self.event_queue.position_of(conversation, began.about["number"])
        state = "running" if found.is_begun else "queued"
        turn_id, first = found.turn_id, found.first
        return replace(event, state=state, ahead=found.ahead, turn_id=turn_id, first=first)

    def pending(self, conversation: Conversation) -> tuple[PendingCall, ...]:
        """The calls that wait in a conversation, for somebody who allows them or for the client."""
        paused = self.event_queue.paused(conversation)
        if paused is None:
            return ()
        return pending(list(self.conversations.transcript(conversation).entries(paused.first)))

    def _checked(self, agent: AgentRecord, event: Event) -> bool:
        """Whether it is to be rejected by a conversation in use. Refused."""
        check_names(event.tools, (tool.name for tool in self.tools))
        return (event.on_busy or agent.config.on_busy) == "reject"

    async def _received(self, agent: AgentRecord, event: Event, emit: Emit) -> QueuedEvent | Opened:
        """Begun, where nothing is before it and nobody is faster; else in line."""
        rejects = self._checked(agent, event)
        hand_up = handing_up()

        def receive(for_good: ForGood) -> QueuedEvent | Opened:
            opening = self.event_queue.opening(agent.id, event)
            if opening is not None:
                try:
                    return self._opener(opening, emit).open(opening, for_good, hand_up)
                except Conflict:
                    self.event_queue.lost(opening)
            for_good()
            return self.event_queue.accept(agent.id, event, rejects=rejects)

        def give_up(found: QueuedEvent | Opened) -> None:
            if isinstance(found, Opened):
                found.end()
            else:
                self._given_up(found)

        return await run_or_abandon(receive, give_up)

    def _opener(self, opening: Opening, emit: Emit) -> TurnRunner:
        """Until it has begun it tells nobody anything."""
        return TurnRunner(
            self, opening.conversation, opening.bid.unwon, True, True, emit, Channel()
        )

    async def _awaited(self, accepted: QueuedEvent, emit: Emit) -> Outcome:
        """Work whenever the conversation is free, until the event is done."""
        conversation, pause, is_told = accepted.conversation, LOOK_S_MIN, False
        with self.broadcaster.listening(conversation.id) as listener:
            while (outcome := await run_in_thread(self._settled, accepted)) is None:
                try:
                    lease = await self._acquired(conversation)
                except Busy:
                    if not is_told:
                        emit(Queued(await run_in_thread(self.event_queue.ahead, accepted)))
                        is_told = True
                    await _turn_ended(listener, pause)
                    pause = min(pause * 1.5, LOOK_S_MAX)
                    continue
                await self._work(conversation, lease, accepted, emit)
                pause = LOOK_S_MIN
        return outcome

    async def _acquired(self, conversation: Conversation) -> Lease:
        """Busy."""
        key = conversation.lease_key
        return await run_or_undo(lambda: self.leases.acquire(key), self.leases.release)

    async def _work(
        self, conversation: Conversation, lease: Lease, accepted: QueuedEvent, emit: Emit
    ) -> None:
        """Move the line until our own event is done, or the lease is lost."""
        with suppress(LeaseLost):
            async with self._leased(lease):
                await self._line(conversation, lease, accepted, emit)

    async def _line(
        self, conversation: Conversation, lease: Lease, accepted: QueuedEvent | None, emit: Emit
    ) -> None:
        first = accepted.first if accepted is not None and accepted.lease == lease else None
        while not self.leases.has_let_go(lease):
            found = first or await run_in_thread(self.event_queue.next, conversation, lease)
            first = None
            if found is None or (accepted is not None and found.number > accepted.number):
                return
            caller_waits = accepted is not None and found.number == accepted.number
            caller_owns_event = caller_waits and accepted is not None and accepted.is_new
            with self.broadcaster.stage(conversation.id) as stage:
                told = both(emit, stage.emit) if caller_waits else stage.emit
                holder = TurnRunner(
                    self, conversation, lease, caller_waits, caller_owns_event, told, stage
                )
                if isinstance(found, NextEvent):
                    await holder.take(found)
                else:
                    await holder.go_on(found)

    @asynccontextmanager
    async def _leased(self, lease: Lease) -> AsyncGenerator[None]:
        try:
            async with kept_alive(lambda: self.leases.renew(lease), self.leases.terms, lease.key):
                yield
        finally:
            if self.leases.has_let_go(lease):
                self.leases.release(lease)  # nothing is left to be written
            else:
                with suppress(Failure):  # it ends by itself
                    await run_shielded(self.leases.release, lease)

    def _given_up(self, accepted: QueuedEvent) -> None:
        if accepted.lease is not None:
            self.leases.release(accepted.lease)
        if accepted.is_new:
            self.event_queue.withdraw(accepted)

    def _turnstile(self, name: str) -> asyncio.Lock:
        return self._turnstiles.setdefault((asyncio.get_running_loop(), name), asyncio.Lock())

    def _settled(self, accepted: QueuedEvent) -> Outcome | None:
        """None as long as it is on its way. GivenBack; NotFound when the conversation was deleted."""
        claim = self.event_queue.claim(accepted.claim)
        if claim is None:
            raise NotFound("conversation", accepted.conversation.key)
        if claim.about["number"] != accepted.number:
            told = "it was given back, and sent again by somebody else"
            raise GivenBack({"code": "conflict", "message": told, "remedy": None})
        if claim.refusal is not None:
            raise GivenBack(claim.refusal)
        told = self.event_queue.began(accepted.conversation, claim).outcome
        return None if told is None else self._outcome(accepted.conversation, ending_of(told))

    def _outcome(self, conversation: Conversation, ending: Ending) -> Outcome:
        transcript = self.conversations.transcript(conversation)
        own = list(transcript.entries(ending.first, ending.last))
        return outcome_of(ending, conversation.id, own)


async def _turn_ended(listener: Subscriber, wait_s: float) -> None:
    """One that ran here, or so long: of those that run elsewhere nobody tells."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            while not any(
                isinstance(heard.told, ChannelClosed) for heard in await listener.heard(wait_s)
            ):
                pass
