"""Questions: a request to the model with all that is to be known about it.

To put one is to look at memory as it is now, to decide what of it must be shown anew, and to assemble the
request: nothing is stored by it. A turn keeps each question before it is asked (`showing`); a preview
only looks at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from harness.context.assemble import assemble
from harness.context.delta import Delta
from harness.context.history_message import HistoryMessage
from harness.context.length import Length, characters, measured
from harness.context.prune import Pruning, leaving, prune
from harness.context.receipt import Receipt
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
    """What of the transcript it shows, whole."""
    pruning: Pruning | None
    """How that was shortened."""
    held: ShownState
    """What the conversation has been shown with it."""
    running: TurnId | None
    """The turn that asks."""
    news: Snapshot | Delta | None
    """What of that is new."""
    length: Length
    characters_max: int | None
    """Beyond so many a compaction is due; None: never."""
    failed_at: int
    """How long it was when a summary failed."""

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
        """What a summary made at once would stand for, however short this is."""
        return cover(self.state, self.length.characters)

    @property
    def due(self) -> Due | None:
        """What is to be done before it is asked; None: nothing."""
        return None if self.characters_max is None else due(self.state, self.characters_max)

    def characters_after(self, until: int) -> int:
        """How many are left without the messages up to an entry."""
        rest = [one for one in self.said if one.number > until]
        since = self.held.snapshot.traffic_from
        shown = prune(rest, self.pruning, render, running=self.running, traffic_from=since)
        return characters(self.request.system, [message for _, message in shown])

    @property
    def unavailable(self) -> frozenset[str]:
        """The sources of memory that could not be read."""
        return frozenset(part.source for part in self.held.parts if part.unavailable is not None)

    def parts_json(self) -> list[JsonObject]:
        """The parts of the prompt, then what is told beside messages of their changes."""
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
        """Part by part, with sizes and revisions, and the request as it would be sent."""
        snapshot = self.held.snapshot
        return {
            "snapshot": {"number": snapshot.number, "at": snapshot.at, "reason": snapshot.reason},
            "isNew": self.news is snapshot,
            "parts": self.parts_json(),
            "length": self.length.as_json(),
            **({"compaction": due_json(found)} if (found := self.due) else {}),
            "request": self.request.as_json(),
        }


def as_asked(receipt: Receipt, held: ShownState, said: Sequence[HistoryMessage]) -> ModelRequest:
    """The request of a receipt, put together again from what it had been `held` and from what was said."""
    since = held.snapshot.traffic_from
    messages = prune(said, receipt.pruning, render, running=receipt.turn_id, traffic_from=since)
    request = assemble(held.snapshot, held.deltas, messages)
    match receipt.purpose:
        case "turn":
            return request
        case "flush":
            return flushing(request)
        case _:
            assert_never(receipt.purpose)


def flushing(request: ModelRequest) -> ModelRequest:
    """The same, and that what must last is to be written down now."""
    told = user(render("compaction/flush.md"))
    return replace(request, messages=repair((*request.messages, told)))


def build_request(
    briefing: PromptSources,
    held: ShownState | None,
    window: TranscriptWindow,
    tools: tuple[ToolSpec, ...],
    *,
    at: datetime,
    running: TurnId | None,
    instructions: str | None = None,
    prune_all: bool = False,
) -> PromptRequest:
    """`held`: what the conversation has been shown until now; `running`: the turn that asks, if one does;
    `instructions`: what the platform says for this turn alone; `prune_all`: with as little as may be,
    whatever the agent's setting."""
    now = briefing.moment(
        at,
        window.newest_number,
        tools=tools,
        session=window.session,
        shown=held.revisions() if held else {},
        summary=window.summary.message.text if window.summary else None,
    )
    said, pruning = window.said, briefing.pruning_for(prune_all=prune_all)
    since = held.snapshot.traffic_from if held else 0
    found = leaving(said, pruning, render, running=running, traffic_from=since)
    news, before = decide(held, replace(now, leaving=found), render), held
    held = after(held, news, at)
    since = held.snapshot.traffic_from
    messages = prune(said, pruning, render, running=running, traffic_from=since)
    request = assemble(
        held.snapshot, held.deltas, messages, stored_system=window.system, turn=instructions
    )
    turned_out, is_new = _turned_out(before, window), news is held.snapshot
    length = measured(request, turned_out, is_same=not is_new)
    held = replace(held, length=length, entry=window.newest_number)
    return PromptRequest(
        request,
        said,
        pruning,
        held,
        running,
        news,
        length,
        briefing.characters_max,
        window.session.failed_at,
    )


def _turned_out(held: ShownState | None, window: TranscriptWindow) -> Length | None:
    """How long the request before was, by what the provider has counted."""
    if held is None or held.length is None:
        return None
    answers = (
        entry
        for entry in window.entries
        if entry.is_said and entry.number > held.entry and entry.message.role == "assistant"
    )
    answer = next(answers, None)
    return held.length.counted(answer.usage.prompt) if answer else held.length
