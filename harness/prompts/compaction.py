"""Compaction: the beginning of a conversation replaced, for the model, by a summary.

    flush     the model has one step to write down with its tools what must last. Its call and each result
              are stored as they happen, under a kind of their own: no request shows them
    summary   a request of its own, to the agent's model: what is covered, as the model was shown it, and
              the summary before. More than one request when it is too much for one
    commit    the summary's entry and the session's new cursor, in one batch under the lease's guard

Up to the commit nothing that a request shows has changed, and behind it everything has: whoever takes over
after a crash finds the one or the other. A flush that was begun is not begun again within its turn.

What fails changes nothing: it is said in the outcome, noted with the session, and not tried again before
the context has grown by a tenth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from harness.agents.agent import SessionCompaction
from harness.context.assemble import Numbered
from harness.context.prune import prune
from harness.context.receipt import Receipt, Remark
from harness.context.repair import repair
from harness.context.summary_plan import (
    CHUNK_CHARACTERS_MAX,
    CHUNK_CHARACTERS_MIN,
    Cover,
    SystemTooLong,
    TurnTooLong,
    Unusable,
    chunk,
    cover,
    has_grown,
    input_of,
    question_to_writer,
    usable,
)
from harness.messages.message import Message, Text, ToolResult
from harness.messages.model_request import NO_USAGE, FailureKind, ModelFailure
from harness.messages.progress import (
    Compacting,
    Counted,
    Emit,
    Progress,
    ToolEnded,
    ToolStarted,
    Waiting,
)
from harness.models.port import Model
from harness.prompts.prompt_log import PromptLog
from harness.prompts.prompt_request import PromptRequest, flushing
from harness.runtime.async_bridge import run_in_thread
from harness.runtime.templates import render
from harness.tools.port import Toolset
from harness.transcripts.transcript import Entry, EntryKind, Transcript, TranscriptWindow
from workspaces.clock import Clock
from workspaces.coordination.lease import Lease
from workspaces.ids import TurnId
from workspaces.timestamp import stamp_of

SUMMARY_TOKENS_MAX = 8_000
"""Three times what a writer is asked for: a summary that is cut is of no use."""

FLUSH_TOKENS_MAX = 8_000

TOO_LONG: frozenset[FailureKind] = frozenset({"too_long", "window_full"})
"""What a shorter request may help against."""

_HOPELESS: frozenset[FailureKind] = frozenset({"unreachable", "overloaded", "key", "budget"})
"""Another question, asked at once, will fare no better."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What became of it: the window from now on, and what is to be said about it."""

    window: TranscriptWindow
    remarks: tuple[Remark, ...]
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Compaction:
    """What it takes to compact a conversation in the name of one turn. `model` is the agent's, its usage
    noted as that of a compaction."""

    config: SessionCompaction
    model: Model
    toolset: Toolset
    transcript: Transcript
    prompt_log: PromptLog
    lease: Lease
    clock: Clock
    turn_id: TurnId

    async def when_due(
        self, window: TranscriptWindow, question: PromptRequest, emit: Emit
    ) -> Compacted | None:
        """Before a request; None when there is nothing to do or to say. Once in a turn: what is still too
        long after that is the newest turns, which are to stay."""
        if not self.is_due(window, question):
            return None
        characters_max = self.config.max_context_length
        match question.due:
            case None:
                return None
            case SystemTooLong(characters):
                return Compacted(window, (_system_too_long(characters, characters_max),))
            case TurnTooLong():
                return Compacted(window, (_turn_too_long(characters_max),))
            case Cover() as found:
                return await self._covered(found, window, question, question, emit)

    def is_due(self, window: TranscriptWindow, question: PromptRequest) -> bool:
        """Whether there is something to do or to say before this is asked."""
        return question.due is not None and not self._has_stored("summary", window)

    async def at_once(
        self,
        window: TranscriptWindow,
        question: PromptRequest,
        emit: Emit,
        *,
        shorter: PromptRequest | None = None,
    ) -> Compacted:
        """Whatever the length. `shorter`: what may be asked instead of a question that was refused."""
        state = question.state
        if shorter is not None and not has_grown(state):
            return Compacted(window, ())
        length = state.characters if shorter is None else state.characters // 2
        found = cover(state, length)
        if isinstance(found, TurnTooLong):
            return Compacted(window, (Remark("turn_too_long", _ONE_TURN),))
        return await self._covered(found, window, question, shorter or question, emit)

    async def _covered(
        self,
        found: Cover,
        window: TranscriptWindow,
        question: PromptRequest,
        flush: PromptRequest,
        emit: Emit,
    ) -> Compacted:
        emit(Compacting(question.length.characters))
        work = _Work(self, window, _quietly(emit))
        hopeless = await work.flush(flush) if self._may_flush(window) else None
        if hopeless is None:
            summary = await work.summary(found, question)
        else:
            summary = Unusable(f"the model could not be asked: {hopeless.reason}")
        if isinstance(summary, Unusable):
            return await work.failed(summary, question.length.characters)
        return await work.done(summary, found)

    def _may_flush(self, window: TranscriptWindow) -> bool:
        """Once in a turn, and only where there is something to write to."""
        is_writable = any(mount.is_writable for mount in self.toolset.context.mounts)
        return self.config.flush and is_writable and not self._has_stored("flush", window)

    def _has_stored(self, kind: EntryKind, window: TranscriptWindow) -> bool:
        return any(one.kind == kind and one.turn_id == self.turn_id for one in window.entries)


class _Work:
    """One compaction; its window grows by what it stores."""

    def __init__(self, compaction: Compaction, window: TranscriptWindow, emit: Emit) -> None:
        self._with = compaction
        self._window = window
        self._emit = emit
        self._usage = NO_USAGE
        self._remarks: list[Remark] = []

    async def flush(self, question: PromptRequest) -> ModelFailure | None:
        """The failure, when there is no use in asking anything else."""
        request = flushing(question.request)
        model, toolset = self._with.model, self._with.toolset
        await run_in_thread(self._keep, replace(question, request=request))
        reply = await model.reply(request, output_tokens_max=FLUSH_TOKENS_MAX, emit=self._emit)
        if isinstance(reply, ModelFailure):
            self._remarks.append(Remark("flush_failed", f"{_FLUSH_FAILED}: {reply.reason}"))
            return reply if reply.kind in _HOPELESS else None
        calls = reply.message.tool_calls if reply.is_complete else ()
        if not calls:
            self._usage += reply.usage  # it had nothing to write: nothing has happened
            return None
        await self._store(replace(self._entry(reply.message, "flush"), usage=reply.usage))
        asked = {one.call_id for one in toolset.required_answers(calls)}
        for call in calls:
            if call.id in asked:
                result = ToolResult(call.id, render("compaction/not-allowed.md"), is_error=True)
            else:
                result = await toolset.run(call, self._emit)
            news = toolset.context.drain_effects()
            entry = self._entry(Message("user", (result,)), "flush")
            await self._store(replace(entry, seen=news.seen, changes=news.changes))
        return None

    def _keep(self, question: PromptRequest) -> None:
        """What is shown is kept before it is: memory, to a model that may write."""
        turn_id, lease = self._with.turn_id, self._with.lease
        name = self._with.model.name
        self._with.prompt_log.record(question, turn_id, name, lease, purpose="flush")

    async def summary(self, found: Cover, question: PromptRequest) -> str | Unusable:
        covered = [one for one in question.said if one.number <= found.until]
        since = question.held.snapshot.traffic_from
        shown = prune(covered, question.pruning, render, running=None, traffic_from=since)
        texts, size = input_of(_as_shown(shown), render), CHUNK_CHARACTERS_MAX
        before = self._window.summary
        summary = before.message.text if before else None
        while texts:
            text, rest = chunk(texts, size)
            written = await self._written(text, summary)
            if isinstance(written, ModelFailure):
                if written.kind in TOO_LONG and size > CHUNK_CHARACTERS_MIN:
                    size = max(CHUNK_CHARACTERS_MIN, min(size, len(text)) // 2)
                    continue
                return Unusable(f"the model could not write a summary: {written.reason}")
            if isinstance(written, Unusable):
                return written
            summary, texts = written, rest
        return summary or Unusable("there is nothing that could be summarised")

    async def done(self, summary: str, found: Cover) -> Compacted:
        session = self._window.session
        written = self._entry(Message("assistant", (Text(summary),)), "summary")
        window = self._window
        carried = window.summary.system if window.summary else ()
        system = (*carried, *window.system_until(found.until))
        entry = replace(written, usage=self._usage, covers=found.until, system=system)
        session = replace(session, window_from=found.until + 1, summary=entry.number, failed_at=0)
        session = await run_in_thread(
            self._with.transcript.compact, entry, session, self._with.lease
        )
        entries = (*self._window.entries, entry)
        kept = tuple(one for one in entries if one.number >= session.window_from)
        remarks = (*self._remarks, _compacted(found.until))
        return Compacted(TranscriptWindow(session, kept), remarks, is_done=True)

    async def failed(self, why: Unusable, characters: int) -> Compacted:
        session = replace(self._window.session, failed_at=characters)
        session = await run_in_thread(self._with.transcript.moved, session, self._with.lease)
        remarks = (*self._remarks, Remark("summary_failed", f"{why.reason}. {_AS_IT_WAS}"))
        return Compacted(replace(self._window, session=session), remarks)

    async def _written(self, text: str, earlier: str | None) -> str | Unusable | ModelFailure:
        request = question_to_writer(text, earlier, render)
        reply = await self._with.model.reply(
            request, output_tokens_max=SUMMARY_TOKENS_MAX, emit=self._emit
        )
        self._usage += reply.usage
        return reply if isinstance(reply, ModelFailure) else usable(reply, text, earlier)

    def _entry(self, message: Message, kind: EntryKind) -> Entry:
        at = stamp_of(self._with.clock.now())
        return Entry(self._window.next_number, at, self._with.turn_id, message, kind=kind)

    async def _store(self, entry: Entry) -> None:
        await run_in_thread(self._with.transcript.append, entry, self._with.lease)
        self._window = replace(self._window, entries=(*self._window.entries, entry))


def remarks_of(newest: Receipt | None, entries: Iterable[Entry]) -> tuple[Remark, ...]:
    """What there was to say about the context of a turn that nobody has at hand any more: what its newest
    request was kept with, and the summaries among its entries, of which it may not have known yet."""
    known = newest.remarks if newest else ()
    summaries = (_compacted(one.covers) for one in entries if one.covers is not None)
    return tuple(dict.fromkeys((*known, *summaries)))


PRUNED_HARD = Remark(
    "pruned_hard",
    "the provider found the conversation too long: in this turn the model is not shown what tools did in "
    "earlier ones, and of long texts only head and tail",
)


def still_too_long(refused: ModelFailure, config: SessionCompaction) -> ModelFailure:
    """Nothing is left that could be made shorter."""
    if config.enabled:
        setting = (
            f"lower `session.compaction.maxContextLength` (now {config.max_context_length:,}), shorten "
            "MEMORY.md"
        )
    else:
        setting = "turn on `session.compaction.enabled`, shorten MEMORY.md"
    reason = "the conversation is longer than the model can take, even shortened"
    return ModelFailure(
        "context_too_long", reason, f"{setting}, or reset the conversation", refused.usage
    )


_AS_IT_WAS = (
    "The conversation is as it was; it is tried again when the context has grown by a tenth"
)
_FLUSH_FAILED = (
    "the model could not write down what must last before the conversation is summarised"
)
_ONE_TURN = "there is nothing before the newest turn that could be summarised"


def _compacted(until: int) -> Remark:
    told = f"what was said up to entry {until} is shown to the model as a summary now"
    return Remark("compacted", told)


def _as_shown(messages: tuple[Numbered, ...]) -> tuple[Numbered, ...]:
    """A damaged history may hold a call without a result, say: its writer reads what the model did."""
    return tuple(enumerate(repair(tuple(message for _, message in messages))))


def _quietly(emit: Emit) -> Emit:
    """What is written in a compaction is no answer to anyone; what tools do is seen."""

    def told(progress: Progress) -> None:
        if isinstance(progress, ToolStarted | ToolEnded | Waiting | Counted):
            emit(progress)

    return told


def _system_too_long(characters: int, characters_max: int) -> Remark:
    return Remark(
        "system_too_long",
        f"what stands beside the messages alone has {characters:,} characters, more than "
        f"`session.compaction.maxContextLength` ({characters_max:,}): no summary can help. Shorten "
        "MEMORY.md or the instructions, or raise the limit",
    )


def _turn_too_long(characters_max: int) -> Remark:
    return Remark(
        "turn_too_long",
        f"the context is longer than `session.compaction.maxContextLength` ({characters_max:,}), and "
        f"{_ONE_TURN}",
    )
