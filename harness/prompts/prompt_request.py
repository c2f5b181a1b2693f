"""Build a request to the model, together with everything needed to explain it.

To build a request means: read the memory as it is now, decide which parts of it the model must see anew, and
assemble the messages. That stores nothing. A turn stores each request before it is sent (`prompt_log`); a
preview only shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from harness.context.assemble import assemble
from harness.context.delta import Delta
from harness.context.history_message import HistoryMessage
from harness.context.length import Length, characters, measured
from harness.context.prune import Pruning, leaving, prune
from harness.context.receipt import digest
from harness.context.repair import repair
from harness.context.snapshot import ShownState, Snapshot, after, decide
from harness.context.summary_plan import Cover, Due, SummaryState, TurnTooLong, cover, due, due_json
from harness.messages.message import user
from harness.messages.model_request import ModelRequest, ToolSpec
from harness.prompts.prompt_sources import PromptSources
from harness.runtime.templates import render
from harness.transcripts.transcript import TranscriptWindow
from workspaces.ids import TurnId
from workspaces.storage.records import JsonObject


@dataclass(frozen=True, slots=True)
class PromptRequest:
    request: ModelRequest
    said: tuple[HistoryMessage, ...]
    """The messages of the transcript that the request shows, unshortened."""
    pruning: Pruning | None
    """How those messages were shortened."""
    held: ShownState
    """The state that the conversation's model has seen, including this request."""
    running: TurnId | None
    """The turn that sends the request."""
    news: Snapshot | Delta | None
    """The part of that state that is new."""
    length: Length
    characters_max: int | None
    """Characters beyond which a compaction is due; None: never."""
    failed_at: int
    """Length in characters when a summary failed."""

    @property
    def state(self) -> SummaryState:
        return SummaryState(
            self.said,
            self.length.characters,
            characters(self.request.system, ()),
            self.characters_after,
            self.failed_at,
        )

    @property
    def covered(self) -> Cover | TurnTooLong:
        """The entries that a summary made now would cover, however short the context is."""
        return cover(self.state, self.length.characters)

    @property
    def due(self) -> Due | None:
        """The work to do before the request is sent; None if there is none."""
        return None if self.characters_max is None else due(self.state, self.characters_max)

    def characters_after(self, until: int) -> int:
        """Return the length without the messages up to an entry."""
        rest = [one for one in self.said if one.number > until]
        since = self.held.snapshot.traffic_from
        shown = prune(rest, self.pruning, render, running=self.running, traffic_from=since)
        return characters(self.request.system, [message for _, message in shown])

    @property
    def unavailable(self) -> frozenset[str]:
        """The sources of memory that could not be read."""
        return frozenset(part.source for part in self.held.parts if part.unavailable is not None)

    def parts_json(self) -> list[JsonObject]:
        """Return the parts of the prompt, then the notices of their changes beside messages."""
        parts = [
            {**part.as_json(), "characters": len(part.text)} for part in self.held.snapshot.parts
        ]
        changes: list[JsonObject] = [
            {
                "source": "change",
                "trusted": False,
                "text": delta.text,
                "entry": delta.entry,
                "revisions": {one.source: one.revision for one in delta.changes},
                "characters": len(delta.text),
            }
            for delta in self.held.deltas
        ]
        return [*parts, *changes]

    def as_json(self) -> JsonObject:
        """Return the parts with sizes and revisions, and the request as it would be sent.

        The digest is the one that the receipt of this request would have.
        """
        snapshot = self.held.snapshot
        return {
            "snapshot": {"number": snapshot.number, "at": snapshot.at, "reason": snapshot.reason},
            "isNew": self.news is snapshot,
            "parts": self.parts_json(),
            "length": self.length.as_json(),
            **({"compaction": due_json(found)} if (found := self.due) else {}),
            "digest": digest(self.request),
            "request": self.request.as_json(),
        }


def flushing(request: ModelRequest) -> ModelRequest:
    """Return the same request, with an instruction to write down what must last."""
    instruction = user(render("compaction/flush.md"))
    return replace(request, messages=repair((*request.messages, instruction)))


def build_request(
    sources: PromptSources,
    held: ShownState | None,
    window: TranscriptWindow,
    tools: tuple[ToolSpec, ...],
    *,
    at: datetime,
    running: TurnId | None,
    instructions: str | None = None,
    prune_all: bool = False,
) -> PromptRequest:
    """Build the next request of a conversation.

    `held` is the state that the conversation's model has seen until now, and `running` the turn that asks, if
    any. `instructions` are the platform's for this turn alone. With `prune_all` the request shows as little
    as possible, whatever the agent's setting.
    """
    now = sources.moment(
        at,
        window.newest_number,
        tools=tools,
        session=window.session,
        shown=held.revisions() if held else {},
        summary=window.summary.message.text if window.summary else None,
    )
    said, pruning = window.said, sources.pruning_for(prune_all=prune_all)
    since = held.snapshot.traffic_from if held else 0
    pruned = leaving(said, pruning, render, running=running, traffic_from=since)
    news, shown_before = decide(held, replace(now, leaving=pruned), render), held
    held = after(held, news, at)
    since = held.snapshot.traffic_from
    messages = prune(said, pruning, render, running=running, traffic_from=since)
    request = assemble(
        held.snapshot, held.deltas, messages, stored_system=window.system, turn=instructions
    )
    counted, is_new = _counted_length(shown_before, window), news is held.snapshot
    length = measured(request, counted, is_same=not is_new)
    held = replace(held, length=length, entry=window.newest_number)
    return PromptRequest(
        request=request,
        said=said,
        pruning=pruning,
        held=held,
        running=running,
        news=news,
        length=length,
        characters_max=sources.characters_max,
        failed_at=window.session.failed_at,
    )


def _counted_length(held: ShownState | None, window: TranscriptWindow) -> Length | None:
    """Return the length of the previous request, as the provider has counted it."""
    if held is None or held.length is None:
        return None
    answers = (
        entry
        for entry in window.entries
        if entry.is_said and entry.number > held.entry and entry.message.role == "assistant"
    )
    answer = next(answers, None)
    return held.length.counted(answer.usage.prompt) if answer else held.length
