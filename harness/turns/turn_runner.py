"""Run one event of a conversation under the conversation's lease.

The lease holder makes the event's first entry, runs its turn, and ends both, whatever happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field, replace

from harness.billing.limits import Slot
from harness.context.repair import INTERRUPTED
from harness.conversations.conversation import Conversation
from harness.conversations.queue_state import NextEvent, PausedTurn, RunningTurn
from harness.conversations.queued_event import AlsoWritten, Opening, QueuedEvent
from harness.messages.event import Event
from harness.messages.message import Message, ToolResult
from harness.messages.model_request import ModelFailure
from harness.messages.progress import Emit
from harness.prompts.compaction import Compacted, remarks_of
from harness.prompts.prompt_log import PendingWrite
from harness.runtime.async_bridge import (
    ForGood,
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
from harness.turns.turn import Turn, run_turn
from harness.turns.turn_dependencies import TurnDependencies
from harness.turns.turn_log import log_not_begun, log_turn
from workspaces.coordination.lease import Lease
from workspaces.errors import Conflict, Failure, LeaseLost, Unavailable
from workspaces.ids import TurnId, new_id
from workspaces.storage.records import RecordChange
from workspaces.timestamp import stamp_of

ATTEMPTS_MAX = 3
"""Attempts at a turn. A turn whose process died this often is probably what kills the process."""

OBSERVED_TRIES_MAX = 50
"""Attempts at a batch with an observer's changes. Each lost race means that another process got on."""

CANCEL_LOOK_S = 1.0
"""Seconds between two checks for a cancellation from another process: a person waits for it."""


@dataclass(frozen=True, slots=True)
class TurnRunner:
    """A runner of the turn for one event.

    With `caller_waits`, a caller waits for the event in this call and receives its failures. With
    `caller_owns_event`, this caller brought the event, so cancelling the call ends it.
    """

    dependencies: TurnDependencies
    conversation: Conversation
    lease: Lease
    caller_waits: bool
    caller_owns_event: bool
    emit: Emit
    channel: Channel
    began: float
    """The monotonic time at which the work on the event began."""
    slot: AsyncExitStack = field(default_factory=AsyncExitStack)
    """The slot among the turns that an account may run at once. The runner gives it back before it releases
    the lease, or the next event in the queue would find the slot taken."""

    async def take(self, waiting: NextEvent) -> None:
        """Process the first event in the queue.

        The event begins a turn, answers the paused turn, or ends the paused turn; after the last it is first
        again. An error before the event's entry is stored gives the event back.
        """
        async with self.slot:
            try:
                entering = await self._prepare_entry(waiting)
            except LeaseLost:
                raise
            except Exception as error:  # the event must not block the queue for ever
                why = error if isinstance(error, Failure) else Failure(_message_of(error))
                log_not_begun(self.conversation, why)
                give_back = (self.conversation, waiting, why, self.lease)
                await run_shielded(lambda: self.dependencies.event_queue.give_back(*give_back))
                if self.caller_waits:
                    raise
                return
            if entering is not None:
                await self._write_entry(waiting, entering)

    def open(self, opening: Opening, for_good: ForGood) -> Opened:
        """Prepare the turn of an event that has nothing before it, then write everything in one batch.

        `for_good` is called before any write.

        Raises: Conflict when another event came first; then nothing was written.
        """
        event_queue, limiter = self.dependencies.event_queue, self.dependencies.limiter
        with ExitStack() as undo:
            try:
                slot = limiter.admit(self.conversation.account_id)
                undo.callback(limiter.let_go, slot)
                prepared, entry, pending_write = self._prepare_opening(opening)
            except Exception as error:
                for_good()
                why = error if isinstance(error, Failure) else Failure(_message_of(error))
                log_not_begun(self.conversation, why)
                with suppress(Failure):  # the waiting caller receives the reason in any case
                    event_queue.refuse(opening, why)
                raise
            for_good()
            turn = prepared.turn
            uses_caller_model = self.dependencies.callers_model is not None
            running, also = event_queue.opened(
                opening, turn.id, turn.first, uses_caller_model=uses_caller_model
            )
            kept = pending_write.changes if pending_write is not None else ()
            try:
                lease = turn.transcript.open(entry, opening.bid, *also, *kept)
            except Unavailable:
                self.dependencies.leases.lose(opening.bid)
                raise
            undo.pop_all()
        if pending_write is not None:
            turn.prompt_log.mark_written(pending_write)
        turn = replace(
            turn.with_entry(entry), last_request=pending_write.prompt if pending_write else None
        )
        prepared = prepared.with_turn(turn)
        return Opened(replace(self, lease=lease), opening.accepted(lease), running, prepared, slot)

    def end(self, running: RunningTurn) -> None:
        """End the turn at once: the caller that brought the event is gone."""
        ending = self._cut_short(running, "interrupted")
        finish = self.dependencies.event_queue.finish
        finish(
            self.conversation,
            running,
            ending,
            self.lease,
            also=self._observed(running.event, ending, self._entries(running.first)),
        )
        self.dependencies.leases.release(self.lease)
        self._log(ending, ())

    def _observed(self, event: Event, ending: Ending, own: Sequence[Entry]) -> AlsoWritten:
        """Return a function that returns the observer's changes for the end of a turn."""
        return lambda: self.dependencies.observer.ends(self.conversation, event, ending, own)

    def _first_entry(self, turn: Turn, event: Event) -> Entry:
        entry = turn.entry(event.message, event_id=event.id)
        return replace(entry, system=event.system_kept, reminder=turn.reminder)

    async def _prepare_entry(self, waiting: NextEvent) -> _FirstEntry | None:
        """Prepare the event's first entry. Return None when the event only ended the paused turn."""
        event, event_queue = waiting.event, self.dependencies.event_queue
        paused = None
        if waiting.head.paused is not None:
            paused = await run_in_thread(event_queue.paused, self.conversation, waiting.head)
        if event.is_answer:
            return await self._prepare_answer(waiting, paused)
        if paused is not None:
            await run_shielded(self.abandon, paused, "superseded")
            return None
        await self._take_slot()
        prepared = await run_in_new_thread(self._prepare, event, TurnId(new_id("turn")), None)
        turn = prepared.turn
        entry = self._first_entry(turn, event)
        uses_caller_model = self.caller_waits and self.dependencies.callers_model is not None
        running, also = event_queue.beginning(
            self.conversation, waiting, turn.id, turn.first, uses_caller_model=uses_caller_model
        )
        observed = await run_in_thread(
            self.dependencies.observer.begins, self.conversation, event, turn.id, turn.session
        )
        return _FirstEntry(entry, (*also, *observed), running, prepared)

    async def _prepare_answer(self, waiting: NextEvent, paused: PausedTurn | None) -> _FirstEntry:
        answers, event_queue = waiting.event.answers, self.dependencies.event_queue
        if paused is None:
            raise nothing_waits(answers[0].call_id)
        entries = await run_in_thread(self._entries, paused.first)
        results = self.dependencies.results(self.conversation.id)
        answer = await run_in_thread(answered, entries, answers, results.shorten)
        at = stamp_of(self.dependencies.clock.now())
        number, event_id = entries[-1].number + 1, waiting.event.id
        entry = Entry(number, at, paused.turn_id, answer.message, event_id, allowed=answer.allowed)
        rest, prepared = None, None
        if pending([*entries, entry]):  # other calls still wait
            rest = await run_in_thread(
                self._ending, "waiting", paused.turn_id, paused.first, number
            )
        else:
            await self._take_slot()
            prepared = await run_in_new_thread(
                self._prepare, paused.event, paused.turn_id, paused.first
            )
        running, also = await run_in_thread(
            event_queue.answering, self.conversation, waiting, paused, rest
        )
        return _FirstEntry(entry, also, running, prepared)

    async def _take_slot(self) -> None:
        """Take a slot of the account. A turn that resumes after a crash took one when it began."""
        account_id = self.conversation.account_id
        await self.slot.enter_async_context(self.dependencies.limiter.admitted(account_id))

    def _prepare_opening(self, opening: Opening) -> tuple[PreparedTurn, Entry, PendingWrite | None]:
        """Prepare a turn, its first entry and its first request, so that one batch can store them.

        The request is None if it needs a compaction or a remark before it is sent.
        """
        event = opening.event
        window = None if opening.session is None else TranscriptWindow(opening.session, ())
        prepared = self._prepare(event, TurnId(new_id("turn")), None, window=window)
        entry = self._first_entry(prepared.turn, event)
        turn = prepared.turn.with_entry(entry)
        prompt = turn.build_prompt(prepared.toolset)
        if prepared.compaction.is_due(turn.window, prompt):
            return prepared, entry, None
        return prepared, entry, turn.prepare_prompt(prompt, opening.bid.mark)

    async def _write_entry(self, waiting: NextEvent, entering: _FirstEntry) -> None:
        transcript = self.transcript()
        entry, running, prepared = entering.entry, entering.running, entering.prepared
        try:
            await run_shielded(lambda: transcript.append(entry, self.lease, *entering.also))
        except Conflict as conflict:
            if conflict.name == str(waiting.item.key):
                return  # the event was withdrawn at this moment
            raise LeaseLost(self.lease.key) from conflict
        except asyncio.CancelledError:
            if self.caller_owns_event and running is not None:
                await self._interrupt(running)
            raise
        if waiting.event.is_answer:
            await run_in_thread(self.dependencies.event_queue.forget, self.conversation, waiting)
        if running is not None and prepared is not None:
            await self.run(running, prepared.with_turn(prepared.turn.with_entry(entry)))

    def abandon(self, paused: PausedTurn, why: Unanswered) -> None:
        """End a paused turn. Its calls were not run, and the model will read that."""
        entries = self._entries(paused.first)
        number, at = entries[-1].number + 1, stamp_of(self.dependencies.clock.now())
        entry = Entry(number, at, paused.turn_id, unanswered(entries, why))
        ending = self._ending("interrupted", paused.turn_id, paused.first, number)
        also = self.dependencies.event_queue.abandoning(self.conversation, paused, ending)
        transcript = self.transcript()
        for _ in range(OBSERVED_TRIES_MAX):
            own = (*entries, entry)
            observed = self.dependencies.observer.ends(self.conversation, paused.event, ending, own)
            try:
                transcript.append(entry, self.lease, *also, *observed)
            except Conflict as conflict:
                if conflict.name in {str(one.key) for one in observed}:
                    continue  # what the observer read has changed
                raise LeaseLost(self.lease.key) from conflict
            break
        else:
            raise LeaseLost(self.lease.key)
        self.dependencies.event_queue.forget(self.conversation, paused)

    def _prepare(
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
        """Return the transcript; it publishes each stored entry to the channel."""
        conversations = self.dependencies.conversations
        return conversations.transcript(self.conversation, on_append=self.channel.stored)

    def _entries(self, first: int) -> list[Entry]:
        return list(self.dependencies.conversations.transcript(self.conversation).entries(first))

    async def go_on(self, running: RunningTurn) -> None:
        """Resume an interrupted turn where it stopped."""
        if running.uses_caller_model:  # only that caller could resume it
            await self._interrupt(running)
            return
        if running.attempt >= ATTEMPTS_MAX:  # the turn probably kills its process
            reason = f"the process that ran this turn died, {running.attempt} times"
            await self._fail(running, reason)
            return
        event_queue = self.dependencies.event_queue
        running = await run_in_thread(event_queue.resume, self.conversation, running, self.lease)
        try:
            prepared = await run_in_new_thread(
                self._prepare, running.event, running.turn_id, running.first
            )
            prepared = prepared.with_turn(replace(prepared.turn, may_have_run=True))
        except Exception as error:  # noqa: BLE001 - else the event would block the queue for ever
            await self._fail(running, _message_of(error))
            return
        await self.run(running, prepared)

    async def compact(self) -> Compacted:
        """Compact the conversation outside of any turn, under a turn id of its own."""
        prepared = await run_in_new_thread(self._prepare, None, TurnId(new_id("turn")), None)
        prompt = await run_in_thread(prepared.turn.build_prompt, prepared.toolset)
        compacted = await prepared.compaction.at_once(prepared.turn.window, prompt, self.emit)
        await prepared.push_changes(
            prepared.turn.with_compaction(compacted).asides, self.dependencies.leases
        )
        return compacted

    async def run(self, running: RunningTurn, prepared: PreparedTurn) -> Outcome | None:
        """Run the turn. Return its outcome if it ended normally; else the outcome stands with its claim."""
        try:
            ending, own = await self._run_until_stopped(running, prepared)
            durable = await prepared.push_changes(own, self.dependencies.leases)
        except LeaseLost:
            raise
        except Exception as error:
            await self._fail(running, _message_of(error))
            if self.caller_waits:
                raise
            return None
        except BaseException:
            if self.caller_owns_event:  # else the next lease holder resumes the turn
                await self._interrupt(running)
            raise
        full_ending = replace(ending, left_out=prepared.left_out, durable=durable)
        await self._finish(running, full_ending, own)
        return outcome_of(full_ending, self.conversation.id, own)

    async def _run_until_stopped(
        self, running: RunningTurn, prepared: PreparedTurn
    ) -> tuple[Ending, Sequence[Entry]]:
        """Run the turn until it ends, is cancelled or reaches its time limit.

        Return its ending and its entries.
        """
        cancellations = self.dependencies.cancellations
        cancellation = cancellations[running.turn_id] = Cancellation(prepared.turn.limits.seconds)
        polling = asyncio.create_task(self._poll_cancellation(running, cancellation))
        try:
            async with cancellation:
                turn, ending = await run_turn(
                    prepared.turn,
                    model=prepared.model,
                    toolset=prepared.toolset,
                    compaction=prepared.compaction,
                    emit=self.emit,
                )
            if ending.status != "waiting" or not await self._is_cancelled(running, cancellation):
                return ending, turn.own
            reason = "interrupted"
        except Stopped as stopped:
            reason = stopped.reason
        finally:
            polling.cancel()
            del cancellations[running.turn_id]
        ending = await run_shielded(self._cut_short, running, reason)
        return ending, await run_in_thread(self._entries, running.first)

    async def _is_cancelled(self, running: RunningTurn, cancellation: Cancellation) -> bool:
        """Check once more before a turn pauses: no task looks for a cancellation while it is paused."""
        if cancellation.is_cancelled:
            return True
        return await run_in_thread(
            self.dependencies.event_queue.is_cancelled, self.conversation, running.turn_id
        )

    async def _poll_cancellation(self, running: RunningTurn, cancellation: Cancellation) -> None:
        """Poll for a cancellation, because the caller that cancels may be in another process."""
        event_queue = self.dependencies.event_queue
        pause = 0.0 if running.attempt > 1 else CANCEL_LOOK_S
        while not cancellation.is_cancelled:
            await asyncio.sleep(pause)
            pause = CANCEL_LOOK_S
            with suppress(Failure):  # a store that fails now may answer the next time
                if await run_in_thread(
                    event_queue.is_cancelled, self.conversation, running.turn_id
                ):
                    cancellation.cancel()

    def _cut_short(
        self, running: RunningTurn, status: Status, failure: ModelFailure | None = None
    ) -> Ending:
        """End a turn in its middle.

        Calls without a result get one, so that a provider accepts the transcript.
        """
        entries = self._entries(running.first)
        last = entries[-1].number if entries else running.first
        calls = open_calls(entries)
        if calls:
            last, at = last + 1, stamp_of(self.dependencies.clock.now())
            results = tuple(ToolResult(call.id, INTERRUPTED, is_error=True) for call in calls)
            message = Message("user", results)
            if pending(entries):  # the turn was paused: none of its calls was run
                message = unanswered(entries, "cancelled")
            entry = Entry(last, at, running.turn_id, message)
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
        """Return the ending of a turn that is not in memory; its remarks come from its receipts."""
        prompt_log = self.dependencies.conversations.prompt_log(self.conversation)
        remarks = remarks_of(prompt_log.resume(turn_id), self._entries(first))
        unavailable = prompt_log.unavailable
        return Ending(status, turn_id, first, last, failure, unavailable, remarks=remarks)

    async def _interrupt(self, running: RunningTurn) -> None:
        ending = await run_shielded(self._cut_short, running, "interrupted")
        await self._finish(running, ending, await run_shielded(self._entries, running.first))

    async def _finish(self, running: RunningTurn, ending: Ending, own: Sequence[Entry]) -> None:
        event_queue = self.dependencies.event_queue
        end = event_queue.pause if ending.status == "waiting" else event_queue.finish
        held = self.lease
        await self.slot.aclose()
        await run_shielded(
            lambda: end(
                self.conversation,
                running,
                ending,
                held,
                is_last=self.caller_waits,
                also=self._observed(running.event, ending, own),
            )
        )
        self._log(ending, own)

    def _log(self, ending: Ending, own: Sequence[Entry]) -> None:
        seconds = self.dependencies.clock.monotonic() - self.began
        log_turn(self.conversation, ending, own, seconds)

    async def _fail(self, running: RunningTurn, reason: str) -> None:
        failure = ModelFailure("broken", reason, "say it again")
        ending = await run_shielded(self._cut_short, running, "failed", failure)
        await self._finish(running, ending, await run_shielded(self._entries, running.first))


@dataclass(frozen=True, slots=True)
class Opened:
    """A turn that began in the same batch that accepted its event."""

    runner: TurnRunner
    accepted: QueuedEvent
    running: RunningTurn
    prepared: PreparedTurn
    slot: Slot | None

    def end(self) -> None:
        """End the turn at once: the caller that brought the event is gone."""
        self.runner.dependencies.limiter.let_go(self.slot)
        self.runner.end(self.running)

    async def run(self) -> Outcome | None:
        """Run the turn. Return its outcome if it ended normally."""
        runner, turn = self.runner, self.prepared.turn
        dependencies, conversation_id = runner.dependencies, runner.conversation.id
        async with runner.slot:
            await runner.slot.enter_async_context(dependencies.limiter.holding(self.slot))
            with dependencies.broadcaster.channel(conversation_id) as channel:
                channel.begin(turn.first - 1)
                channel.stored(turn.first)
                runner = replace(runner, channel=channel, emit=both(runner.emit, channel.emit))
                prepared = self.prepared.with_lease(runner.lease, runner.transcript())
                return await runner.run(self.running, prepared)


@dataclass(frozen=True, slots=True)
class _FirstEntry:
    """An event about to make its first entry, with the changes to write in the same batch."""

    entry: Entry
    also: tuple[RecordChange, ...]
    running: RunningTurn | None
    """None when the turn still waits for other answers."""
    prepared: PreparedTurn | None


def _message_of(error: BaseException) -> str:
    return str(error) if isinstance(error, Failure) else f"{type(error).__name__}: {error}"
