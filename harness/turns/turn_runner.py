"""Whoever holds the lease of a conversation, at one event of its line: they make its first entry, run its
turn, and end both, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace

from harness.billing.limits import Slot
from harness.context.repair import INTERRUPTED
from harness.conversations.conversation import Conversation
from harness.conversations.event_queue import Opening, QueuedEvent
from harness.conversations.queue_state import NextEvent, PausedTurn, RunningTurn
from harness.messages.event import Event
from harness.messages.message import Message, ToolResult
from harness.messages.model_request import ModelFailure
from harness.messages.progress import Emit
from harness.prompts.compaction import Compacted, remarks_of
from harness.prompts.prompt_log import PendingWrite
from harness.runtime.async_bridge import (
    ForGood,
    HandUp,
    run_in_new_thread,
    run_in_thread,
    run_shielded,
)
from harness.transcripts.approval import (
    Unanswered,
    answered,
    nothing_waits,
    open_calls,
    pending,
    unanswered,
)
from harness.transcripts.outcome import Ending, Outcome, Status, outcome_of
from harness.transcripts.transcript import Entry, Transcript, TranscriptWindow
from harness.turns.broadcast import Channel, both
from harness.turns.cancellation import Cancellation, Stopped
from harness.turns.prepared_turn import PreparedTurn, prepare_turn
from harness.turns.turn import Turn, foreseen, run_turn
from harness.turns.turn_dependencies import TurnDependencies
from workspaces.coordination.lease import Lease
from workspaces.errors import Conflict, Failure, LeaseLost, Unavailable
from workspaces.ids import TurnId, new_id
from workspaces.storage.records import RecordChange as RecordChange
from workspaces.timestamp import stamp_of

ATTEMPTS_MAX = 3
"""A turn whose process died this often is what kills it."""

CANCEL_LOOK_S = 1.0
"""Between two looks whether another process wants a turn to end: a person waits for it."""


@dataclass(frozen=True, slots=True)
class TurnRunner:
    """A runner of the turn for one event. `caller_waits`: a caller waits for the event in this call and
    hears of failures. `caller_owns_event`: this caller brought the event, so cancelling the call ends it."""

    dependencies: TurnDependencies
    conversation: Conversation
    lease: Lease
    caller_waits: bool
    caller_owns_event: bool
    emit: Emit
    channel: Channel
    slot: AsyncExitStack = field(default_factory=AsyncExitStack)
    """Among the turns that an account may run at once. It is given back before the lease is let go of, or
    whoever comes next in line would find it taken."""

    async def take(self, waiting: NextEvent) -> None:
        """What is first in line: it begins a turn, or answers the one that is paused, or ends it, and then
        it is first again. Everything up to the entry that it makes gives the event back when it fails."""
        async with self.slot:
            try:
                entering = await self._entering(waiting)
            except LeaseLost:
                raise
            except Exception as problem:  # the event must not stand in the way for ever
                why = problem if isinstance(problem, Failure) else Failure(_told(problem))
                give_back = (self.conversation, waiting, why, self.lease)
                await run_shielded(lambda: self.dependencies.event_queue.give_back(*give_back))
                if self.caller_waits:
                    raise
                return
            if entering is not None:
                await self._enter(waiting, entering)

    def open(self, opening: Opening, for_good: ForGood, hand_up: HandUp) -> Opened:
        """What nothing is before: its turn is prepared first, and then all is written at once. Conflict
        when somebody was faster, and nothing happened. `for_good` is called before anything is."""
        inbox, allowance = self.dependencies.event_queue, self.dependencies.limiter
        with ExitStack() as undo:
            try:
                slot = allowance.admit(self.conversation.account_id)
                undo.callback(allowance.let_go, slot)
                begun, entry, keeping = self._asking(opening)
            except Exception as problem:
                for_good()
                why = problem if isinstance(problem, Failure) else Failure(_told(problem))
                with suppress(Failure):  # whoever waits for it hears why in any case
                    inbox.refuse(opening, why)
                raise
            for_good()
            turn = begun.turn
            uses_caller_model = self.dependencies.callers_model is not None
            running, also = inbox.opened(
                opening, turn.id, turn.first, uses_caller_model=uses_caller_model
            )
            kept, ahead = (), nullcontext()
            if keeping is not None:
                kept = keeping.changes
                ahead = foreseen(turn, begun.model, keeping.question, hand_up)
            try:
                with ahead:
                    lease = turn.transcript.open(entry, opening.bid, *also, *kept)
            except Unavailable:
                self.dependencies.leases.lose(opening.bid)
                raise
            undo.pop_all()
        if keeping is not None:
            turn.prompt_log.mark_written(keeping)
        turn = replace(turn.with_entry(entry), last_request=keeping.question if keeping else None)
        begun = begun.with_turn(turn)
        return Opened(replace(self, lease=lease), opening.accepted(lease), running, begun, slot)

    def end(self, running: RunningTurn) -> None:
        """At once: whoever brought the event is gone."""
        ending = self._cut_short(running, "interrupted")
        self.dependencies.event_queue.finish(self.conversation, running, ending, self.lease)
        self.dependencies.leases.release(self.lease)

    def _first_entry(self, turn: Turn, event: Event) -> Entry:
        return replace(turn.entry(event.message, event_id=event.id), system=event.system_kept)

    async def _entering(self, waiting: NextEvent) -> _Entering | None:
        """None when the event only ended what was paused."""
        event, inbox = waiting.event, self.dependencies.event_queue
        paused = None
        if waiting.head.paused is not None:
            paused = await run_in_thread(inbox.paused, self.conversation, waiting.head)
        if event.is_answer:
            return await self._answering(waiting, paused)
        if paused is not None:
            await run_shielded(self.abandon, paused, "superseded")
            return None
        await self._admitted()
        begun = await run_in_new_thread(self._prepared, event, TurnId(new_id("turn")), None)
        turn = begun.turn
        entry = self._first_entry(turn, event)
        uses_caller_model = self.caller_waits and self.dependencies.callers_model is not None
        running, also = inbox.beginning(
            self.conversation, waiting, turn.id, turn.first, uses_caller_model=uses_caller_model
        )
        return _Entering(entry, also, running, begun)

    async def _answering(self, waiting: NextEvent, paused: PausedTurn | None) -> _Entering:
        answers, inbox = waiting.event.answers, self.dependencies.event_queue
        if paused is None:
            raise nothing_waits(answers[0].call_id)
        entries = await run_in_thread(self._entries, paused.first)
        results = self.dependencies.results(self.conversation.id)
        found = await run_in_thread(answered, entries, answers, results.shorten)
        at = stamp_of(self.dependencies.clock.now())
        number, event_id = entries[-1].number + 1, waiting.event.id
        entry = Entry(number, at, paused.turn_id, found.message, event_id, allowed=found.allowed)
        rest, begun = None, None
        if pending([*entries, entry]):
            rest = await run_in_thread(
                self._ending, "waiting", paused.turn_id, paused.first, number
            )
        else:
            await self._admitted()
            begun = await run_in_new_thread(
                self._prepared, paused.event, paused.turn_id, paused.first
            )
        running, also = await run_in_thread(
            inbox.answering, self.conversation, waiting, paused, rest
        )
        return _Entering(entry, also, running, begun)

    async def _admitted(self) -> None:
        """A turn that is gone on with after a crash was admitted when it began."""
        account_id = self.conversation.account_id
        await self.slot.enter_async_context(self.dependencies.limiter.admitted(account_id))

    def _asking(self, opening: Opening) -> tuple[PreparedTurn, Entry, PendingWrite | None]:
        """A turn with its first entry, and its first question, if nothing is to be done before that is
        asked: so both can be written in one batch."""
        event = opening.event
        window = None if opening.session is None else TranscriptWindow(opening.session, ())
        begun = self._prepared(event, TurnId(new_id("turn")), None, window=window)
        entry = self._first_entry(begun.turn, event)
        turn = begun.turn.with_entry(entry)
        question = turn.question(begun.toolset)
        if begun.compaction.is_due(turn.window, question):
            return begun, entry, None
        return begun, entry, turn.keeping(question, opening.bid.mark)

    async def _enter(self, waiting: NextEvent, entering: _Entering) -> None:
        transcript = self.transcript()
        entry, running, begun = entering.entry, entering.running, entering.prepared
        try:
            await run_shielded(lambda: transcript.append(entry, self.lease, *entering.also))
        except Conflict as conflict:
            if conflict.name == str(waiting.item.key):
                return  # withdrawn in this instant
            raise LeaseLost(self.lease.key) from conflict
        except asyncio.CancelledError:
            if self.caller_owns_event and running is not None:
                await self._interrupt(running)
            raise
        if waiting.event.is_answer:
            await run_in_thread(self.dependencies.event_queue.forget, self.conversation, waiting)
        if running is not None and begun is not None:
            await self.run(running, begun.with_turn(begun.turn.with_entry(entry)))

    def abandon(self, paused: PausedTurn, why: Unanswered) -> None:
        """End a turn that waits: its calls were not run, and that is what the model will read."""
        entries = self._entries(paused.first)
        number, at = entries[-1].number + 1, stamp_of(self.dependencies.clock.now())
        entry = Entry(number, at, paused.turn_id, unanswered(entries, why))
        ending = self._ending("interrupted", paused.turn_id, paused.first, number)
        also = self.dependencies.event_queue.abandoning(self.conversation, paused, ending)
        transcript = self.transcript()
        try:
            transcript.append(entry, self.lease, *also)
        except Conflict as conflict:
            raise LeaseLost(self.lease.key) from conflict
        self.dependencies.event_queue.forget(self.conversation, paused)

    def _prepared(
        self,
        event: Event | None,
        turn_id: TurnId,
        first: int | None,
        *,
        window: TranscriptWindow | None = None,
    ) -> PreparedTurn:
        at = (self.dependencies, self.conversation, self.lease, self.channel)
        return prepare_turn(
            *at, event, turn_id, first, caller_waits=self.caller_waits, window=window
        )

    def transcript(self) -> Transcript:
        """One that tells on the stage how far it has come."""
        conversations = self.dependencies.conversations
        return conversations.transcript(self.conversation, told=self.channel.stored)

    def _entries(self, first: int) -> list[Entry]:
        return list(self.dependencies.conversations.transcript(self.conversation).entries(first))

    async def go_on(self, running: RunningTurn) -> None:
        """With a turn that was interrupted, where it stopped."""
        if running.uses_caller_model:
            await self._interrupt(running)
            return
        if running.attempt >= ATTEMPTS_MAX:
            told = f"whoever ran it ended in the middle, {running.attempt} times"
            await self._fail(running, told)
            return
        inbox = self.dependencies.event_queue
        running = await run_in_thread(inbox.resume, self.conversation, running, self.lease)
        try:
            begun = await run_in_new_thread(
                self._prepared, running.event, running.turn_id, running.first
            )
            begun = begun.with_turn(replace(begun.turn, may_have_run=True))
        except Exception as problem:  # noqa: BLE001 - or the event would stand in the way for ever
            await self._fail(running, _told(problem))
            return
        await self.run(running, begun)

    async def compact(self) -> Compacted:
        """Outside of any turn, under an id of its own."""
        begun = await run_in_new_thread(self._prepared, None, TurnId(new_id("turn")), None)
        question = await run_in_thread(begun.turn.question, begun.toolset)
        found = await begun.compaction.at_once(begun.turn.window, question, self.emit)
        await begun.pushed(begun.turn.compacted(found).asides, self.dependencies.leases)
        return found

    async def run(self, running: RunningTurn, begun: PreparedTurn) -> Outcome | None:
        """What came of it, where it came to an end of its own; else it stands with its claim."""
        try:
            ending, own = await self._stoppable(running, begun)
            durable = await begun.pushed(own, self.dependencies.leases)
        except LeaseLost:
            raise
        except Exception as problem:
            await self._fail(running, _told(problem))
            if self.caller_waits:
                raise
            return None
        except BaseException:
            if self.caller_owns_event:  # else the next holder goes on with it
                await self._interrupt(running)
            raise
        told = replace(ending, left_out=begun.left_out, durable=durable)
        await self._finish(running, told)
        return outcome_of(told, self.conversation.id, own)

    async def _stoppable(
        self, running: RunningTurn, begun: PreparedTurn
    ) -> tuple[Ending, Sequence[Entry]]:
        """The turn, until it ends, its time is up or somebody wants it to end; and what it has stored."""
        stops = self.dependencies.cancellations
        stop = stops[running.turn_id] = Cancellation(begun.turn.limits.seconds)
        looking = asyncio.create_task(self._look_for_cancellation(running, stop))
        try:
            async with stop:
                turn, ending = await run_turn(
                    begun.turn,
                    model=begun.model,
                    toolset=begun.toolset,
                    compaction=begun.compaction,
                    emit=self.emit,
                )
            if ending.status != "waiting" or not await self._is_cancelled(running, stop):
                return ending, turn.own
            reason = "interrupted"
        except Stopped as stopped:
            reason = stopped.reason
        finally:
            looking.cancel()
            del stops[running.turn_id]
        ending = await run_shielded(self._cut_short, running, reason)
        return ending, await run_in_thread(self._entries, running.first)

    async def _is_cancelled(self, running: RunningTurn, stop: Cancellation) -> bool:
        """A turn that would rest is looked at once more: nobody would look while it does."""
        if stop.is_cancelled:
            return True
        return await run_in_thread(
            self.dependencies.event_queue.is_cancelled, self.conversation, running.turn_id
        )

    async def _look_for_cancellation(self, running: RunningTurn, stop: Cancellation) -> None:
        """Whoever cancels may be in another process."""
        inbox = self.dependencies.event_queue
        pause = 0.0 if running.attempt > 1 else CANCEL_LOOK_S
        while not stop.is_cancelled:
            await asyncio.sleep(pause)
            pause = CANCEL_LOOK_S
            with suppress(Failure):  # a store that does not answer may answer the next time
                if await run_in_thread(inbox.is_cancelled, self.conversation, running.turn_id):
                    stop.cancel()

    def _cut_short(
        self, running: RunningTurn, status: Status, failure: ModelFailure | None = None
    ) -> Ending:
        """A turn that ends in its middle: calls without a result get one, so that what is stored is what
        a provider takes."""
        entries = self._entries(running.first)
        last = entries[-1].number if entries else running.first
        calls = open_calls(entries)
        if calls:
            last, at = last + 1, stamp_of(self.dependencies.clock.now())
            results = tuple(ToolResult(call.id, INTERRUPTED, is_error=True) for call in calls)
            told = Message("user", results)
            if pending(entries):  # then none of them was run
                told = unanswered(entries, "cancelled")
            entry = Entry(last, at, running.turn_id, told)
            self.dependencies.conversations.transcript(self.conversation).append(entry, self.lease)
        return self._ending(status, running.turn_id, running.first, last, failure)

    def _ending(
        self,
        status: Status,
        turn_id: TurnId,
        first: int,
        last: int,
        failure: ModelFailure | None = None,
    ) -> Ending:
        """Of a turn that nobody has at hand: what there is to say of its context, its receipts say."""
        showing = self.dependencies.conversations.showing(self.conversation)
        remarks = remarks_of(showing.resume(turn_id), self._entries(first))
        unavailable = showing.unavailable
        return Ending(status, turn_id, first, last, failure, unavailable, remarks=remarks)

    async def _interrupt(self, running: RunningTurn) -> None:
        ending = await run_shielded(self._cut_short, running, "interrupted")
        await self._finish(running, ending)

    async def _finish(self, running: RunningTurn, ending: Ending) -> None:
        inbox = self.dependencies.event_queue
        end = inbox.pause if ending.status == "waiting" else inbox.finish
        held = self.lease
        await self.slot.aclose()
        await run_shielded(
            lambda: end(self.conversation, running, ending, held, is_last=self.caller_waits)
        )

    async def _fail(self, running: RunningTurn, reason: str) -> None:
        failure = ModelFailure("broken", reason, "say it again")
        ending = await run_shielded(self._cut_short, running, "failed", failure)
        await self._finish(running, ending)


@dataclass(frozen=True, slots=True)
class Opened:
    """A turn whose event was accepted in the same instant."""

    runner: TurnRunner
    accepted: QueuedEvent
    running: RunningTurn
    prepared: PreparedTurn
    slot: Slot | None

    def end(self) -> None:
        """At once: whoever brought the event is gone."""
        self.runner.dependencies.limiter.let_go(self.slot)
        self.runner.end(self.running)

    async def run(self) -> Outcome | None:
        """What came of it, where it came to an end of its own."""
        holder, turn = self.runner, self.prepared.turn
        means, conversation_id = holder.dependencies, holder.conversation.id
        async with holder.slot:
            await holder.slot.enter_async_context(means.limiter.holding(self.slot))
            with means.broadcaster.stage(conversation_id) as stage:
                stage.begin(turn.first - 1)
                stage.stored(turn.first)
                holder = replace(holder, channel=stage, emit=both(holder.emit, stage.emit))
                begun = self.prepared.held(holder.lease, holder.transcript())
                return await holder.run(self.running, begun)


@dataclass(frozen=True, slots=True)
class _Entering:
    """An event about to make its entry, with what is written in the same batch."""

    entry: Entry
    also: tuple[RecordChange, ...]
    running: RunningTurn | None
    """None when the turn waits for more."""
    prepared: PreparedTurn | None


def _told(problem: BaseException) -> str:
    return str(problem) if isinstance(problem, Failure) else f"{type(problem).__name__}: {problem}"
