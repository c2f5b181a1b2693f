"""Run a turn step by step, from an event to an outcome.

The state of a turn is its stored entries, and nothing else. Another process can rebuild an interrupted turn
from the same entries and continue with the same loop. Calls without a stored result may have run, wholly or
in part, so they are never run again: the model is told so, and decides.

A reply is stored together with the list of its calls that wait for approval or for the client. As long as one
of them waits, none of the reply's calls is run and the turn is paused. The turn continues when the last of
them was approved or answered.

What the turn writes, it writes through its log (`prompts/turn_log`). A request is sent once it is durable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.agents.record import Limits
from harness.billing.price import NANODOLLARS, Price
from harness.context.receipt import Remark, ShownPart
from harness.context.repair import INTERRUPTED, sound_json
from harness.messages.message import Message, Text, ToolCall, ToolResult, message_of, user
from harness.messages.model_request import ModelFailure, Reply
from harness.messages.pending_call import RequiredAnswer
from harness.messages.progress import Emit, Withdrawn
from harness.models.port import Model
from harness.prompts.compaction import (
    PRUNED_HARD,
    TOO_LONG,
    Compacted,
    Compaction,
    remarks_of,
    still_too_long,
)
from harness.prompts.prompt_log import ReceiptDraft
from harness.prompts.prompt_request import PromptRequest, build_request
from harness.prompts.prompt_sources import PromptSources
from harness.prompts.turn_log import TurnLog
from harness.runtime.async_bridge import (
    completed,
    run_in_new_thread,
    run_in_thread,
    run_shielded,
)
from harness.runtime.templates import render
from harness.tools.port import Toolset
from harness.tools.tool_context import NO_EFFECTS, ToolEffects
from harness.transcripts.approval import accepted_call, open_calls, pending
from harness.transcripts.outcome import Ending, Status
from harness.transcripts.session import Session
from harness.transcripts.transcript import Entry, TranscriptWindow
from workspaces.clock import Clock
from workspaces.ids import TurnId
from workspaces.timestamp import stamp_of


@dataclass(frozen=True, slots=True)
class Turn:
    """The state of a turn. Every message is stored before anything acts on it."""

    id: TurnId
    log: TurnLog
    clock: Clock
    session: Session
    sources: PromptSources
    limits: Limits
    before: tuple[Entry, ...]
    """Entries of the window from before this turn."""
    first: int
    """Number of the turn's first entry."""
    entries: tuple[Entry, ...] = ()
    instructions: str | None = None
    """The platform's instructions to the model for this turn alone."""
    shown: tuple[ShownPart, ...] = ()
    """What the turn's first message shows of memory: parts of the receipt of each request."""
    reminder: str = ""
    """The memory that the model sees beside the turn's first message."""
    price: Price | None = None
    may_have_run: bool = False
    """True if an earlier lease holder may have run calls that have no result."""
    asides: tuple[Entry, ...] = ()
    """The turn's own entries that are no messages: flushes before a summary, and summaries."""
    remarks: tuple[Remark, ...] = ()
    prune_all: bool = False
    """True if the turn shows as little as possible, because the provider refused more."""

    @property
    def steps(self) -> int:
        return sum(entry.message.role == "assistant" for entry in self.entries)

    @property
    def is_out_of_money(self) -> bool:
        """True if the turn has spent its own dollar limit."""
        if self.limits.dollars is None or self.price is None:
            return False
        spent = sum(self.price.of(entry.usage) for entry in self.own)
        return spent >= round(self.limits.dollars * NANODOLLARS)

    @property
    def is_answered(self) -> bool:
        """True if there is no more request to send and no more call to run."""
        newest = self.entries[-1]
        is_reply = newest.message.role == "assistant"
        return is_reply and not (newest.message.tool_calls and newest.is_complete)

    @property
    def is_reminded(self) -> bool:
        """True if the harness has asked for the call that must end the turn."""
        later = (one.message for one in self.entries[1:] if one.message.role == "user")
        return any(isinstance(part, Text) for message in later for part in message.parts)

    def owes_call(self, tool: str | None) -> bool:
        """Return True if the turn must end with a call of this tool, and was not reminded of it."""
        return tool is not None and not self.is_reminded and self.entries[-1].is_complete

    def status_before_request(self, last_tool: str | None) -> Status | None:
        """Return the status of a turn that ends before its next request. None: the request may be sent."""
        if last_tool is not None and accepted_call(self.entries, last_tool) is not None:
            return "done"
        if self.steps >= self.limits.steps:
            return "out_of_steps"
        return "out_of_money" if self.is_out_of_money else None

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        return open_calls(self.entries)

    def entry(self, message: Message, *, event_id: str | None = None) -> Entry:
        """Return the turn's next entry."""
        return Entry(self.newest + 1, stamp_of(self.clock.now()), self.id, message, event_id)

    @property
    def newest(self) -> int:
        """The number of the turn's newest entry."""
        return self.first + len(self.entries) + len(self.asides) - 1

    @property
    def own(self) -> tuple[Entry, ...]:
        """The entries of this turn."""
        if not self.asides:
            return self.entries
        return tuple(sorted((*self.entries, *self.asides), key=lambda entry: entry.number))

    def with_entry(self, entry: Entry) -> Turn:
        return replace(self, entries=(*self.entries, entry))

    async def append(self, entry: Entry) -> Turn:
        """Store an entry under the lease's guard.

        On return, no other process has taken over in the meantime.
        """
        await run_in_thread(self.log.append, entry)
        return self.with_entry(entry)

    async def store_results(self) -> None:
        """Store the results that wait for the next write."""
        if self.log.has_waiting:
            await run_in_thread(self.log.append)

    async def store_reply(self, reply: Reply, asks: tuple[RequiredAnswer, ...]) -> Turn:
        """Store the reply together with its usage record, so that a cancellation at this moment cannot lose
        it."""
        entry = replace(self.entry(reply.message), usage=reply.usage, is_complete=reply.is_complete)
        entry = replace(entry, asks=asks if reply.is_complete else ())
        await run_shielded(self.log.append, entry, usage=reply.note)
        return self.with_entry(entry)

    def with_result(self, result: ToolResult, news: ToolEffects = NO_EFFECTS) -> Turn:
        """Add a tool's result. It must be stored before any call that may write."""
        entry = self.entry(Message("user", (result,)))
        entry = replace(entry, seen=news.seen, changes=news.changes)
        self.log.add(entry)
        return self.with_entry(entry)

    @property
    def window(self) -> TranscriptWindow:
        since = self.session.window_from
        entries = (*self.before, *self.own)
        return TranscriptWindow(
            self.session, tuple(entry for entry in entries if entry.number >= since)
        )

    def with_compaction(self, compaction: Compacted) -> Turn:
        """Return a copy with the window after a compaction."""
        stored = compaction.window.entries
        fresh = (one for one in stored if not one.is_said and one.number > self.newest)
        remarks = tuple(dict.fromkeys((*self.remarks, *compaction.remarks)))
        session, asides = compaction.window.session, (*self.asides, *fresh)
        return replace(self, session=session, asides=asides, remarks=remarks)

    def resumed(self) -> Turn:
        """Return a copy with the remarks and the pruning of the turn's newest request."""
        newest = self.log.prompt_log.resume(self.id)
        pruning = newest.pruning if newest else None
        prune_all = pruning is not None and pruning.prune_all
        return replace(self, remarks=remarks_of(newest, self.asides), prune_all=prune_all)

    def with_all_pruned(self) -> Turn:
        """Return a copy that shows as little of the conversation as possible."""
        return replace(self, prune_all=True, remarks=(*self.remarks, PRUNED_HARD))

    def build_prompt(self, toolset: Toolset, *, prune_all: bool = False) -> PromptRequest:
        """Build the next request to the model."""
        return build_request(
            self.sources,
            self.log.prompt_log.held(),
            self.window,
            toolset.specs(),
            at=self.clock.now(),
            running=self.id,
            instructions=self.instructions,
            prune_all=prune_all or self.prune_all,
        )

    def receipt(self, prompt: PromptRequest) -> ReceiptDraft:
        """Return the draft of the receipt that is stored before the request is sent."""
        model = self.sources.model
        return ReceiptDraft(prompt, self.id, model, self.remarks, also_shown=self.shown)

    def ending(self, status: Status, failure: ModelFailure | None = None) -> Ending:
        unavailable = self.log.prompt_log.unavailable
        ending = Ending(status, self.id, self.first, self.newest, failure, unavailable)
        uncommitted = (
            Remark("unsettled", f"{_UNCOMMITTED} {why}") for why in self.sources.uncommitted
        )
        return replace(ending, remarks=(*self.remarks, *uncommitted))


_UNCOMMITTED = "manual edits are in the files but not yet committed, in"


def _storable(reply: Reply) -> Reply:
    """Remove halves of surrogate pairs: a model's JSON may contain them, and no store accepts them."""
    return replace(reply, message=message_of(sound_json(reply.message.as_json())))


async def run_turn(
    turn: Turn, *, model: Model, toolset: Toolset, compaction: Compaction, emit: Emit
) -> tuple[Turn, Ending]:
    """Ask the model until its reply contains no tool calls.

    Then commit the manual edits that people made in the meantime, unless a tool call has done so before.
    """
    turn, status, failure = await _run_steps(turn, model, toolset, compaction, emit)
    if turn.sources.has_uncommitted_edits:
        await completed(run_in_new_thread(turn.sources.commit_remaining_edits))
    return turn, turn.ending(status, failure)


async def _run_steps(
    turn: Turn, model: Model, toolset: Toolset, compaction: Compaction, emit: Emit
) -> tuple[Turn, Status, ModelFailure | None]:
    """Run steps until the turn needs no more requests. Return its state, its status and any failure."""
    turn = await _interrupted(turn)
    if turn.is_reminded and toolset.last_tool:  # resumed behind the reminder
        toolset = toolset.only(toolset.last_tool)
    while True:
        if turn.is_answered:
            if not turn.owes_call(toolset.last_tool):
                break
            turn, toolset = await _remind(turn, toolset)
        if pending(turn.entries):  # a call needs approval or the client: pause
            return turn, "waiting", None
        turn = await _run_calls(turn, toolset, emit)
        if (status := turn.status_before_request(toolset.last_tool)) is not None:
            await turn.store_results()
            return turn, status, None
        turn, reply = await _ask_model(turn, model, toolset, compaction, emit)
        if isinstance(reply, ModelFailure):
            return turn, "failed", reply
        reply = _storable(reply)
        turn = await turn.store_reply(reply, toolset.required_answers(reply.message.tool_calls))
    return turn, "done" if turn.entries[-1].is_complete else "cut", None


async def _interrupted(turn: Turn) -> Turn:
    """Store results for the calls that an earlier lease holder may have run."""
    if not turn.may_have_run or pending(turn.entries) or not turn.open_calls:
        return turn
    results = (ToolResult(call.id, INTERRUPTED, is_error=True) for call in turn.open_calls)
    return await turn.append(turn.entry(Message("user", tuple(results))))


async def _remind(turn: Turn, toolset: Toolset) -> tuple[Turn, Toolset]:
    """Ask for the call that must end the turn. Only that tool is offered from now on."""
    reminder = turn.entry(user(render("runs/submit.md")))
    return await turn.append(reminder), toolset.only(toolset.last_tool or "")


async def _run_calls(turn: Turn, toolset: Toolset, emit: Emit) -> Turn:
    """Run the newest calls and return the turn with their results.

    Calls that only read run together. Before a call that may write, all earlier results are stored; its own
    result is stored at once. The guard of each such write checks that this process still holds the lease.
    """
    for calls in toolset.rounds(turn.open_calls):
        await turn.store_results()
        for result, news in await toolset.run_together(calls, emit):
            turn = turn.with_result(result, news)
        if any(toolset.may_write(call) for call in calls):
            await turn.store_results()
    return turn


async def _ask_model(
    turn: Turn, model: Model, toolset: Toolset, compaction: Compaction, emit: Emit
) -> tuple[Turn, Reply | ModelFailure]:
    """Get one reply from the model.

    A prompt longer than the agent's limit is compacted before it is sent. A prompt too long for the provider
    is shortened, once.
    """

    async def ask(prompt: PromptRequest) -> Reply | ModelFailure:
        request, tokens_max = prompt.request, turn.limits.output_tokens
        return await model.reply(request, output_tokens_max=tokens_max, emit=emit)

    prompt = await _next_prompt(turn, toolset, compaction)
    if prompt is None:  # a compaction is due
        turn, prompt = await _compact(turn, toolset, compaction, emit)
    reply = await ask(prompt)
    if not _is_too_long(reply):
        return turn, reply
    if isinstance(reply, ModelFailure) and reply.kind == "window_full":
        emit(Withdrawn())  # a part of that answer was already published
    if not turn.prune_all:  # there is still something to leave out: try once more
        turn = await _shorten(turn, prompt, toolset, compaction, emit)
        reply = await ask(await run_in_thread(_store_prompt, turn, toolset))
    if isinstance(reply, ModelFailure) and _is_too_long(reply):
        reply = still_too_long(reply, compaction.config)
    return turn, reply


async def _next_prompt(
    turn: Turn, toolset: Toolset, compaction: Compaction
) -> PromptRequest | None:
    """Build and store the next request. Return None if it needs compaction or a remark before it is sent."""
    first, turn.log.first_request = turn.log.first_request, None
    if first is not None:
        return first

    def build() -> PromptRequest | None:
        prompt = turn.build_prompt(toolset)
        if compaction.is_due(turn.window, prompt):
            return None
        turn.log.append(receipt=turn.receipt(prompt))
        return prompt

    if turn.log.has_waiting:  # a cancellation at this moment must not lose these results
        return await run_shielded(build)
    return await run_in_thread(build)


async def _compact(
    turn: Turn, toolset: Toolset, compaction: Compaction, emit: Emit
) -> tuple[Turn, PromptRequest]:
    await turn.store_results()
    prompt = await run_in_thread(turn.build_prompt, toolset)
    compacted = await compaction.when_due(turn.window, prompt, emit)
    turn = turn if compacted is None else turn.with_compaction(compacted)
    return turn, await run_in_thread(_store_prompt, turn, toolset)


def _store_prompt(turn: Turn, toolset: Toolset) -> PromptRequest:
    prompt = turn.build_prompt(toolset)
    turn.log.append(receipt=turn.receipt(prompt))
    return prompt


async def _shorten(
    turn: Turn, prompt: PromptRequest, toolset: Toolset, compaction: Compaction, emit: Emit
) -> Turn:
    """Shorten the prompt: by a summary if the agent allows them, else by pruning everything that may go."""
    if compaction.config.enabled:
        shorter = await run_in_thread(lambda: turn.build_prompt(toolset, prune_all=True))
        compacted = await compaction.at_once(turn.window, prompt, emit, shorter=shorter)
        turn = turn.with_compaction(compacted)
        if compacted.is_done:
            return turn
    return turn.with_all_pruned()


def _is_too_long(reply: Reply | ModelFailure) -> bool:
    return isinstance(reply, ModelFailure) and reply.kind in TOO_LONG
