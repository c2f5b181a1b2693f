"""A turn: from something said to an outcome, step by step.

Where a turn stands is what its entries say, and nothing else: a turn that was interrupted is built from
the same entries by another process and goes on with the same loop. Calls whose results are missing may
have run, wholly or in part, so they are never run again: the model is told, and decides.

A reply is stored with which of its calls wait, for a person or for the client. As long as one does, none
of them is run and the turn is at rest: it goes on when the last of them was allowed or answered.

What was only read is stored with the next question, in one batch: nothing acts on it before, and lost by a
crash it is read again. A question is asked once that batch is durable. While it waits for the disk the model
gets ready to ask it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from harness.agents.agent import Limits
from harness.billing.price import NANODOLLARS, Price
from harness.context.receipt import Remark
from harness.context.repair import INTERRUPTED, sound_json
from harness.messages.message import Message, ToolCall, ToolResult, message_of
from harness.messages.model_request import ModelFailure, Reply
from harness.messages.pending_call import RequiredAnswer
from harness.messages.progress import Emit, Withdrawn
from harness.models.port import Model, foresee
from harness.prompts.compaction import (
    PRUNED_HARD,
    TOO_LONG,
    Compacted,
    Compaction,
    remarks_of,
    still_too_long,
)
from harness.prompts.prompt_log import PendingWrite, PromptLog
from harness.prompts.prompt_request import PromptRequest, build_request
from harness.prompts.prompt_sources import PromptSources
from harness.runtime.async_bridge import (
    HandUp,
    completed,
    handing_up,
    run_in_new_thread,
    run_in_thread,
    run_shielded,
)
from harness.tools.port import Toolset
from harness.tools.tool_context import NO_EFFECTS, ToolEffects
from harness.transcripts.approval import open_calls, pending
from harness.transcripts.outcome import Ending, Status
from harness.transcripts.session import Session
from harness.transcripts.transcript import Entry, Transcript, TranscriptWindow
from workspaces.clock import Clock
from workspaces.coordination.lease import Lease
from workspaces.errors import Conflict, LeaseLost
from workspaces.ids import TurnId
from workspaces.storage.idle_hook import meanwhile
from workspaces.timestamp import stamp_of


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a turn stands. Every message is stored before anything acts on it."""

    id: TurnId
    transcript: Transcript
    lease: Lease
    clock: Clock
    session: Session
    sources: PromptSources
    prompt_log: PromptLog
    limits: Limits
    before: tuple[Entry, ...]
    """Those in the window that came before this turn."""
    first: int
    """The number of its first entry."""
    entries: tuple[Entry, ...] = ()
    instructions: str | None = None
    """What the platform says to the model in this turn alone."""
    price: Price | None = None
    may_have_run: bool = False
    """Whether calls without a result may have been run, by whoever was at it before."""
    asides: tuple[Entry, ...] = ()
    """Its own entries that are no messages: what was written down before a summary, and summaries."""
    remarks: tuple[Remark, ...] = ()
    prune_all: bool = False
    """Whether it shows as little as may be: the provider has refused more."""
    last_request: PromptRequest | None = None
    """What the model is asked next, where that was put and kept with the newest entry."""
    unstored: tuple[Entry, ...] = ()
    """The newest of its entries, what was read and nothing else: they are stored with the next question."""

    @property
    def steps(self) -> int:
        return sum(entry.message.role == "assistant" for entry in self.entries)

    @property
    def is_out_of_money(self) -> bool:
        """Of what it may spend itself."""
        if self.limits.dollars is None or self.price is None:
            return False
        spent = sum(self.price.of(entry.usage) for entry in self.own)
        return spent >= round(self.limits.dollars * NANODOLLARS)

    @property
    def is_answered(self) -> bool:
        """Nothing is left to be asked or run."""
        newest = self.entries[-1]
        is_reply = newest.message.role == "assistant"
        return is_reply and not (newest.message.tool_calls and newest.is_complete)

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        return open_calls(self.entries)

    def entry(self, message: Message, *, event_id: str | None = None) -> Entry:
        """The next one."""
        return Entry(self._last + 1, stamp_of(self.clock.now()), self.id, message, event_id)

    @property
    def _last(self) -> int:
        """The number of its newest entry."""
        return self.first + len(self.entries) + len(self.asides) - 1

    @property
    def own(self) -> tuple[Entry, ...]:
        """All that it has stored."""
        if not self.asides:
            return self.entries
        return tuple(sorted((*self.entries, *self.asides), key=lambda entry: entry.number))

    def with_entry(self, entry: Entry) -> Turn:
        return replace(self, entries=(*self.entries, entry))

    async def append(self, entry: Entry) -> Turn:
        """Stored under the lease's guard: after a return, nobody else has taken over meanwhile."""
        return await self.with_unstored(entry).stored()

    def with_unstored(self, entry: Entry) -> Turn:
        return replace(self.with_entry(entry), unstored=(*self.unstored, entry))

    async def stored(self) -> Turn:
        if not self.unstored:
            return self
        await run_in_thread(self.transcript.extend, self.unstored, self.lease)
        return replace(self, unstored=())

    async def replied(self, reply: Reply, asks: tuple[RequiredAnswer, ...]) -> Turn:
        """With the note of what it has used up, which a cancellation in this moment must not lose."""
        entry = replace(self.entry(reply.message), usage=reply.usage, is_complete=reply.is_complete)
        entry = replace(entry, asks=asks if reply.is_complete else ())
        turn = self.with_unstored(entry)
        await run_shielded(
            partial(turn.transcript.extend, note=reply.note), turn.unstored, turn.lease
        )
        return replace(turn, unstored=())

    def resulted(self, result: ToolResult, news: ToolEffects = NO_EFFECTS) -> Turn:
        """To be stored before anything is done that may write."""
        entry = self.entry(Message("user", (result,)))
        return self.with_unstored(replace(entry, seen=news.seen, changes=news.changes))

    @property
    def window(self) -> TranscriptWindow:
        since = self.session.window_from
        entries = (*self.before, *self.own)
        return TranscriptWindow(
            self.session, tuple(entry for entry in entries if entry.number >= since)
        )

    def compacted(self, found: Compacted) -> Turn:
        """With the window as a compaction has left it."""
        stored = found.window.entries
        fresh = (one for one in stored if not one.is_said and one.number > self._last)
        remarks = tuple(dict.fromkeys((*self.remarks, *found.remarks)))
        session, asides = found.window.session, (*self.asides, *fresh)
        return replace(self, session=session, asides=asides, remarks=remarks)

    def resumed(self) -> Turn:
        """With what was said about its context, and how little it shows, up to its newest request."""
        newest = self.prompt_log.resume(self.id)
        pruning = newest.pruning if newest else None
        prune_all = pruning is not None and pruning.prune_all
        return replace(self, remarks=remarks_of(newest, self.asides), prune_all=prune_all)

    def shown_hard(self) -> Turn:
        """With as little of what was said as may be."""
        return replace(self, prune_all=True, remarks=(*self.remarks, PRUNED_HARD))

    def question(self, toolset: Toolset, *, prune_all: bool = False) -> PromptRequest:
        """What the model is asked next."""
        return build_request(
            self.sources,
            self.prompt_log.held(),
            self.window,
            toolset.specs(),
            at=self.clock.now(),
            running=self.id,
            instructions=self.instructions,
            prune_all=prune_all or self.prune_all,
        )

    def keep(self, question: PromptRequest) -> Turn:
        """What is shown is kept before it is, with the entries that it shows first."""
        keeping = self.keeping(question, str(self.lease.generation))
        try:
            self.transcript.extend(self.unstored, self.lease, *keeping.changes)
        except Conflict as conflict:
            raise LeaseLost(self.lease.key) from conflict
        self.prompt_log.mark_written(keeping)
        return replace(self, unstored=())

    def keeping(self, question: PromptRequest, writer: str) -> PendingWrite:
        """What must be written for that."""
        model, remarks = self.sources.model, self.remarks
        return self.prompt_log.prepare(question, self.id, model, writer, remarks=remarks)

    def ended(self, status: Status, failure: ModelFailure | None = None) -> Ending:
        unavailable = self.prompt_log.unavailable
        ending = Ending(status, self.id, self.first, self._last, failure, unavailable)
        unsettled = (Remark("unsettled", f"{_UNSETTLED} {why}") for why in self.sources.unsettled)
        return replace(ending, remarks=(*self.remarks, *unsettled))


_UNSETTLED = "what was changed by hand is there, and in no revision yet, of"


def foreseen(
    turn: Turn, model: Model, question: PromptRequest, hand_up: HandUp
) -> AbstractContextManager[None]:
    """Around the keeping of a question that is asked then."""
    tokens_max = turn.limits.output_tokens
    tell = partial(foresee, model, question.request, output_tokens_max=tokens_max)
    return meanwhile(partial(hand_up, tell))


def _storable(reply: Reply) -> Reply:
    """JSON may hold halves of surrogate pairs, which no store takes; a model's JSON sometimes does."""
    return replace(reply, message=message_of(sound_json(reply.message.as_json())))


async def run_turn(
    turn: Turn, *, model: Model, toolset: Toolset, compaction: Compaction, emit: Emit
) -> tuple[Turn, Ending]:
    """Ask the model until it asks for no more tools; then what people have changed meanwhile is settled,
    unless a tool was run before."""
    turn, status, failure = await _stepped(turn, model, toolset, compaction, emit)
    if turn.sources.owes:
        await completed(run_in_new_thread(turn.sources.settle))
    return turn, turn.ended(status, failure)


async def _stepped(
    turn: Turn, model: Model, toolset: Toolset, compaction: Compaction, emit: Emit
) -> tuple[Turn, Status, ModelFailure | None]:
    """Where it stands when nothing more is to be asked, and why."""
    if turn.may_have_run and not pending(turn.entries) and turn.open_calls:
        interrupted = (ToolResult(call.id, INTERRUPTED, is_error=True) for call in turn.open_calls)
        turn = await turn.append(turn.entry(Message("user", tuple(interrupted))))
    while not turn.is_answered:
        if pending(turn.entries):
            return turn, "waiting", None
        turn = await _called(turn, toolset, emit)
        if turn.steps >= turn.limits.steps:
            return await turn.stored(), "out_of_steps", None
        if turn.is_out_of_money:
            return await turn.stored(), "out_of_money", None
        turn, reply = await _asked(turn, model, toolset, compaction, emit)
        if isinstance(reply, ModelFailure):
            return turn, "failed", reply
        reply = _storable(reply)
        turn = await turn.replied(reply, toolset.required_answers(reply.message.tool_calls))
    return turn, "done" if turn.entries[-1].is_complete else "cut", None


async def _called(turn: Turn, toolset: Toolset, emit: Emit) -> Turn:
    """With the results of its newest calls. Those that only read run together; before one that may write
    begins, all before it are stored, and what came of it at once: the guard of that write is what asks, each
    time, whether the conversation is still ours."""
    for calls in toolset.rounds(turn.open_calls):
        turn = await turn.stored()
        for result, news in await toolset.run_together(calls, emit):
            turn = turn.resulted(result, news)
        if any(toolset.may_write(call) for call in calls):
            turn = await turn.stored()
    return turn


async def _asked(
    turn: Turn, model: Model, toolset: Toolset, compaction: Compaction, emit: Emit
) -> tuple[Turn, Reply | ModelFailure]:
    """One answer. What is too long for the limit is compacted before it is sent, and what is too long for
    the provider is made shorter, once."""

    async def ask(question: PromptRequest) -> Reply | ModelFailure:
        request, tokens_max = question.request, turn.limits.output_tokens
        return await model.reply(request, output_tokens_max=tokens_max, emit=emit)

    turn, question = await _put(turn, model, toolset, compaction)
    if question is None:
        turn, question = await _compacted(turn, toolset, compaction, emit)
    reply = await ask(question)
    if not _is_too_long(reply):
        return turn, reply
    if isinstance(reply, ModelFailure) and reply.kind == "window_full":
        emit(Withdrawn())  # of that answer something was told
    if not turn.prune_all:
        turn = await _shortened(turn, question, toolset, compaction, emit)
        turn, question = await _kept(turn, toolset)
        reply = await ask(question)
    if isinstance(reply, ModelFailure) and _is_too_long(reply):
        reply = still_too_long(reply, compaction.config)
    return turn, reply


async def _put(
    turn: Turn, model: Model, toolset: Toolset, compaction: Compaction
) -> tuple[Turn, PromptRequest | None]:
    """The next question, kept; None when something is to be done or to be said before it is asked."""
    if turn.last_request is not None:
        return replace(turn, last_request=None), turn.last_request
    hand_up = handing_up()

    def put() -> tuple[Turn, PromptRequest | None]:
        question = turn.question(toolset)
        if compaction.is_due(turn.window, question):
            return turn, None
        with foreseen(turn, model, question, hand_up):
            return turn.keep(question), question

    if turn.unstored:  # what was read must not get lost by a cancellation in this moment
        return await run_shielded(put)
    return await run_in_thread(put)


async def _compacted(
    turn: Turn, toolset: Toolset, compaction: Compaction, emit: Emit
) -> tuple[Turn, PromptRequest]:
    turn = await turn.stored()
    question = await run_in_thread(turn.question, toolset)
    found = await compaction.when_due(turn.window, question, emit)
    return await _kept(turn if found is None else turn.compacted(found), toolset)


async def _kept(turn: Turn, toolset: Toolset) -> tuple[Turn, PromptRequest]:
    def kept() -> tuple[Turn, PromptRequest]:
        question = turn.question(toolset)
        return turn.keep(question), question

    return await run_in_thread(kept)


async def _shortened(
    turn: Turn, question: PromptRequest, toolset: Toolset, compaction: Compaction, emit: Emit
) -> Turn:
    """By a summary, if the agent has them, or by pruning all that may go."""
    if compaction.config.enabled:
        shorter = await run_in_thread(lambda: turn.question(toolset, prune_all=True))
        found = await compaction.at_once(turn.window, question, emit, shorter=shorter)
        turn = turn.compacted(found)
        if found.is_done:
            return turn
    return turn.shown_hard()


def _is_too_long(reply: Reply | ModelFailure) -> bool:
    return isinstance(reply, ModelFailure) and reply.kind in TOO_LONG
