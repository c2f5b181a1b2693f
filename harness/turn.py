"""A turn: from something said to an outcome, step by step.

Where a turn stands is what its entries say, and nothing else: a turn that was interrupted is built from
the same entries by another process and goes on with the same loop. Calls whose results are missing may
have run, wholly or in part, so they are never run again: the model is told, and decides.

A reply is stored with which of its calls wait, for a person or for the client. As long as one does, none
of them is run and the turn is at rest: it goes on when the last of them was allowed or answered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.agent import Limits
from harness.approval import open_calls, pending
from harness.briefing import Briefing
from harness.context.repair import INTERRUPTED, sound_json
from harness.crossing import in_thread
from harness.message import Message, ToolCall, ToolResult, message_of
from harness.models.port import Model
from harness.outcome import Ending, Status
from harness.pending import Asked
from harness.price import NANODOLLARS, Price
from harness.progress import Emit
from harness.question import put
from harness.request import ModelFailure, Reply, Request
from harness.session import Session
from harness.showing import Showing
from harness.tools.desk import NO_NEWS, News
from harness.tools.port import Toolset
from harness.transcript import Entry, Transcript, Window
from workspaces.clock import Clock
from workspaces.ids import TurnId
from workspaces.lease import Lease
from workspaces.stamp import stamp_of


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a turn stands. Every message is stored before anything acts on it."""

    id: TurnId
    transcript: Transcript
    lease: Lease
    clock: Clock
    session: Session
    briefing: Briefing
    showing: Showing
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

    @property
    def steps(self) -> int:
        return sum(entry.message.role == "assistant" for entry in self.entries)

    @property
    def is_out_of_money(self) -> bool:
        """Of what it may spend itself."""
        if self.limits.dollars is None or self.price is None:
            return False
        spent = sum(self.price.of(entry.usage) for entry in self.entries)
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
        number = self.first + len(self.entries)
        return Entry(number, stamp_of(self.clock.now()), self.id, message, event_id)

    def with_entry(self, entry: Entry) -> Turn:
        return replace(self, entries=(*self.entries, entry))

    async def append(self, entry: Entry) -> Turn:
        """Stored under the lease's guard: after a return, nobody else has taken over meanwhile."""
        await in_thread(self.transcript.append, entry, self.lease)
        return self.with_entry(entry)

    async def replied(self, reply: Reply, asks: tuple[Asked, ...]) -> Turn:
        entry = replace(self.entry(reply.message), usage=reply.usage, is_complete=reply.is_complete)
        return await self.append(replace(entry, asks=asks if reply.is_complete else ()))

    async def resulted(self, result: ToolResult, news: News = NO_NEWS) -> Turn:
        entry = self.entry(Message("user", (result,)))
        return await self.append(replace(entry, seen=news.seen, changes=news.changes))

    @property
    def window(self) -> Window:
        return Window(self.session, (*self.before, *self.entries))

    def ask(self, toolset: Toolset) -> Request:
        """What the model is asked next; what it is shown with it is kept before it is."""
        question = put(
            self.briefing,
            self.showing.held(),
            self.window,
            toolset.specs(),
            at=self.clock.now(),
            running=self.id,
            instructions=self.instructions,
        )
        self.showing.keep(question, self.id, self.briefing.model, self.lease)
        return question.request

    def ended(self, status: Status, failure: ModelFailure | None = None) -> Ending:
        last = self.first + len(self.entries) - 1
        return Ending(status, self.id, self.first, last, failure, self.showing.unavailable)


def _storable(reply: Reply) -> Reply:
    """JSON may hold halves of surrogate pairs, which no store takes; a model's JSON sometimes does."""
    return replace(reply, message=message_of(sound_json(reply.message.as_json())))


async def run_turn(
    turn: Turn, *, model: Model, toolset: Toolset, emit: Emit
) -> tuple[Turn, Ending]:
    """Ask the model until it asks for no more tools.

    Calls that only read run together; before one that may write begins, all before it are stored: the
    guard of that write is what asks, each time, whether the conversation is still ours.
    """
    if turn.may_have_run and not pending(turn.entries):
        for call in turn.open_calls:
            interrupted = ToolResult(call.id, INTERRUPTED, is_error=True)
            turn = await turn.resulted(interrupted)
    while not turn.is_answered:
        if pending(turn.entries):
            return turn, turn.ended("waiting")
        for calls in toolset.rounds(turn.open_calls):
            for result, news in await toolset.run_together(calls, emit):
                turn = await turn.resulted(result, news)
        if turn.steps >= turn.limits.steps:
            return turn, turn.ended("out_of_steps")
        if turn.is_out_of_money:
            return turn, turn.ended("out_of_money")
        request = await in_thread(turn.ask, toolset)
        reply = await model.reply(request, output_tokens_max=turn.limits.output_tokens, emit=emit)
        if isinstance(reply, ModelFailure):
            return turn, turn.ended("failed", reply)
        reply = _storable(reply)
        turn = await turn.replied(reply, toolset.asks(reply.message.tool_calls))
    return turn, turn.ended("done" if turn.entries[-1].is_complete else "cut")
