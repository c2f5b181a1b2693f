"""Questions: a request to the model with all that is to be known about it.

To put one is to look at memory as it is now, to decide what of it must be shown anew, and to assemble the
request: nothing is stored by it. A turn keeps each question before it is asked (`showing`); a preview
only looks at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from harness.briefing import Briefing
from harness.context.assemble import Numbered, assemble
from harness.context.delta import Delta
from harness.context.snapshot import Held, Snapshot, after, decide
from harness.request import Request, ToolSpec
from harness.session import Session
from harness.template import render
from workspaces.records import JsonObject


@dataclass(frozen=True, slots=True)
class Question:
    request: Request
    messages: tuple[Numbered, ...]
    """Those of the transcript that it shows."""
    held: Held
    """What the conversation has been shown with it."""
    news: Snapshot | Delta | None
    """What of that is new."""

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
            "request": self.request.as_json(),
        }


def put(
    briefing: Briefing,
    held: Held | None,
    messages: Sequence[Numbered],
    tools: tuple[ToolSpec, ...],
    *,
    session: Session,
    at: datetime,
    kept: Sequence[str] = (),
    turn: str | None = None,
) -> Question:
    """`held`: what the conversation has been shown until now; `kept` and `turn`: what the platform says
    beside it, for good and for this turn."""
    now = briefing.moment(
        at,
        messages[-1][0] if messages else session.window_from,
        tools=tools,
        session=session,
        shown=held.revisions() if held else {},
    )
    news = decide(held, now, render)
    held = after(held, news, at)
    request = assemble(held.snapshot, held.deltas, messages, kept=kept, turn=turn)
    return Question(request, tuple(messages), held, news)
