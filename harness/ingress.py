"""Ingress: where an event becomes a turn, once.

accept → wait in line → lease → brief → turn → outcome. An event that nothing is before, and whose sender
waits for the answer, is not kept waiting: brief → accept, lease and first entry in one batch → turn →
outcome. What was briefed is thrown away when somebody was faster, and the event goes the long way.

Whoever waits for an answer works for it: when the lease of the conversation is to be had, it takes what is
first in line, and goes on until its own event is done, so that the line moves as long as anyone waits, and
no process has to live for another. Events that nobody waits for any more are looked after by a job
(`look_after`).

What ends a turn before its time:

- its time is up, or somebody wants it to end (`cancel`), here or in another process: calls that were under
  way get a result that says so, and the outcome is "out_of_time" or "interrupted";
- the caller cancels. The event that it brought is over: withdrawn while it waited, "interrupted" once it
  ran. One that somebody else brought, be it the same one earlier, is left as it stands for the next holder;
- the lease is lost. Nothing more is written; another process is at it, and we wait for what comes of it;
- the process dies. The next holder of the lease goes on with the turn where its entries end, a few times
  at most, and then reports it as failed;
- something breaks. Before the first entry the event is given back, after it the turn has failed; the
  line moves on either way.

A turn may rest meanwhile: a call of it waits for a person or for the client. Then the lease is let go, and
the next event answers the call, and the same turn goes on; or it says something else, and ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol
from weakref import WeakValueDictionary

from harness.agent import AgentRecord, Agents, dangling
from harness.allowance import Allowance
from harness.approval import (
    Unanswered,
    answered,
    nothing_waits,
    open_calls,
    pending,
    unanswered,
)
from harness.audience import Audience, Ended, Listener, Stage, both
from harness.briefing import Briefing
from harness.client_tool import check_names
from harness.compaction import Compacted, Compaction, remarks_of
from harness.context.repair import INTERRUPTED
from harness.conversation import Conversation, Conversations
from harness.crossing import in_thread, in_thread_of_its_own, or_undone, to_the_end
from harness.event import Event
from harness.freshness import pull, push
from harness.inbox import Accepted, Inbox, Opening
from harness.line import Paused, Running, Waiting
from harness.memories import Memories
from harness.message import Message, ToolResult
from harness.models.port import Model
from harness.outcome import Ending, Outcome, Status, ending_of, outcome_of
from harness.pending import PendingCall
from harness.price import Price
from harness.progress import Emit, Queued, silent
from harness.pulse import kept_alive
from harness.request import ModelFailure
from harness.showing import Keeping
from harness.stop import Stop, Stopped
from harness.tools.desk import Desk
from harness.tools.port import AnyTool, Toolset
from harness.tools.result import Results
from harness.tools.workshop import Workshop
from harness.transcript import Entry, Transcript
from harness.turn import Turn, run_turn
from harness.usage import Purpose
from workspaces.clock import Clock
from workspaces.durable import Durable
from workspaces.errors import (
    Busy,
    Conflict,
    Failure,
    LeaseLost,
    NotFound,
    Refused,
    Unavailable,
)
from workspaces.ids import AgentId, ConversationId, TurnId, new_id
from workspaces.lease import Lease, Leases
from workspaces.records import Change as RecordChange
from workspaces.records import JsonObject
from workspaces.revision import Author
from workspaces.stamp import stamp_of

ATTEMPTS_MAX = 3
"""A turn whose process died this often is what kills it."""

LOOK_S_MIN, LOOK_S_MAX = 0.01, 0.5
"""Between two looks at a conversation that another process is at: a turn takes seconds. The end of one that
runs in this process is heard at once."""

CANCEL_LOOK_S = 1.0
"""Between two looks whether another process wants a turn to end: a person waits for it."""

State = Literal["queued", "running", "waiting", "done", "failed", "refused"]


@dataclass(frozen=True, slots=True)
class EventStatus:
    """Where an event stands, for whoever did not wait."""

    event_id: str
    state: State
    conversation_id: ConversationId
    number: int
    """Its place in the conversation's line."""
    ahead: int = 0
    """So many events come before it, while it waits there."""
    turn_id: TurnId | None = None
    first: int | None = None
    """The number of its turn's first entry."""
    outcome: Outcome | None = None
    refusal: JsonObject | None = None
    """Why it was given back before anything happened; it may be sent again."""

    @property
    def is_settled(self) -> bool:
        """Nothing more will come of it by itself."""
        return self.state not in {"queued", "running"}

    def as_json(self) -> JsonObject:
        """Only what there is to say."""
        outcome = self.outcome.as_json() if self.outcome else {}
        known = {"conversation", "turn"}
        return {
            "eventId": self.event_id,
            "status": self.state,
            "conversationId": self.conversation_id,
            **({"turnId": self.turn_id} if self.turn_id else {}),
            **({"ahead": self.ahead} if self.ahead else {}),
            **{name: value for name, value in outcome.items() if name not in known},
            **({"error": self.refusal} if self.refusal else {}),
        }


class GivenBack(Failure):
    """The event failed before anything happened, in another process; it may be sent again."""

    def __init__(self, refusal: JsonObject) -> None:
        super().__init__(refusal["message"], remedy=refusal["remedy"])
        self.code = refusal["code"]


class OpenModel(Protocol):
    """The agent's model, in a conversation, for a purpose."""

    def __call__(
        self,
        agent: AgentRecord,
        conversation_id: ConversationId | None,
        purpose: Purpose = "turn",
        /,
    ) -> Model: ...


@dataclass(frozen=True, slots=True)
class Ingress:
    """Of one principal."""

    clock: Clock
    agents: Agents
    conversations: Conversations
    inbox: Inbox
    leases: Leases
    tools: tuple[AnyTool, ...]
    allowance: Allowance
    open_model: OpenModel
    workshop: Callable[[], Workshop]
    results: Callable[[ConversationId], Results]
    price: Callable[[str], Price | None]
    follow: Callable[[], None]
    """Brings what other machines have made of the account's records."""
    audience: Audience = field(default_factory=Audience)
    memories: Memories = field(default_factory=Memories)
    callers_model: Callable[[AgentRecord, ConversationId], Model] | None = None
    """The one that whoever calls here brings, for that turn: no other process can go on with it."""
    callers_tools: tuple[AnyTool, ...] = ()
    """Those that whoever calls here brings, for the turn that they wait for."""
    stops: dict[TurnId, Stop] = field(default_factory=dict[TurnId, Stop])
    """Of the turns that run here."""
    _turnstiles: WeakValueDictionary[tuple[object, str], asyncio.Lock] = field(
        default_factory=WeakValueDictionary[tuple[object, str], asyncio.Lock]
    )
    """One waiter of this process contends for a conversation at a time."""

    async def deliver(self, agent: AgentRecord, event: Event, emit: Emit = silent) -> Outcome:
        """Process an event, or answer with what came of it before. What `accept` refuses is refused."""
        async with AsyncExitStack() as stack:
            door = self._turnstile(f"{agent.id} {event.conversation_key}")
            async with door:  # first come, first in
                found = await self._received(agent, event)
                if isinstance(found, Opening):
                    opened = await self._opened(found, emit, stack)
                    found = opened or await self.accept(agent, event)
            if isinstance(found, _Opened):
                with suppress(LeaseLost):
                    async with self._leased(found.at_it.lease):
                        await found.at_it.run(found.running, found.begun)
        if isinstance(found, _Opened):
            return await self._awaited(found.accepted, emit)
        return await self.answer(found, emit)

    async def accept(self, agent: AgentRecord, event: Event) -> Accepted:
        """Durably in line, from now on. Conflict, Busy, TooMany, NotFound, Forbidden, Refused."""
        rejects = self._checked(agent, event)
        return await or_undone(
            lambda: self.inbox.accept(agent.id, event, rejects=rejects), self._given_up
        )

    async def answer(self, accepted: Accepted, emit: Emit = silent) -> Outcome:
        """What comes of an accepted event; until then, work for it."""
        try:
            if accepted.lease is not None:
                await self._work(accepted.conversation, accepted.lease, accepted, emit)
                return await self._awaited(accepted, emit)
            turnstile = self._turnstile(accepted.conversation.id)
            if turnstile.locked():
                emit(Queued(await in_thread(self.inbox.ahead, accepted)))
            async with turnstile:
                return await self._awaited(accepted, emit)
        except asyncio.CancelledError:
            if accepted.is_new:
                with suppress(Failure):  # then the job looks after it
                    await in_thread(self.inbox.withdraw, accepted)
            raise

    async def look_after(self, conversation_id: str) -> None:
        """Whatever is unfinished in a conversation. Busy while somebody is at it; LeaseLost."""
        try:
            conversation = await in_thread(self.conversations.get, conversation_id)
        except NotFound:  # deleted, and its events with it
            return
        lease = await self._acquired(conversation)
        async with self._leased(lease):
            await self._line(conversation, lease, None, silent)

    async def compact(self, conversation: Conversation, emit: Emit = silent) -> Compacted:
        """Summarise the beginning of a conversation now, however short it is. Busy while a turn runs, waits
        or was interrupted; LeaseLost."""
        lease = await or_undone(
            lambda: self.conversations.acquire(conversation), self.leases.release
        )
        async with self._leased(lease):
            await in_thread(self.conversations.check_at_rest, conversation)
            with self.audience.stage(conversation.id) as stage:
                at_it = _AtIt(self, conversation, lease, True, True, both(emit, stage.emit), stage)
                return await at_it.compact()

    async def cancel(self, conversation: Conversation) -> bool:
        """End the turn that runs or waits in it: its outcome will be "interrupted". Here it is stopped at
        once, in another process when that looks next. False when there is none. Busy while it is changing
        from one to the other. What waits in line behind it stays."""
        turn_id = await in_thread(self.inbox.cancel, conversation)
        if turn_id is not None:
            stop = self.stops.get(turn_id)
            if stop is not None:
                stop.cancel()
            return True
        if await in_thread(self.inbox.paused, conversation) is None:
            return False
        lease = await self._acquired(conversation)
        async with self._leased(lease):
            paused = await in_thread(self.inbox.paused, conversation)
            if paused is None:
                return False
            with self.audience.stage(conversation.id) as stage:
                at_it = _AtIt(self, conversation, lease, False, False, stage.emit, stage)
                await to_the_end(at_it.abandon, paused, "cancelled")
        return True

    def status(self, agent_id: AgentId, event_id: str) -> EventStatus:
        """NotFound for an id that was never used, or more than a day ago."""
        claim = self.inbox.claim(self.inbox.claim_key(agent_id, event_id))
        if claim is None:
            raise NotFound("event", event_id)
        conversation = self.conversations.get(claim.about["conversation"])
        event = EventStatus(event_id, "queued", conversation.id, claim.about["number"])
        if claim.refusal is not None:
            return replace(event, state="refused", refusal=claim.refusal)
        began = self.inbox.began(conversation, claim)
        if began.outcome is not None:
            ending = ending_of(began.outcome)
            outcome = self._outcome(conversation, ending)
            turn_id, first, state = ending.turn_id, ending.first, _state_of(outcome)
            return replace(event, state=state, turn_id=turn_id, first=first, outcome=outcome)
        found = self.inbox.standing(conversation, began.about["number"])
        state = "running" if found.is_begun else "queued"
        turn_id, first = found.turn_id, found.first
        return replace(event, state=state, ahead=found.ahead, turn_id=turn_id, first=first)

    def pending(self, conversation: Conversation) -> tuple[PendingCall, ...]:
        """The calls that wait in a conversation, for somebody who allows them or for the client."""
        paused = self.inbox.paused(conversation)
        if paused is None:
            return ()
        return pending(list(self.conversations.transcript(conversation).entries(paused.first)))

    def _checked(self, agent: AgentRecord, event: Event) -> bool:
        """Whether it is to be rejected by a conversation in use. Refused."""
        check_names(event.tools, (tool.name for tool in self.tools))
        return (event.on_busy or agent.config.on_busy) == "reject"

    async def _received(self, agent: AgentRecord, event: Event) -> Accepted | Opening:
        rejects = self._checked(agent, event)

        def give_up(found: Accepted | Opening) -> None:
            if isinstance(found, Accepted):
                self._given_up(found)

        return await or_undone(
            lambda: self.inbox.receive(agent.id, event, rejects=rejects), give_up
        )

    async def _opened(self, opening: Opening, emit: Emit, stack: AsyncExitStack) -> _Opened | None:
        """None when somebody was faster: nothing happened, and nobody was told anything."""
        unwon = opening.bid.unwon
        at_it = _AtIt(self, opening.conversation, unwon, True, True, emit, Stage())
        try:
            return await at_it.open(opening, stack)
        except Conflict:
            await stack.aclose()
            return None

    async def _awaited(self, accepted: Accepted, emit: Emit) -> Outcome:
        """Work whenever the conversation is free, until the event is done."""
        conversation, pause, is_told = accepted.conversation, LOOK_S_MIN, False
        with self.audience.listening(conversation.id) as listener:
            while (outcome := await in_thread(self._settled, accepted)) is None:
                try:
                    lease = await self._acquired(conversation)
                except Busy:
                    if not is_told:
                        emit(Queued(await in_thread(self.inbox.ahead, accepted)))
                        is_told = True
                    await _turn_ended(listener, pause)
                    pause = min(pause * 1.5, LOOK_S_MAX)
                    continue
                await self._work(conversation, lease, accepted, emit)
                pause = LOOK_S_MIN
        return outcome

    async def _acquired(self, conversation: Conversation) -> Lease:
        """Busy."""
        key = conversation.lease_key
        return await or_undone(lambda: self.leases.acquire(key), self.leases.release)

    async def _work(
        self, conversation: Conversation, lease: Lease, accepted: Accepted, emit: Emit
    ) -> None:
        """Move the line until our own event is done, or the lease is lost."""
        with suppress(LeaseLost):
            async with self._leased(lease):
                await self._line(conversation, lease, accepted, emit)

    async def _line(
        self, conversation: Conversation, lease: Lease, accepted: Accepted | None, emit: Emit
    ) -> None:
        while not self.leases.has_let_go(lease):
            found = await in_thread(self.inbox.next, conversation, lease)
            if found is None or (accepted is not None and found.number > accepted.number):
                return
            is_mine = accepted is not None and found.number == accepted.number
            may_end = is_mine and accepted is not None and accepted.is_new
            with self.audience.stage(conversation.id) as stage:
                told = both(emit, stage.emit) if is_mine else stage.emit
                at_it = _AtIt(self, conversation, lease, is_mine, may_end, told, stage)
                if isinstance(found, Waiting):
                    await at_it.take(found)
                else:
                    await at_it.go_on(found)

    @asynccontextmanager
    async def _leased(self, lease: Lease) -> AsyncGenerator[None]:
        try:
            async with kept_alive(lambda: self.leases.renew(lease), self.leases.terms, lease.key):
                yield
        finally:
            with suppress(Failure):  # it ends by itself
                await to_the_end(self.leases.release, lease)

    def _given_up(self, accepted: Accepted) -> None:
        if accepted.lease is not None:
            self.leases.release(accepted.lease)
        if accepted.is_new:
            self.inbox.withdraw(accepted)

    def _turnstile(self, name: str) -> asyncio.Lock:
        return self._turnstiles.setdefault((asyncio.get_running_loop(), name), asyncio.Lock())

    def _settled(self, accepted: Accepted) -> Outcome | None:
        """None as long as it is on its way. GivenBack; NotFound when the conversation was deleted."""
        claim = self.inbox.claim(accepted.claim)
        if claim is None:
            raise NotFound("conversation", accepted.conversation.key)
        if claim.about["number"] != accepted.number:
            told = "it was given back, and sent again by somebody else"
            raise GivenBack({"code": "conflict", "message": told, "remedy": None})
        if claim.refusal is not None:
            raise GivenBack(claim.refusal)
        told = self.inbox.began(accepted.conversation, claim).outcome
        return None if told is None else self._outcome(accepted.conversation, ending_of(told))

    def _outcome(self, conversation: Conversation, ending: Ending) -> Outcome:
        transcript = self.conversations.transcript(conversation)
        own = list(transcript.entries(ending.first, ending.last))
        return outcome_of(ending, conversation.id, own)


@dataclass(frozen=True, slots=True)
class _AtIt:
    """The holder of the lease, at one event. `is_mine`: somebody waits for it in this very call, and hears
    what goes wrong. `may_end`: they are the one who brought it, so their cancellation is its end."""

    ingress: Ingress
    conversation: Conversation
    lease: Lease
    is_mine: bool
    may_end: bool
    emit: Emit
    stage: Stage

    async def take(self, waiting: Waiting) -> None:
        """What is first in line: it begins a turn, or answers the one that is paused, or ends it, and then
        it is first again. Everything up to the entry that it makes gives the event back when it fails."""
        async with AsyncExitStack() as stack:
            try:
                entering = await self._entering(waiting, stack)
            except LeaseLost:
                raise
            except Exception as problem:  # the event must not stand in the way for ever
                why = problem if isinstance(problem, Failure) else Failure(_told(problem))
                give_back = (self.conversation, waiting, why, self.lease)
                await to_the_end(lambda: self.ingress.inbox.give_back(*give_back))
                if self.is_mine:
                    raise
                return
            if entering is not None:
                await self._enter(waiting, entering)

    async def open(self, opening: Opening, stack: AsyncExitStack) -> _Opened:
        """What nothing is before: its turn is prepared first, and then all is written at once. Conflict
        when somebody was faster."""
        inbox, event = self.ingress.inbox, opening.event
        try:
            await self._admitted(stack)
            begun, entry, keeping = await in_thread_of_its_own(
                self._asking, event, opening.bid.mark
            )
        except Exception as problem:
            why = problem if isinstance(problem, Failure) else Failure(_told(problem))
            with suppress(Failure):  # whoever waits for it hears why in any case
                await to_the_end(inbox.refuse, opening, why)
            raise
        turn = begun.turn
        is_own = self.ingress.callers_model is not None
        running, also = inbox.opened(opening, turn.id, turn.first, is_own=is_own)
        if keeping is not None:
            also = (*also, *keeping.changes)
        try:
            lease = await or_undone(
                lambda: turn.transcript.open(entry, opening.bid, *also),
                lambda lease: replace(self, lease=lease).end(running),
            )
        except Unavailable:
            self.ingress.leases.lose(opening.bid)
            raise
        stage = stack.enter_context(self.ingress.audience.stage(self.conversation.id))
        stage.begin(turn.first - 1)
        stage.stored(turn.first)
        at_it = replace(self, lease=lease, stage=stage, emit=both(self.emit, stage.emit))
        turn = turn.with_entry(entry)
        if keeping is not None:
            turn.showing.kept(keeping)
            turn = replace(turn, asked=keeping.question)
        begun = begun.with_turn(turn).held(lease, at_it.transcript())
        return _Opened(at_it, opening.accepted(lease), running, begun)

    def end(self, running: Running) -> None:
        """At once: whoever brought the event is gone."""
        ending = self._cut_short(running, "interrupted")
        self.ingress.inbox.finish(self.conversation, running, ending, self.lease)
        self.ingress.leases.release(self.lease)

    def _first_entry(self, turn: Turn, event: Event) -> Entry:
        return replace(turn.entry(event.message, event_id=event.id), system=event.system_kept)

    async def _entering(self, waiting: Waiting, stack: AsyncExitStack) -> _Entering | None:
        """None when the event only ended what was paused."""
        event, inbox = waiting.event, self.ingress.inbox
        paused = None
        if waiting.head.paused is not None:
            paused = await in_thread(inbox.paused, self.conversation, waiting.head)
        if event.is_answer:
            return await self._answering(waiting, paused, stack)
        if paused is not None:
            await to_the_end(self.abandon, paused, "superseded")
            return None
        await self._admitted(stack)
        begun = await in_thread_of_its_own(self._prepared, event, TurnId(new_id("turn")), None)
        turn = begun.turn
        entry = self._first_entry(turn, event)
        is_own = self.is_mine and self.ingress.callers_model is not None
        running, also = inbox.beginning(
            self.conversation, waiting, turn.id, turn.first, is_own=is_own
        )
        return _Entering(entry, also, running, begun)

    async def _answering(
        self, waiting: Waiting, paused: Paused | None, stack: AsyncExitStack
    ) -> _Entering:
        answers, inbox = waiting.event.answers, self.ingress.inbox
        if paused is None:
            raise nothing_waits(answers[0].call_id)
        entries = await in_thread(self._entries, paused.first)
        results = self.ingress.results(self.conversation.id)
        found = await in_thread(answered, entries, answers, results.shown)
        at = stamp_of(self.ingress.clock.now())
        number, event_id = entries[-1].number + 1, waiting.event.id
        entry = Entry(number, at, paused.turn_id, found.message, event_id, allowed=found.allowed)
        rest, begun = None, None
        if pending([*entries, entry]):
            rest = await in_thread(self._ending, "waiting", paused.turn_id, paused.first, number)
        else:
            await self._admitted(stack)
            begun = await in_thread_of_its_own(
                self._prepared, paused.event, paused.turn_id, paused.first
            )
        running, also = await in_thread(inbox.answering, self.conversation, waiting, paused, rest)
        return _Entering(entry, also, running, begun)

    async def _admitted(self, stack: AsyncExitStack) -> None:
        """A turn that is gone on with after a crash was admitted when it began."""
        account_id = self.conversation.account_id
        await stack.enter_async_context(self.ingress.allowance.admitted(account_id))

    def _asking(self, event: Event, writer: str) -> tuple[_Begun, Entry, Keeping | None]:
        """A turn with its first entry, and its first question, if nothing is to be done before that is
        asked: so both can be written in one batch."""
        begun = self._prepared(event, TurnId(new_id("turn")), None)
        entry = self._first_entry(begun.turn, event)
        turn = begun.turn.with_entry(entry)
        question = turn.question(begun.toolset)
        if begun.compaction.is_due(turn.window, question):
            return begun, entry, None
        return begun, entry, turn.keeping(question, writer)

    async def _enter(self, waiting: Waiting, entering: _Entering) -> None:
        transcript = self.transcript()
        entry, running, begun = entering.entry, entering.running, entering.begun
        try:
            await to_the_end(lambda: transcript.append(entry, self.lease, *entering.also))
        except Conflict as conflict:
            if conflict.name == str(waiting.item.key):
                return  # withdrawn in this instant
            raise LeaseLost(self.lease.key) from conflict
        except asyncio.CancelledError:
            if self.may_end and running is not None:
                await self._interrupt(running)
            raise
        if waiting.event.is_answer:
            await in_thread(self.ingress.inbox.forget, self.conversation, waiting)
        if running is not None and begun is not None:
            await self.run(running, begun.with_turn(begun.turn.with_entry(entry)))

    def abandon(self, paused: Paused, why: Unanswered) -> None:
        """End a turn that waits: its calls were not run, and that is what the model will read."""
        entries = self._entries(paused.first)
        number, at = entries[-1].number + 1, stamp_of(self.ingress.clock.now())
        entry = Entry(number, at, paused.turn_id, unanswered(entries, why))
        ending = self._ending("interrupted", paused.turn_id, paused.first, number)
        also = self.ingress.inbox.abandoning(self.conversation, paused, ending)
        transcript = self.transcript()
        try:
            transcript.append(entry, self.lease, *also)
        except Conflict as conflict:
            raise LeaseLost(self.lease.key) from conflict
        self.ingress.inbox.forget(self.conversation, paused)

    def transcript(self) -> Transcript:
        """One that tells on the stage how far it has come."""
        conversations = self.ingress.conversations
        return conversations.transcript(self.conversation, told=self.stage.stored)

    def _entries(self, first: int) -> list[Entry]:
        return list(self.ingress.conversations.transcript(self.conversation).entries(first))

    async def go_on(self, running: Running) -> None:
        """With a turn that was interrupted, where it stopped."""
        if running.is_own:
            await self._interrupt(running)
            return
        if running.attempt >= ATTEMPTS_MAX:
            told = f"whoever ran it ended in the middle, {running.attempt} times"
            await self._fail(running, told)
            return
        inbox = self.ingress.inbox
        running = await in_thread(inbox.resume, self.conversation, running, self.lease)
        try:
            begun = await in_thread_of_its_own(
                self._prepared, running.event, running.turn_id, running.first
            )
            begun = begun.with_turn(replace(begun.turn, may_have_run=True))
        except Exception as problem:  # noqa: BLE001 - or the event would stand in the way for ever
            await self._fail(running, _told(problem))
            return
        await self.run(running, begun)

    async def compact(self) -> Compacted:
        """Outside of any turn, under an id of its own."""
        begun = await in_thread_of_its_own(self._prepared, None, TurnId(new_id("turn")), None)
        question = await in_thread(begun.turn.question, begun.toolset)
        found = await begun.compaction.at_once(begun.turn.window, question, self.emit)
        await begun.pushed(begun.turn.compacted(found).asides)
        return found

    async def run(self, running: Running, begun: _Begun) -> None:
        try:
            ending, own = await self._stoppable(running, begun)
            durable = await begun.pushed(own)
        except LeaseLost:
            raise
        except Exception as problem:
            await self._fail(running, _told(problem))
            if self.is_mine:
                raise
            return
        except BaseException:
            if self.may_end:  # else the next holder goes on with it
                await self._interrupt(running)
            raise
        told = replace(ending, left_out=begun.left_out, durable=durable)
        await self._finish(running, told)

    async def _stoppable(self, running: Running, begun: _Begun) -> tuple[Ending, Iterable[Entry]]:
        """The turn, until it ends, its time is up or somebody wants it to end; and what it has stored."""
        stops = self.ingress.stops
        stop = stops[running.turn_id] = Stop(begun.turn.limits.seconds)
        looking = asyncio.create_task(self._look_for_cancellation(running, stop))
        try:
            async with stop:
                turn, ending = await run_turn(
                    begun.turn,
                    model=begun.model,
                    toolset=begun.toolset,
                    compaction=begun.compaction,
                    emit=self.emit,
                )
            if ending.status != "waiting" or not await self._is_cancelled(running, stop):
                return ending, turn.own
            reason = "interrupted"
        except Stopped as stopped:
            reason = stopped.reason
        finally:
            looking.cancel()
            del stops[running.turn_id]
        ending = await to_the_end(self._cut_short, running, reason)
        return ending, await in_thread(self._entries, running.first)

    async def _is_cancelled(self, running: Running, stop: Stop) -> bool:
        """A turn that would rest is looked at once more: nobody would look while it does."""
        if stop.is_cancelled:
            return True
        return await in_thread(self.ingress.inbox.is_cancelled, self.conversation, running.turn_id)

    async def _look_for_cancellation(self, running: Running, stop: Stop) -> None:
        """Whoever cancels may be in another process."""
        inbox = self.ingress.inbox
        pause = 0.0 if running.attempt > 1 else CANCEL_LOOK_S
        while not stop.is_cancelled:
            await asyncio.sleep(pause)
            pause = CANCEL_LOOK_S
            with suppress(Failure):  # a store that does not answer may answer the next time
                if await in_thread(inbox.is_cancelled, self.conversation, running.turn_id):
                    stop.cancel()

    def _cut_short(
        self, running: Running, status: Status, failure: ModelFailure | None = None
    ) -> Ending:
        """A turn that ends in its middle: calls without a result get one, so that what is stored is what
        a provider takes."""
        entries = self._entries(running.first)
        last = entries[-1].number if entries else running.first
        calls = open_calls(entries)
        if calls:
            last, at = last + 1, stamp_of(self.ingress.clock.now())
            results = tuple(ToolResult(call.id, INTERRUPTED, is_error=True) for call in calls)
            told = Message("user", results)
            if pending(entries):  # then none of them was run
                told = unanswered(entries, "cancelled")
            entry = Entry(last, at, running.turn_id, told)
            self.ingress.conversations.transcript(self.conversation).append(entry, self.lease)
        return self._ending(status, running.turn_id, running.first, last, failure)

    def _ending(
        self,
        status: Status,
        turn_id: TurnId,
        first: int,
        last: int,
        failure: ModelFailure | None = None,
    ) -> Ending:
        """Of a turn that nobody has at hand: what there is to say of its context, its receipts say."""
        showing = self.ingress.conversations.showing(self.conversation)
        remarks = remarks_of(showing.resume(turn_id), self._entries(first))
        unavailable = showing.unavailable
        return Ending(status, turn_id, first, last, failure, unavailable, remarks=remarks)

    async def _interrupt(self, running: Running) -> None:
        ending = await to_the_end(self._cut_short, running, "interrupted")
        await self._finish(running, ending)

    async def _finish(self, running: Running, ending: Ending) -> None:
        inbox = self.ingress.inbox
        end = inbox.pause if ending.status == "waiting" else inbox.finish
        held = self.lease
        await to_the_end(
            lambda: end(self.conversation, running, ending, held, is_last=self.is_mine)
        )

    async def _fail(self, running: Running, reason: str) -> None:
        failure = ModelFailure("broken", reason, "say it again")
        ending = await to_the_end(self._cut_short, running, "failed", failure)
        await self._finish(running, ending)

    def _prepared(self, event: Event | None, turn_id: TurnId, first: int | None) -> _Begun:
        """The turn with all that it works on; `first` is the first entry of one that was interrupted."""
        ingress, conversation = self.ingress, self.conversation
        ingress.follow()
        agent = ingress.agents.get(conversation.agent_id)
        own_model = ingress.callers_model if self.is_mine else None
        model = (own_model or ingress.open_model)(agent, conversation.id)
        mounts = ingress.agents.bindings(agent)
        pull(mounts)
        transcript = self.transcript()
        window = transcript.window()
        self.stage.begin(window.next_number - 1)
        is_resumed, first = first is not None, window.next_number if first is None else first
        briefing = Briefing(
            agent.config,
            mounts,
            model=model.name,
            memories=ingress.memories,
            policy=_policy(event),
        )
        turn = Turn(
            turn_id,
            transcript,
            self.lease,
            ingress.clock,
            window.session,
            briefing,
            ingress.conversations.showing(conversation),
            agent.config.limits,
            tuple(entry for entry in window.entries if entry.number < first),
            first,
            tuple(one for one in window.entries if one.number >= first and one.is_said),
            event.system_once if event else None,
            self._price(agent, model.name),
            asides=tuple(one for one in window.entries if one.number >= first and not one.is_said),
        )
        seen = {key: version for entry in window.entries for key, version in entry.seen.items()}
        desk = Desk(
            mounts,
            _authorship(agent, conversation, turn_id, event, model),
            seen=seen,
            workshop=ingress.workshop(),
            results=ingress.results(conversation.id),
        )
        left_out = tuple(dangling(agent, mounts))
        mine = ingress.callers_tools if self.is_mine else ()
        theirs = (*agent.config.tools, *(event.tools if event else ()))
        toolset = Toolset((*ingress.tools, *mine), desk, theirs, first=briefing.settle)
        compaction = Compaction(
            agent.config.session.compaction,
            ingress.open_model(agent, conversation.id, "compaction"),
            toolset,
            transcript,
            turn.showing,
            self.lease,
            ingress.clock,
            turn_id,
        )
        return _Begun(turn.resumed() if is_resumed else turn, model, toolset, compaction, left_out)

    def _price(self, agent: AgentRecord, model: str) -> Price | None:
        """Refused where a limit cannot be kept."""
        price = self.ingress.price(model)
        if agent.config.limits.dollars is not None and price is None:
            rule = "has no price, so the agent's limit `dollars` cannot be kept"
            remedy = "state its price in the file that the setting `prices` names"
            raise Refused("model", model, rule, remedy=remedy)
        return price


@dataclass(frozen=True, slots=True)
class _Begun:
    turn: Turn
    model: Model
    toolset: Toolset
    compaction: Compaction
    left_out: tuple[str, ...]
    """Mounts that lead nowhere."""

    async def pushed(self, entries: Iterable[Entry]) -> Durable:
        """What was changed with these entries goes out; where it is safe now."""
        changed = [change.workspace for entry in entries for change in entry.changes]
        return await in_thread_of_its_own(push, self.toolset.desk.mounts, changed)

    def with_turn(self, turn: Turn) -> _Begun:
        return replace(self, turn=turn)

    def held(self, lease: Lease, transcript: Transcript) -> _Begun:
        """What was prepared before the lease was won, under it."""
        turn = replace(self.turn, lease=lease, transcript=transcript)
        compaction = replace(self.compaction, lease=lease, transcript=transcript)
        return replace(self, turn=turn, compaction=compaction)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A turn whose event was accepted in the same instant."""

    at_it: _AtIt
    accepted: Accepted
    running: Running
    begun: _Begun


@dataclass(frozen=True, slots=True)
class _Entering:
    """An event about to make its entry, with what is written in the same batch."""

    entry: Entry
    also: tuple[RecordChange, ...]
    running: Running | None
    """None when the turn waits for more."""
    begun: _Begun | None


async def _turn_ended(listener: Listener, wait_s: float) -> None:
    """One that ran here, or so long: of those that run elsewhere nobody tells."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            while not any(isinstance(heard.told, Ended) for heard in await listener.heard(wait_s)):
                pass


def _state_of(outcome: Outcome) -> State:
    match outcome.status:
        case "failed" | "waiting":
            return outcome.status
        case _:
            return "done"


def _policy(event: Event | None) -> str:
    return event.memory_policy.told if event and event.memory_policy else ""


def _told(problem: BaseException) -> str:
    return str(problem) if isinstance(problem, Failure) else f"{type(problem).__name__}: {problem}"


def _authorship(
    agent: AgentRecord,
    conversation: Conversation,
    turn_id: TurnId,
    event: Event | None,
    model: Model,
) -> Callable[[str], Author]:
    trailers = {
        "Agent": agent.id,
        "Conversation": f"{conversation.id} {conversation.key}",
        "Turn": turn_id,
        **({"Event": event.id} if event else {}),
        "Model": model.name,
    }
    return lambda call_id: Author(agent.name, agent.id, "turn", {**trailers, "Call": call_id})
