"""Compact a conversation: replace its beginning, for the model, by a summary.

    flush     the model has one step to write down with its tools what must last. Its call and each result
              are stored as they happen, under a kind of their own: no request shows them
    summary   a separate request to the agent's model: the covered entries, as the model saw them, and the
              previous summary. More than one request when that is too much for one
    commit    the summary's entry and the session's new cursor, in one batch under the lease's guard

Before the commit, no request shows any change; after it, every request does. So a process that takes over
after a crash finds either the old state or the new one. A flush that has begun is not repeated in its turn.

A failure changes nothing. The outcome reports it and the session records it. The next attempt waits until the
context has grown by a tenth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from harness.agents.record import SessionCompaction
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
from harness.prompts.prompt_log import ReceiptDraft
from harness.prompts.prompt_request import PromptRequest, flushing
from harness.prompts.turn_log import TurnLog
from harness.runtime.async_bridge import run_in_thread
from harness.runtime.templates import render
from harness.tools.port import Toolset
from harness.transcripts.transcript import Entry, EntryKind, TranscriptWindow
from workspaces.clock import Clock
from workspaces.ids import TurnId
from workspaces.timestamp import stamp_of

SUMMARY_TOKENS_MAX = 8_000
"""Three times the length that the prompt asks for: a truncated summary is useless."""

FLUSH_TOKENS_MAX = 8_000

TOO_LONG: frozenset[FailureKind] = frozenset({"too_long", "window_full"})
"""Failures that a shorter request may avoid."""

_HOPELESS: frozenset[FailureKind] = frozenset({"unreachable", "overloaded", "key", "budget"})
"""Failures that another request, sent at once, would meet too."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a compaction: the window from now on, and the remarks to report."""

    window: TranscriptWindow
    remarks: tuple[Remark, ...]
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Compaction:
    """The services that compact a conversation for one turn.

    `model` is the agent's; its usage counts as that of a compaction.
    """

    config: SessionCompaction
    model: Model
    toolset: Toolset
    log: TurnLog
    clock: Clock
    turn_id: TurnId

    async def when_due(
        self, window: TranscriptWindow, prompt: PromptRequest, emit: Emit
    ) -> Compacted | None:
        """Compact before a request, if that is due. Return None when there is nothing to do or to report.

        This happens once in a turn. If the context is too long after that, the newest turns are, and they
        stay.
        """
        if not self.is_due(window, prompt):
            return None
        characters_max = self.config.max_context_length
        match prompt.due:
            case None:
                return None
            case SystemTooLong(characters):
                return Compacted(window, (_system_too_long(characters, characters_max),))
            case TurnTooLong():
                return Compacted(window, (_turn_too_long(characters_max),))
            case Cover() as covered:
                return await self._covered(covered, window, prompt, prompt, emit)

    def is_due(self, window: TranscriptWindow, prompt: PromptRequest) -> bool:
        """Return True if there is something to do or to report before this request."""
        return prompt.due is not None and not self._has_stored("summary", window)

    async def at_once(
        self,
        window: TranscriptWindow,
        prompt: PromptRequest,
        emit: Emit,
        *,
        shorter: PromptRequest | None = None,
    ) -> Compacted:
        """Compact whatever the length.

        `shorter` may be sent in place of a request that the provider refused.
        """
        state = prompt.state
        if shorter is not None and not has_grown(state):
            return Compacted(window, ())
        length = state.characters if shorter is None else state.characters // 2
        covered = cover(state, length)
        if isinstance(covered, TurnTooLong):
            return Compacted(window, (Remark("turn_too_long", _ONE_TURN),))
        return await self._covered(covered, window, prompt, shorter or prompt, emit)

    async def _covered(
        self,
        covered: Cover,
        window: TranscriptWindow,
        prompt: PromptRequest,
        flush: PromptRequest,
        emit: Emit,
    ) -> Compacted:
        emit(Compacting(prompt.length.characters))
        work = _Work(self, window, _quietly(emit))
        failure = await work.flush(flush) if self._may_flush(window) else None
        if failure is None:
            summary = await work.summary(covered, prompt)
        else:
            summary = Unusable(f"the model could not be asked: {failure.reason}")
        if isinstance(summary, Unusable):
            return await work.failed(summary, prompt.length.characters)
        return await work.done(summary, covered)

    def _may_flush(self, window: TranscriptWindow) -> bool:
        """Return True if this turn has not flushed yet and a mount is writable."""
        is_writable = any(mount.is_writable for mount in self.toolset.context.mounts)
        return self.config.flush and is_writable and not self._has_stored("flush", window)

    def _has_stored(self, kind: EntryKind, window: TranscriptWindow) -> bool:
        return any(one.kind == kind and one.turn_id == self.turn_id for one in window.entries)


class _Work:
    """One compaction in progress; its window grows with each entry it stores."""

    def __init__(self, compaction: Compaction, window: TranscriptWindow, emit: Emit) -> None:
        self._with = compaction
        self._window = window
        self._emit = emit
        self._usage = NO_USAGE
        self._remarks: list[Remark] = []

    async def flush(self, prompt: PromptRequest) -> ModelFailure | None:
        """Let the model write down what must last. Return the failure if no other request can succeed."""
        request = flushing(prompt.request)
        model, toolset = self._with.model, self._with.toolset
        await run_in_thread(self._keep, replace(prompt, request=request))
        reply = await model.reply(request, output_tokens_max=FLUSH_TOKENS_MAX, emit=self._emit)
        if isinstance(reply, ModelFailure):
            self._remarks.append(Remark("flush_failed", f"{_FLUSH_FAILED}: {reply.reason}"))
            return reply if reply.kind in _HOPELESS else None
        calls = reply.message.tool_calls if reply.is_complete else ()
        if not calls:
            self._usage += reply.usage  # the model had nothing to write down
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

    def _keep(self, prompt: PromptRequest) -> None:
        """Store the request before it is sent: it shows memory to a model that may write."""
        turn_id, name = self._with.turn_id, self._with.model.name
        self._with.log.append(receipt=ReceiptDraft(prompt, turn_id, name, purpose="flush"))

    async def summary(self, covered: Cover, prompt: PromptRequest) -> str | Unusable:
        messages = [one for one in prompt.said if one.number <= covered.until]
        since = prompt.held.snapshot.traffic_from
        shown = prune(messages, prompt.pruning, render, running=None, traffic_from=since)
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
        return summary or Unusable("there is nothing to summarise")

    async def done(self, summary: str, covered: Cover) -> Compacted:
        session = self._window.session
        written = self._entry(Message("assistant", (Text(summary),)), "summary")
        window = self._window
        carried = window.summary.system if window.summary else ()
        system = (*carried, *window.system_until(covered.until))
        entry = replace(written, usage=self._usage, covers=covered.until, system=system)
        session = replace(session, window_from=covered.until + 1, summary=entry.number, failed_at=0)
        log = self._with.log
        session = await run_in_thread(log.transcript.compact, entry, session, log.lease)
        entries = (*self._window.entries, entry)
        kept = tuple(one for one in entries if one.number >= session.window_from)
        remarks = (*self._remarks, _compacted(covered.until))
        return Compacted(TranscriptWindow(session, kept), remarks, is_done=True)

    async def failed(self, why: Unusable, characters: int) -> Compacted:
        session = replace(self._window.session, failed_at=characters)
        log = self._with.log
        session = await run_in_thread(log.transcript.moved, session, log.lease)
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
        await run_in_thread(self._with.log.append, entry)
        self._window = replace(self._window, entries=(*self._window.entries, entry))


def remarks_of(newest: Receipt | None, entries: Iterable[Entry]) -> tuple[Remark, ...]:
    """Return the remarks on the context of a turn that is not in memory any more.

    They are the remarks stored with its newest request, and those on summaries among its entries. That
    request may be older than the summaries.
    """
    known = newest.remarks if newest else ()
    summaries = (_compacted(one.covers) for one in entries if one.covers is not None)
    return tuple(dict.fromkeys((*known, *summaries)))


PRUNED_HARD = Remark(
    "pruned_hard",
    "the provider refused the conversation as too long: in this turn the model sees no tool calls of earlier "
    "turns, and only head and tail of long texts",
)


def still_too_long(refused: ModelFailure, config: SessionCompaction) -> ModelFailure:
    """Return the failure for a context in which nothing can be made shorter."""
    if config.enabled:
        setting = (
            f"lower `session.compaction.maxContextLength` (now {config.max_context_length:,}), shorten "
            "MEMORY.md"
        )
    else:
        setting = "turn on `session.compaction.enabled`, shorten MEMORY.md"
    reason = "the conversation is too long for the model, even when shortened"
    return ModelFailure(
        "context_too_long", reason, f"{setting}, or reset the conversation", refused.usage
    )


_AS_IT_WAS = (
    "The conversation is unchanged; the next attempt comes when the context has grown by a tenth"
)
_FLUSH_FAILED = (
    "the model could not write down what must last before the conversation is summarised"
)
_ONE_TURN = "there is nothing before the newest turn to summarise"


def _compacted(until: int) -> Remark:
    return Remark("compacted", f"the model now sees the entries up to {until} as a summary")


def _as_shown(messages: tuple[Numbered, ...]) -> tuple[Numbered, ...]:
    """Return the messages as the model saw them, repaired: a damaged history may hold a call without a
    result, for example."""
    return tuple(enumerate(repair(tuple(message for _, message in messages))))


def _quietly(emit: Emit) -> Emit:
    """Return an emit function that passes on only tool progress: text written in a compaction answers no
    user."""

    def emit_tool_progress(progress: Progress) -> None:
        if isinstance(progress, ToolStarted | ToolEnded | Waiting | Counted):
            emit(progress)

    return emit_tool_progress


def _system_too_long(characters: int, characters_max: int) -> Remark:
    return Remark(
        "system_too_long",
        f"the prompt without the messages has {characters:,} characters, more than "
        f"`session.compaction.maxContextLength` ({characters_max:,}): no summary can help. Shorten "
        "MEMORY.md or the instructions, or raise the limit",
    )


def _turn_too_long(characters_max: int) -> Remark:
    return Remark(
        "turn_too_long",
        f"the context is longer than `session.compaction.maxContextLength` ({characters_max:,}), and "
        f"{_ONE_TURN}",
    )
