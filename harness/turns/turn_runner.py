"""Run one event of a conversation under the conversation's lease.

The lease holder makes the event's first entry, runs its turn, and ends both, whatever happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import InitVar, dataclass, field, replace
from functools import partial

from harness.context.repair import INTERRUPTED
from harness.conversations.conversation import Conversation
from harness.conversations.queue_state import NextEvent, PausedTurn, RunningTurn
from harness.conversations.turn_start import TurnStart, start_of
from harness.messages.event import Event
from harness.messages.message import Message, ToolResult
from harness.messages.model_request import ModelFailure
from harness.messages.progress import Emit
from harness.prompts.compaction import Compacted, remarks_of
from harness.prompts.prompt_log import ReceiptDraft
from harness.prompts.turn_log import TurnLog
from harness.runtime.async_bridge import (
    completed,
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
from harness.transcripts.session import Session
from harness.transcripts.transcript import Entry
from harness.turns.broadcast import Channel, both
from harness.turns.cancellation import Cancellation, Stopped
from harness.turns.prepared_turn import PreparedTurn, prepare_turn
from harness.turns.turn import run_turn
from harness.turns.turn_dependencies import TurnDependencies
from harness.turns.turn_report import log_not_begun, log_turn
from workspaces.coordination.lease import Bid, Lease
from workspaces.errors import Conflict, Failure, LeaseLost, Unavailable
from workspaces.ids import TurnId, new_id
from workspaces.storage.contention import until_written
from workspaces.storage.records import RecordChange
from workspaces.timestamp import stamp_of

ATTEMPTS_MAX = 3
"""Attempts at a turn. A turn whose process died this often is probably what kills the process."""

CANCEL_LOOK_S = 1.0
"""Seconds between two checks for a cancellation from another process: a person waits for it."""


@dataclass(frozen=True, slots=True)
class StartedTurn:
    """A turn that has begun and can be run."""

    running: RunningTurn
    prepared: PreparedTurn


@dataclass(slots=True)
class TurnRunner:
    """A runner of the turn for one event.

    With `caller_waits`, a caller waits for the event in this call and receives its failures. With
    `caller_owns_event`, this caller brought the event, so cancelling the call ends it.
    """

    dependencies: TurnDependencies
    conversation: Conversation
    right: InitVar[Lease | Bid]
    """The lease; or the bid for it, which the batch that makes the turn begin turns into the lease."""
    emit: Emit
    caller_waits: bool = False
    caller_owns_event: bool = False
    channel: Channel = field(default_factory=Channel)
    """The channel of the conversation. Before the lease is acquired: a channel without subscribers."""
    log: TurnLog = field(init=False)
    began: float = field(init=False)
    """The monotonic time at which the work on the event began."""
    slot: AsyncExitStack = field(default_factory=AsyncExitStack)
    """The slot among the turns that an account may run at once. The runner gives it back before it releases
    the lease, or the next event in the queue would find the slot taken."""

    def __post_init__(self, right: Lease | Bid) -> None:
        self.began = self.dependencies.clock.monotonic()
        conversations, conversation = self.dependencies.conversations, self.conversation
        transcript = conversations.transcript(
            conversation, on_append=lambda number: self.channel.stored(number)
        )
        self.log = TurnLog(transcript, conversations.prompt_log(conversation), right)

    def publish_to(self, channel: Channel, begun: StartedTurn) -> None:
        """Publish a turn that has begun, and its progress from now on."""
        self.channel, self.emit = channel, both(self.emit, channel.emit)
        channel.stored(begun.running.first)

    async def begin(self, start: TurnStart, waiting: NextEvent | None = None) -> StartedTurn | None:
        """Prepare the turn of an event, then write the batch that makes it begin.

        `waiting` is the event in the queue; None: it enters the queue in this batch. Return None when nothing
        was written, because another event came first or the event was withdrawn.

        Raises: the error for which the event was given back.
        """
        begun = None
        give_back = partial(self._refuse, start) if waiting is None else self._giver(waiting)
        try:
            async with self._giving_back(give_back):
                await self._take_slot()
                beginning = await run_in_new_thread(self._prepare_start, start)
            writing = asyncio.ensure_future(run_in_thread(self._write_start, start, beginning))
            try:
                begun = await completed(writing)
            except asyncio.CancelledError:
                begun = None if writing.cancelled() or writing.exception() else writing.result()
                if begun is not None and self.caller_owns_event:
                    await self._interrupt(begun.running)
                raise
        finally:
            if begun is None:
                await self.slot.aclose()
        return begun

    async def take(self, waiting: NextEvent) -> None:
        """Process the first event in the queue.

        The event begins a turn, answers the paused turn, or ends the paused turn; after the last it is first
        again. An error before the event's entry is stored gives the event back.
        """
        async with self.slot:
            with suppress(_NotBegun):
                async with self._giving_back(self._giver(waiting)):
                    paused = await self._paused(waiting)
                    answer = None
                    if waiting.event.is_answer:
                        answer = await self._prepare_answer(waiting, paused)
                    elif paused is not None:
                        await run_shielded(self.abandon, paused, "superseded")
                        return
                if answer is not None:
                    begun = await self._write_answer(waiting, answer)
                else:
                    start = start_of(self.conversation, waiting, self.log.lease)
                    begun = await self.begin(start, waiting)
                if begun is not None:
                    await self.run(begun)

    async def _paused(self, waiting: NextEvent) -> PausedTurn | None:
        if waiting.head.paused is None:
            return None
        queue = self.dependencies.conversations.queue(self.conversation)
        return await run_in_thread(queue.paused, waiting.head)

    @asynccontextmanager
    async def _giving_back(self, give_back: Callable[[Failure], None]) -> AsyncGenerator[None]:
        """Give the event back after an error: nothing has happened yet, and it may be sent again.

        Else the event would block the queue for ever.
        """
        try:
            yield
        except LeaseLost:
            raise
        except Exception as error:
            why = error if isinstance(error, Failure) else Failure(_message_of(error))
            log_not_begun(self.conversation, why)
            await run_shielded(give_back, why)
            if self.caller_waits:
                raise
            raise _NotBegun from error

    def _giver(self, waiting: NextEvent) -> Callable[[Failure], None]:
        give_back, lease = self.dependencies.event_queue.give_back, self.log.lease
        return lambda why: give_back(self.conversation, waiting, why, lease)

    def _refuse(self, start: TurnStart, why: Failure) -> None:
        with suppress(Failure):  # the waiting caller receives the reason in any case
            self.dependencies.event_queue.refuse(start, why)

    def _prepare_start(self, start: TurnStart) -> _Beginning:
        """Prepare a turn, its first entry and its first request.

        The request is left out if it needs a compaction or a remark before it is sent.
        """
        event = start.event
        prepared = self._prepare(event, TurnId(new_id("turn")), session=start.session)
        entry = prepared.turn.entry(event.message, event_id=event.id)
        entry = replace(entry, system=event.system_kept, reminder=prepared.turn.reminder)
        turn = prepared.turn.with_entry(entry)
        prompt = turn.build_prompt(prepared.toolset)
        is_due = prepared.compaction.is_due(turn.window, prompt)
        observed = self.dependencies.observer.begins(
            self.conversation, event, turn.id, turn.session
        )
        receipt = None if is_due else turn.receipt(prompt)
        return _Beginning(prepared.with_turn(turn), entry, receipt, observed)

    def _write_start(self, start: TurnStart, beginning: _Beginning) -> StartedTurn | None:
        """Write the batch. Return None if another event came first, or if the event was withdrawn."""
        try:
            running = start.write(
                self.log,
                beginning.entry,
                receipt=beginning.receipt,
                also=beginning.observed,
                uses_caller_model=self.caller_waits and self.dependencies.callers_model is not None,
            )
        except Unavailable:
            if isinstance(start.right, Bid):  # it may have won
                self.dependencies.leases.lose(start.right)
            raise
        except (Conflict, LeaseLost) as lost:
            if isinstance(start.right, Bid):  # another event came first: this one is queued
                self.dependencies.event_queue.lost(start)
                return None
            if isinstance(lost, Conflict) and lost.name == start.withdrawn_key:
                return None
            raise LeaseLost(start.right.key) from lost
        return StartedTurn(running, beginning.prepared)

    async def _prepare_answer(self, waiting: NextEvent, paused: PausedTurn | None) -> _AnswerEntry:
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
                self._prepare, paused.event, paused.turn_id, first=paused.first
            )
            prepared = prepared.with_turn(prepared.turn.with_entry(entry))
        running, also = await run_in_thread(
            event_queue.answering, self.conversation, waiting, paused, rest
        )
        begun = None
        if running is not None and prepared is not None:
            begun = StartedTurn(running, prepared)
        return _AnswerEntry(entry, also, begun)

    async def _write_answer(self, waiting: NextEvent, answer: _AnswerEntry) -> StartedTurn | None:
        """Store the entry of an answer. Return the turn if it runs again."""
        write = partial(self.log.append, answer.entry, also=answer.also)
        try:
            await run_shielded(write)
        except Conflict as conflict:
            if conflict.name == str(waiting.item.key):
                return None  # the event was withdrawn at this moment
            raise LeaseLost(self.log.lease.key) from conflict
        except asyncio.CancelledError:
            if self.caller_owns_event and answer.begun is not None:
                await self._interrupt(answer.begun.running)
            raise
        queue = self.dependencies.conversations.queue(self.conversation)
        await run_in_thread(queue.forget, waiting.item.value["event"])
        return answer.begun

    async def _take_slot(self) -> None:
        """Take a slot of the account. A turn that resumes after a crash took one when it began."""
        account_id = self.conversation.account_id
        await self.slot.enter_async_context(self.dependencies.limiter.admitted(account_id))

    @until_written("the conversation")
    def abandon(self, paused: PausedTurn, why: Unanswered) -> None:
        """End a paused turn. Its calls were not run, and the model will read that."""
        entries = self._entries(paused.first)
        number, at = entries[-1].number + 1, stamp_of(self.dependencies.clock.now())
        entry = Entry(number, at, paused.turn_id, unanswered(entries, why))
        ending = self._ending("interrupted", paused.turn_id, paused.first, number)
        also = self.dependencies.event_queue.abandoning(self.conversation, paused, ending)
        own = (*entries, entry)
        observed = self.dependencies.observer.ends(self.conversation, paused.event, ending, own)
        try:
            self.log.append(entry, also=(*also, *observed))
        except Conflict as conflict:
            if conflict.name in {str(one.key) for one in observed}:
                raise  # what the observer read has changed
            raise LeaseLost(self.log.lease.key) from conflict
        self.dependencies.conversations.queue(self.conversation).forget(paused.item.value["event"])

    def _prepare(
        self,
        event: Event | None,
        turn_id: TurnId,
        *,
        first: int | None = None,
        session: Session | None = None,
    ) -> PreparedTurn:
        return prepare_turn(
            self.dependencies,
            self.conversation,
            self.log,
            event,
            turn_id,
            first=first,
            caller_waits=self.caller_waits,
            session=session,
        )

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
        running = await run_in_thread(
            event_queue.resume, self.conversation, running, self.log.lease
        )
        try:
            prepared = await run_in_new_thread(
                self._prepare, running.event, running.turn_id, first=running.first
            )
            prepared = prepared.with_turn(replace(prepared.turn, may_have_run=True))
        except Exception as error:  # noqa: BLE001 - else the event would block the queue for ever
            await self._fail(running, _message_of(error))
            return
        await self.run(StartedTurn(running, prepared))

    async def compact(self) -> Compacted:
        """Compact the conversation outside of any turn, under a turn id of its own."""
        prepared = await run_in_new_thread(self._prepare, None, TurnId(new_id("turn")))
        self.channel.begin(prepared.turn.newest)
        prompt = await run_in_thread(prepared.turn.build_prompt, prepared.toolset)
        compacted = await prepared.compaction.at_once(prepared.turn.window, prompt, self.emit)
        await prepared.push_changes(
            prepared.turn.with_compaction(compacted).asides, self.dependencies.leases
        )
        return compacted

    async def run(self, begun: StartedTurn) -> Outcome | None:
        """Run the turn. Return its outcome if it ended normally; else the outcome stands with its claim."""
        running, prepared = begun.running, begun.prepared
        self.channel.begin(prepared.turn.newest)
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
        queue = self.dependencies.conversations.queue(self.conversation)
        return await run_in_thread(queue.is_to_end, running.turn_id)

    async def _poll_cancellation(self, running: RunningTurn, cancellation: Cancellation) -> None:
        """Poll for a cancellation, because the caller that cancels may be in another process."""
        queue = self.dependencies.conversations.queue(self.conversation)
        pause = 0.0 if running.attempt > 1 else CANCEL_LOOK_S
        while not cancellation.is_cancelled:
            await asyncio.sleep(pause)
            pause = CANCEL_LOOK_S
            with suppress(Failure):  # a store that fails now may answer the next time
                if await run_in_thread(queue.is_to_end, running.turn_id):
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
            self.dependencies.conversations.transcript(self.conversation).append(
                entry, self.log.lease
            )
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
        await self._end_early(running, "interrupted")

    async def _end_early(
        self, running: RunningTurn, status: Status, failure: ModelFailure | None = None
    ) -> None:
        ending = await run_shielded(self._cut_short, running, status, failure)
        await self._finish(running, ending, await run_shielded(self._entries, running.first))

    async def _finish(self, running: RunningTurn, ending: Ending, own: Sequence[Entry]) -> None:
        dependencies, conversation, held = self.dependencies, self.conversation, self.log.lease
        observed = partial(dependencies.observer.ends, conversation, running.event, ending, own)
        end = partial(dependencies.event_queue.end, is_last=self.caller_waits, also=observed)
        await self.slot.aclose()
        await run_shielded(end, conversation, running, ending, held)
        log_turn(conversation, ending, own, dependencies.clock.monotonic() - self.began)

    async def _fail(self, running: RunningTurn, reason: str) -> None:
        failure = ModelFailure("broken", reason, "say it again")
        await self._end_early(running, "failed", failure)


@dataclass(frozen=True, slots=True)
class _Beginning:
    """A prepared turn, and what the batch that makes it begin holds of it."""

    prepared: PreparedTurn
    entry: Entry
    receipt: ReceiptDraft | None
    """The first request; None if it needs a compaction or a remark before it is sent."""
    observed: tuple[RecordChange, ...]
    """The observer's changes."""


@dataclass(frozen=True, slots=True)
class _AnswerEntry:
    """The entry of an answer, with the changes to write in the same batch."""

    entry: Entry
    also: tuple[RecordChange, ...]
    begun: StartedTurn | None
    """The turn that runs again; None when it still waits for other answers."""


class _NotBegun(Exception):
    """An event was given back, and no caller waits for it."""


def _message_of(error: BaseException) -> str:
    return str(error) if isinstance(error, Failure) else f"{type(error).__name__}: {error}"
