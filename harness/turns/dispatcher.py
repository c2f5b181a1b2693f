"""Route an event to a turn, exactly once.

An event waits in the queue until it is first, and the caller that runs it holds the lease. Its turn is
prepared, and one batch makes the turn begin (`conversations/turn_start`). An event may have nothing before it
and a caller that waits for the answer. It then enters the queue in that same batch, which also acquires the
lease. If another event comes first, that batch is refused, and the event is queued.

A caller that waits for an answer does the work. When the lease of the conversation is free, the caller's task
acquires it. It runs the first event in the queue, and goes on until its own event is done. So the queue moves
as long as any caller waits, and no process has to stay alive for another. A job looks after events that no
caller waits for any more (`look_after`).

What ends a turn early:

- The time limit passes, or a caller cancels it (`cancel`), in this process or another. Unfinished calls get a
  result that says so. The outcome is "out_of_time" or "interrupted".
- The waiting caller's task is cancelled. If this call delivered the event, the event is over: withdrawn while
  it was queued, "interrupted" once it ran. An event that another call delivered, even an earlier delivery of
  the same event, is left as it is for the next lease holder.
- The lease is lost. This process writes nothing more. Another process runs the turn, and this one waits for
  the result.
- The process dies. The next lease holder resumes the turn where its entries end. It does so a few times at
  most, and then reports the turn as failed.
- An error is raised. Before the first entry the event is given back; after it the turn has failed. The queue
  moves on either way.

A turn may also pause: one of its calls waits for a person or for the client. The lease is then released. The
next event either answers the call, and the same turn continues; or it says something else, and ends the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from harness.agents.record import AgentRecord
from harness.conversations.conversation import Conversation
from harness.conversations.event_status import EventStatus, GivenBack, state_of
from harness.conversations.queue_state import NextEvent
from harness.conversations.queued_event import QueuedEvent
from harness.conversations.turn_start import TurnStart
from harness.jobs.heartbeat import kept_alive
from harness.messages.client_tool import check_names
from harness.messages.event import Event
from harness.messages.progress import Emit, Queued, silent
from harness.prompts.compaction import Compacted
from harness.runtime.async_bridge import (
    run_in_thread,
    run_or_undo,
    run_shielded,
)
from harness.transcripts.outcome import Ending, Outcome, ending_of, outcome_of
from harness.turns.broadcast import ChannelClosed, Subscriber, both
from harness.turns.turn_dependencies import TurnDependencies
from harness.turns.turn_runner import StartedTurn, TurnRunner
from workspaces.coordination.lease import Lease
from workspaces.errors import Busy, Failure, LeaseLost, NotFound
from workspaces.ids import AgentId

LOOK_S_MIN, LOOK_S_MAX = 0.01, 0.5
"""Seconds between two checks of a conversation that another process runs: a turn takes seconds. The end of a
turn in this process is published at once."""

BEGIN_S_MAX = 5.0
"""Seconds that `cancel` waits for the turn of a just accepted event to begin. Opening shared workspaces takes
seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatcher(TurnDependencies):
    """The dispatcher of one principal's events."""

    _waiter_locks: WeakValueDictionary[tuple[object, str], asyncio.Lock] = field(
        default_factory=WeakValueDictionary[tuple[object, str], asyncio.Lock]
    )
    """Locks, so that only one waiter of this process at a time contends for a conversation."""

    async def run(self, agent: AgentRecord, event: Event, emit: Emit = silent) -> Outcome:
        """Process an event, or return the outcome of an earlier delivery of it.

        Raises: the same errors as `EventQueue.accept`.
        """
        received = await self._receive(agent, event, emit)
        if isinstance(received, QueuedEvent):
            return await self.wait(received, emit)
        runner, turn = received
        conversation, lease = runner.conversation, runner.log.lease
        outcome = None
        with suppress(LeaseLost):
            async with self._holding(lease), runner.slot:
                with self.broadcaster.channel(conversation.id) as channel:
                    runner.publish_to(channel, turn)
                    outcome = await runner.run(turn)
        claim = conversation.claim_key(event.id)
        accepted = QueuedEvent(conversation, claim, turn.running.number, lease, is_new=True)
        return outcome or await self._wait_for_outcome(accepted, emit)

    async def _receive(
        self, agent: AgentRecord, event: Event, emit: Emit
    ) -> QueuedEvent | tuple[TurnRunner, StartedTurn]:
        """Make the event's turn begin if nothing is before it; else put the event into the queue.

        An event whose turn could not begin, because another came first, goes into the queue too.
        """
        self._check_event(agent, event)
        async with self._waiter_lock(f"{agent.id} {event.conversation_key}"):  # in order of arrival
            start = await run_in_thread(self.event_queue.start, agent.id, event)
            if start is not None:
                runner = TurnRunner(
                    self,
                    start.conversation,
                    start.right,
                    emit,
                    caller_waits=True,
                    caller_owns_event=True,
                )
                turn = await self._begin(runner, start)
                if turn is not None:
                    return runner, turn
            return await self.enqueue(agent, event)

    async def _begin(self, runner: TurnRunner, start: TurnStart) -> StartedTurn | None:
        try:
            return await runner.begin(start)
        except asyncio.CancelledError:
            with suppress(Failure):  # no lease was acquired, or it expires by itself
                await run_shielded(self.leases.release, runner.log.lease)
            raise

    async def enqueue(self, agent: AgentRecord, event: Event) -> QueuedEvent:
        """Put an event into the queue durably.

        Raises: Conflict, Busy, TooMany, NotFound, Forbidden or Refused, as `EventQueue.accept` does.
        """
        rejects = self._check_event(agent, event)
        return await run_or_undo(
            lambda: self.event_queue.accept(agent.id, event, rejects=rejects), self._give_up
        )

    async def wait(self, accepted: QueuedEvent, emit: Emit = silent) -> Outcome:
        """Work on the queue until the accepted event is done, and return its outcome."""
        try:
            if accepted.lease is not None:
                await self._run_under_lease(accepted.conversation, accepted.lease, accepted, emit)
                return await self._wait_for_outcome(accepted, emit)
            lock = self._waiter_lock(accepted.conversation.id)
            if lock.locked():
                emit(Queued(await run_in_thread(self.event_queue.ahead, accepted)))
            async with lock:
                return await self._wait_for_outcome(accepted, emit)
        except asyncio.CancelledError:
            if accepted.is_new:
                with suppress(Failure):  # the store fails: the job looks after the event
                    await run_in_thread(self.event_queue.withdraw, accepted)
            raise

    async def look_after(self, conversation_id: str) -> None:
        """Run all unfinished events of a conversation.

        Raises: Busy while another task or process holds the lease; LeaseLost.
        """
        try:
            conversation = await run_in_thread(self.conversations.get, conversation_id)
        except NotFound:  # the conversation was deleted, and its events with it
            return
        lease = await self._acquire(conversation)
        async with self._holding(lease):
            await self._run_queue(conversation, lease, None, silent)

    async def compact(self, conversation: Conversation, emit: Emit = silent) -> Compacted:
        """Summarise the beginning of a conversation now, however short it is.

        Raises: Busy while a turn runs, waits or was interrupted; LeaseLost.
        """
        lease = await run_or_undo(
            lambda: self.conversations.acquire(conversation), self.leases.release
        )
        async with self._holding(lease):
            await run_in_thread(self.conversations.check_at_rest, conversation)
            with self.broadcaster.channel(conversation.id) as channel:
                runner = TurnRunner(
                    self,
                    conversation,
                    lease,
                    both(emit, channel.emit),
                    caller_waits=True,
                    caller_owns_event=True,
                    channel=channel,
                )
                return await runner.compact()

    async def cancel(self, conversation: Conversation) -> bool:
        """End the turn that runs, waits or is about to begin in a conversation; its outcome will be
        "interrupted".

        A turn in this process stops at once; in another process it stops at that process's next check. Events
        queued behind the turn stay. Return False when there is no such turn.

        Raises: Busy while the turn changes from running to waiting or back.
        """
        give_up_at = asyncio.get_running_loop().time() + BEGIN_S_MAX
        while not await self._cancel_once(conversation):
            is_about_to_begin = await run_in_thread(self.conversations.is_in_use, conversation)
            if not is_about_to_begin or asyncio.get_running_loop().time() > give_up_at:
                return False
            await asyncio.sleep(LOOK_S_MIN)
        return True

    async def cancel_event(self, agent_id: AgentId, event_id: str) -> bool:
        """End one event, wherever it is: withdraw it, or cancel its turn. Other events are not touched.

        Return False if there is no such event, or it has ended.
        Raises: Busy while its turn changes from running to waiting or back.
        """
        give_up_at = asyncio.get_running_loop().time() + BEGIN_S_MAX
        while True:
            key = self.event_queue.claim_key(agent_id, event_id)
            claim = await run_in_thread(self.event_queue.claims.find, key)
            if claim is None or claim.refusal is not None:
                return False
            conversation = await run_in_thread(self.conversations.get, claim.about["conversation"])
            number: int = claim.about["number"]
            accepted = QueuedEvent(conversation, key, number)
            if await run_in_thread(self.event_queue.withdraw, accepted):
                return True
            if await self._cancel_once(conversation, number):
                return True
            is_over = await run_in_thread(self._has_ended, accepted)
            if is_over or asyncio.get_running_loop().time() > give_up_at:
                return False
            await asyncio.sleep(LOOK_S_MIN)

    def _has_ended(self, accepted: QueuedEvent) -> bool:
        """Return True if the event has an outcome that is not just a pause."""
        claim = self.event_queue.claims.find(accepted.claim)
        if claim is None or claim.outcome is None:
            return claim is None or claim.refusal is not None
        return claim.outcome.get("status") != "waiting"

    async def _cancel_once(self, conversation: Conversation, number: int | None = None) -> bool:
        turn_id = await run_in_thread(self.event_queue.cancel, conversation, number)
        if turn_id is not None:
            cancellation = self.cancellations.get(turn_id)
            if cancellation is not None:
                cancellation.cancel()
            return True
        if await run_in_thread(self.conversations.queue(conversation).paused) is None:
            return False
        lease = await self._acquire(conversation)
        async with self._holding(lease):
            paused = await run_in_thread(self.conversations.queue(conversation).paused)
            if paused is None or number not in (None, paused.number):
                return False
            with self.broadcaster.channel(conversation.id) as channel:
                runner = TurnRunner(self, conversation, lease, channel.emit, channel=channel)
                await run_shielded(runner.abandon, paused, "cancelled")
        return True

    def status(self, agent_id: AgentId, event_id: str) -> EventStatus:
        """Return the status of an event.

        Raises: NotFound for an id that was never used, or was used more than a day ago.
        """
        claim = self.event_queue.claims.find(self.event_queue.claim_key(agent_id, event_id))
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
        head = self.conversations.queue(conversation).head()
        return head.status_of(event, began.about["number"])

    def _check_event(self, agent: AgentRecord, event: Event) -> bool:
        """Return True if a conversation in use shall reject the event.

        Raises: Refused when the event brings too many tools, or a tool whose name is taken.
        """
        check_names(event.tools, (tool.name for tool in self.tools))
        return (event.on_busy or agent.config.on_busy) == "reject"

    async def _wait_for_outcome(self, accepted: QueuedEvent, emit: Emit) -> Outcome:
        """Work on the queue whenever the conversation is free, until the event is done."""
        conversation, pause, is_reported = accepted.conversation, LOOK_S_MIN, False
        with self.broadcaster.subscribe(conversation.id) as subscriber:
            while (outcome := await run_in_thread(self._outcome_if_done, accepted)) is None:
                try:
                    lease = await self._acquire(conversation)
                except Busy:
                    if not is_reported:
                        emit(Queued(await run_in_thread(self.event_queue.ahead, accepted)))
                        is_reported = True
                    await _wait_for_turn_end(subscriber, pause)
                    pause = min(pause * 1.5, LOOK_S_MAX)
                    continue
                await self._run_under_lease(conversation, lease, accepted, emit)
                pause = LOOK_S_MIN
        return outcome

    async def _acquire(self, conversation: Conversation) -> Lease:
        """Acquire the lease of a conversation.

        Raises: Busy when another holds it.
        """
        key = conversation.lease_key
        return await run_or_undo(lambda: self.leases.acquire(key), self.leases.release)

    async def _run_under_lease(
        self, conversation: Conversation, lease: Lease, accepted: QueuedEvent, emit: Emit
    ) -> None:
        """Run queued events until our own event is done, or the lease is lost."""
        with suppress(LeaseLost):
            async with self._holding(lease):
                await self._run_queue(conversation, lease, accepted, emit)

    async def _run_queue(
        self, conversation: Conversation, lease: Lease, accepted: QueuedEvent | None, emit: Emit
    ) -> None:
        first = accepted.first if accepted is not None and accepted.lease == lease else None
        while not self.leases.has_let_go(lease):
            event = first or await run_in_thread(self.event_queue.next, conversation, lease)
            first = None
            if event is None or (accepted is not None and event.number > accepted.number):
                return  # nothing is queued, or our own event is done
            caller_waits = accepted is not None and event.number == accepted.number
            caller_owns_event = caller_waits and accepted is not None and accepted.is_new
            with self.broadcaster.channel(conversation.id) as channel:
                publish = both(emit, channel.emit) if caller_waits else channel.emit
                runner = TurnRunner(
                    self,
                    conversation,
                    lease,
                    publish,
                    caller_waits=caller_waits,
                    caller_owns_event=caller_owns_event,
                    channel=channel,
                )
                if isinstance(event, NextEvent):
                    await runner.take(event)
                else:
                    await runner.go_on(event)

    @asynccontextmanager
    async def _holding(self, lease: Lease) -> AsyncGenerator[None]:
        try:
            async with kept_alive(lambda: self.leases.renew(lease), self.leases.terms, lease.key):
                yield
        finally:
            if self.leases.has_let_go(lease):
                self.leases.release(lease)  # the release is already stored
            else:
                with suppress(Failure):  # the lease expires by itself
                    await run_shielded(self.leases.release, lease)

    def _give_up(self, accepted: QueuedEvent) -> None:
        if accepted.lease is not None:
            self.leases.release(accepted.lease)
        if accepted.is_new:
            self.event_queue.withdraw(accepted)

    def _waiter_lock(self, name: str) -> asyncio.Lock:
        return self._waiter_locks.setdefault((asyncio.get_running_loop(), name), asyncio.Lock())

    def _outcome_if_done(self, accepted: QueuedEvent) -> Outcome | None:
        """Return the outcome of an accepted event; None while the event is unfinished.

        Raises: GivenBack when the event was given back; NotFound when the conversation was deleted.
        """
        claim = self.event_queue.claims.find(accepted.claim)
        if claim is None:
            raise NotFound("conversation", accepted.conversation.key)
        if claim.about["number"] != accepted.number:
            message = "the event was given back, and another caller sent it again"
            raise GivenBack({"code": "conflict", "message": message, "remedy": None})
        if claim.refusal is not None:
            raise GivenBack(claim.refusal)
        ending = self.event_queue.began(accepted.conversation, claim).outcome
        if ending is None:  # the turn is queued or running
            return None
        return self._outcome(accepted.conversation, ending_of(ending))

    def _outcome(self, conversation: Conversation, ending: Ending) -> Outcome:
        transcript = self.conversations.transcript(conversation)
        own = list(transcript.entries(ending.first, ending.last))
        return outcome_of(ending, conversation.id, own)


async def _wait_for_turn_end(subscriber: Subscriber, wait_s: float) -> None:
    """Wait until a turn in this process ends, or `wait_s` has passed.

    Turns elsewhere are not published here.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            while not any(
                isinstance(message.content, ChannelClosed)
                for message in await subscriber.read(wait_s)
            ):
                pass
