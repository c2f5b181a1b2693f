"""A pass: read what is new in a conversation, ask a small model, and store what it says is worth keeping.

    new text ─► places for facts, current blocks ─► budget, limit of the day ─► asked is noted ─► request
                                                                                                    │
         until moves ◄── facts and blocks are stored, each with its own condition ◄── reply is noted ┘

Passes are run by jobs and never by a turn. A block that changed while the model answered keeps what a person
wrote. The model is then shown the new content and asked for blocks once more, at most twice.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from harness.agents.catalog import AgentCatalog
from harness.agents.record import AgentRecord
from harness.billing.ledger import UsagePurpose
from harness.billing.price import Price
from harness.learning.block_proposal import (
    BLOCK_NAMES,
    BlockProposal,
    CurrentBlocks,
    block_proposal_of,
    checked_blocks,
)
from harness.learning.budget import (
    DailyLimit,
    OverBudget,
    OverDailyLimit,
    PassBudget,
    pass_budget,
)
from harness.learning.candidate import FactCandidate, candidate_of, checked, planned
from harness.learning.fact_places import FactPlaces, LearnedFacts, known_in, store
from harness.learning.learning_jobs import rewrites_blocks
from harness.learning.new_text import NewText
from harness.learning.pass_records import NoteUsage, PassRecords, PassState
from harness.learning.question import (
    BLOCKS_OUTPUT_TOKENS_MAX,
    OUTPUT_TOKENS_MAX,
    answer_in,
    question,
)
from harness.memory.blocks.agent_blocks import AgentBlocks
from harness.memory.blocks.block import BlockConflict
from harness.memory.blocks.blocks import Blocks
from harness.memory.blocks.condition import BlockCondition
from harness.messages.model_request import (
    NO_USAGE,
    FailureKind,
    ModelFailure,
    ModelRequest,
    Reply,
)
from harness.messages.progress import silent
from harness.models.port import Model
from harness.runtime.async_bridge import run_in_new_thread, run_in_thread
from workspaces.accounts.principal import Principal
from workspaces.conditions import ABSENT
from workspaces.errors import OverLimit
from workspaces.ids import ConversationId
from workspaces.revision import Author, RevisionSource
from workspaces.storage.records import Check, JsonObject

REQUESTS_MAX = 3
"""Requests for blocks that change while the model answers."""

TRIES_MAX = 6
"""Tries at a request that faults of the provider answer, an hour in all."""

STOP_S_MAX = 5.0
"""Seconds for which a process that stops waits for a reply: it is paid for."""

REPLY_BYTES_MAX = 48 * 1024
"""Bytes of a reply that are noted. A longer one is used, but not after a crash."""

PASSING: frozenset[FailureKind] = frozenset({"unreachable", "overloaded", "broken"})
PAID: frozenset[FailureKind] = frozenset({"declined", "window_full"})
"""Failures of which the text is the reason. It is not read again."""

PassStatus = Literal[
    "stored",
    "proposed",  # a trial: nothing was stored
    "too_short",
    "nothing_kept",  # the model was asked, and nothing was to be stored
    "no_place",  # nothing could be stored
    "interrupted",  # the text was asked about before, by a process that ended
    "over_limit",
    "over_budget",
    "later",  # the provider does not answer now
    "failed",
    "gave_up",  # a block changed during every request
]


class OpenSmallModel(Protocol):
    """A callable that opens the model that reads conversations."""

    def __call__(
        self, agent: AgentRecord, conversation_id: ConversationId, purpose: UsagePurpose, /
    ) -> Model: ...


@dataclass(frozen=True, slots=True)
class Subject:
    """What a pass reads: a conversation, or a chain."""

    id: str
    agent: AgentRecord
    usage_id: ConversationId
    """The conversation under which the usage is recorded. It does not exist."""
    trailers: dict[str, str]
    """Where what is stored comes from."""
    read: Callable[[int], NewText]
    """Returns what was said behind an entry."""
    first: int = 0
    """The entry behind which the first pass reads."""
    exists: Check | None = None
    """A condition of every note about it: it was not deleted."""


@dataclass(slots=True)
class PassReport:
    """What a pass did, for people."""

    status: PassStatus = "nothing_kept"
    characters: int = 0
    model: str | None = None
    facts: list[FactCandidate] = field(default_factory=list[FactCandidate])
    blocks: list[BlockProposal] = field(default_factory=list[BlockProposal])
    dropped: Counter[str] = field(default_factory=Counter[str])
    reason: str | None = None
    tries: int = 0

    def as_json(self) -> JsonObject:
        return {
            "status": self.status,
            "characters": self.characters,
            "model": self.model,
            "facts": [fact.as_json() for fact in self.facts],
            "blocks": [block.as_json() for block in self.blocks],
            "dropped": dict(self.dropped),
            **({"reason": self.reason} if self.reason else {}),
        }


@dataclass(frozen=True, slots=True)
class PassWish:
    """What a caller wants of a pass."""

    blocks: bool = False
    """Blocks too, whatever the agent's setting says."""
    by_hand: bool = False
    """A person asks: also for a text that was asked about before."""
    is_trial: bool = False
    """Ask the model, and store nothing."""


@dataclass(frozen=True, slots=True)
class Learner:
    """The passes over what one user said. Threads may share it."""

    principal: Principal
    agents: AgentCatalog
    blocks: Blocks
    facts: LearnedFacts
    records: PassRecords
    limit: DailyLimit
    price: Callable[[str], Price | None]
    open_model: OpenSmallModel
    was_read: Callable[[str], None]
    """Is called with the id of what was read."""

    async def learn(self, subject: Subject, wish: PassWish) -> PassReport:
        """Do one pass, or go on with one that was interrupted.

        Raises: Busy while another process does it, or a command holds a workspace.
        """
        pass_ = await run_in_new_thread(self._prepared, subject, wish)
        report = pass_.report
        if not (pass_.places or pass_.wants_blocks):
            report.status = "no_place"
            return report
        if pass_.state.reply is None:
            report.characters = len(pass_.text.text)
            if not pass_.text.is_worth_a_pass:
                report.status = "too_short"
                return report
            if pass_.text.until <= pass_.state.seen and not wish.by_hand:
                report.status = "interrupted"
                return report
        while True:
            if pass_.state.reply is None and not await self._ask(pass_):
                return report
            if wish.is_trial:
                return report
            has_conflict = await run_in_new_thread(self._store, pass_)
            if not has_conflict:
                break
            if pass_.requests >= REQUESTS_MAX:
                report.status = "gave_up"
                report.reason = "a memory block changed during every request: it stays as it is"
                await run_in_thread(self.records.count, "gave_up")
                break
            await run_in_thread(self._reply_used, pass_)
        await run_in_thread(self._finished, pass_)
        return report

    def _prepared(self, subject: Subject, wish: PassWish) -> _Pass:
        agent = subject.agent
        state = self.records.settled(subject.id)
        if wish.is_trial:
            state = replace(state, reply=None)
        if state.counter is ABSENT:
            state = replace(state, until=subject.first)
        return _Pass(
            subject,
            wish,
            state,
            places=self.facts.places(agent),
            wants_blocks=rewrites_blocks(agent, asked=wish.blocks),
            text=NewText("", state.until) if state.reply else subject.read(state.until),
        )

    async def _ask(self, pass_: _Pass) -> bool:
        """Ask the model, and note its reply. Return False if there is none: the report says why."""
        report, subject = pass_.report, pass_.subject
        purpose: UsagePurpose = "sleep" if pass_.wants_blocks else "extraction"
        model = self.open_model(subject.agent, subject.usage_id, purpose)
        report.model = model.name
        request, current = await run_in_new_thread(self._question, pass_)
        wanted = BLOCKS_OUTPUT_TOKENS_MAX if pass_.wants_blocks else OUTPUT_TOKENS_MAX
        account_id = self.principal.account_id
        try:
            budget = pass_budget(request, self.price(model.name), wanted)
            with self.limit.held(account_id, budget):
                if not pass_.wish.is_trial:
                    asking = self.records.asking(pass_.state, pass_.text.until)
                    await run_in_thread(self._write, pass_, asking)
                return await self._answered(pass_, model, request, budget, current)
        except OverBudget:
            report.status = "over_budget"
            report.reason = "one pass would cost more than it may; set a cheaper `small_model`"
        except OverDailyLimit:
            report.status = "over_limit"
            maximum = await run_in_thread(self.limit.maximum, account_id)
            report.reason = f"the account's {maximum:.2f} dollars a day for learning are spent"
        await run_in_thread(self.records.count, report.status)
        return False

    async def _answered(
        self,
        pass_: _Pass,
        model: Model,
        request: ModelRequest,
        budget: PassBudget,
        current: CurrentBlocks | None,
    ) -> bool:
        """Send the request and note the reply, also if this process is being stopped meanwhile."""
        task = asyncio.ensure_future(
            model.reply(request, output_tokens_max=budget.output_tokens, emit=silent)
        )
        try:
            reply = await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task}, timeout=STOP_S_MAX)
            if task.done() and not task.cancelled() and task.exception() is None:
                with suppress(Exception):
                    self._note_reply(pass_, task.result(), current)
            task.cancel()
            raise
        return await run_in_thread(self._note_reply, pass_, reply, current)

    def _question(self, pass_: _Pass) -> tuple[ModelRequest, CurrentBlocks | None]:
        known = None
        if pass_.requests == 0 and pass_.places:
            known = [fact for facts in known_in(pass_.places).values() for fact in facts]
        current = self._current(pass_) if pass_.wants_blocks else None
        return question(pass_.text.text, known, current), current

    def _current(self, pass_: _Pass) -> CurrentBlocks:
        own = self._own_blocks(pass_)
        return {
            (scope, kind): own.blocks.find(own.place(kind, scope)) for scope, kind in BLOCK_NAMES
        }

    def _own_blocks(self, pass_: _Pass) -> AgentBlocks:
        agent_id = pass_.subject.agent.id
        return AgentBlocks(self.blocks, agent_id, is_writable=True, is_asked_for=False)

    def _note_reply(
        self, pass_: _Pass, reply: Reply | ModelFailure, current: CurrentBlocks | None
    ) -> bool:
        """Check a reply and note what is to be stored. Return False if it is of no use."""
        report, pass_.requests = pass_.report, pass_.requests + 1
        if isinstance(reply, ModelFailure):
            return self._failed(pass_, reply)
        answer = answer_in(reply)
        if answer is None:
            reason = "the reply has another form than it was asked for"
            return self._failed(pass_, ModelFailure("declined", reason, ""), reply.note)
        facts, dropped = checked(answer.get("facts"))
        blocks, left_out = checked_blocks(answer.get("blocks"), current or {})
        report.dropped.update(dropped)
        report.dropped.update(left_out)
        noted: JsonObject = {
            "until": pass_.text.until,
            "facts": [one.as_json() for one in facts],
            "blocks": [one.as_json() for one in blocks],
            "model": report.model,
            "requests": pass_.requests,
            "text": pass_.text.text if blocks else "",
        }
        if pass_.wish.is_trial:
            self.records.record_usage(reply.note)
            self._propose(pass_, facts, blocks)
            return True
        state = replace(pass_.state, asked=None, reply=noted, tries=0)
        if _size(noted) > REPLY_BYTES_MAX:
            self.records.record_usage(reply.note)
            pass_.state = replace(state, asked=pass_.state.asked)
            return True
        self._write(pass_, state, reply.note)
        self.records.count("secrets", dropped["secret"] + left_out["secret"])
        return True

    def _failed(self, pass_: _Pass, failure: ModelFailure, note: NoteUsage | None = None) -> bool:
        report, state = pass_.report, pass_.state
        report.reason = failure.reason
        is_passing = failure.kind in PASSING and failure.usage == NO_USAGE
        report.status = "later" if is_passing and state.tries + 1 < TRIES_MAX else "failed"
        if failure.kind == "budget":  # the account's own limit, or the provider's
            report.status = "over_limit"
        if pass_.wish.is_trial:
            self.records.record_usage(note)
            report.status = "failed" if is_passing else report.status
            return False
        if report.status == "later":
            report.tries = state.tries + 1
            state = replace(state, asked=None, tries=report.tries)
        else:
            until = pass_.text.until if failure.kind in PAID else state.until
            state = replace(state, asked=None, tries=0, until=until, seen=pass_.text.until)
            self.records.count("over_limit" if report.status == "over_limit" else "failed")
        self._write(pass_, state, note)
        return False

    def _propose(
        self, pass_: _Pass, facts: Sequence[FactCandidate], blocks: Sequence[BlockProposal]
    ) -> None:
        """Report what a pass would store."""
        report = pass_.report
        plan = planned(facts, known_in(pass_.places))
        stored = {entry.key for entries in plan.entries.values() for entry in entries}
        report.facts += [one for one in facts if one.key in stored]
        report.blocks += blocks
        report.dropped.update(plan.dropped)
        report.status = "proposed"

    def _store(self, pass_: _Pass) -> bool:
        """Store what the noted reply says. Return True if a block was another one than the model saw."""
        report, reply = pass_.report, pass_.state.reply or {}
        facts = [candidate_of(one) for one in reply["facts"]]
        plan = store(pass_.places, facts, self._author(pass_, "extract"))
        stored = {entry.key for entries in plan.entries.values() for entry in entries}
        report.facts += [one for one in facts if one.key in stored]
        report.dropped.update(plan.dropped)
        has_conflict = False
        for data in reply["blocks"]:
            proposal = block_proposal_of(data)
            try:
                self._write_block(pass_, proposal)
            except BlockConflict:
                has_conflict = True
            except OverLimit:
                report.dropped["too_long"] += 1
            else:
                report.blocks.append(proposal)
        if report.facts or report.blocks:
            report.status = "stored"
        return has_conflict

    def _write_block(self, pass_: _Pass, proposal: BlockProposal) -> None:
        own = self._own_blocks(pass_)
        place = own.place(proposal.type, proposal.scope)
        condition = BlockCondition(has_version=lambda version: version == proposal.version)
        own.blocks.put(place, proposal.content, condition, by=self._author(pass_, "sleep"))

    def _reply_used(self, pass_: _Pass) -> None:
        """Note that a reply was used, before the model is asked for blocks once more."""
        reply = pass_.state.reply or {}
        pass_.requests = reply["requests"]
        if not pass_.text.text:
            pass_.text = NewText(reply["text"], reply["until"])
        self._write(pass_, replace(pass_.state, reply=None))

    def _finished(self, pass_: _Pass) -> None:
        reply, report = pass_.state.reply or {}, pass_.report
        state = PassState(until=reply["until"], counter=pass_.state.counter)
        self._write(pass_, state)
        self.was_read(pass_.subject.id)
        self.records.count("passes")
        self.records.count("facts", len(report.facts))
        self.records.count("blocks", len(report.blocks))

    def _write(self, pass_: _Pass, state: PassState, note: NoteUsage | None = None) -> None:
        """Store the state of a pass.

        Raises: Busy if the conversation was deleted, or another process has changed the state.
        """
        subject = pass_.subject
        pass_.state = self.records.write(subject.id, state, note=note, exists=subject.exists)

    def _author(self, pass_: _Pass, source: RevisionSource) -> Author:
        agent, trailers = pass_.subject.agent, pass_.subject.trailers
        model = (pass_.state.reply or {}).get("model") or ""
        name = "sleep" if source == "sleep" else "extraction"
        return Author(name, agent.id, source, {"Agent": agent.id, **trailers, "Model": model})


@dataclass(slots=True)
class _Pass:
    """A pass in progress."""

    subject: Subject
    wish: PassWish
    state: PassState
    places: FactPlaces
    wants_blocks: bool
    text: NewText
    requests: int = 0
    report: PassReport = field(default_factory=PassReport)


def _size(noted: JsonObject) -> int:
    return len(json.dumps(noted, ensure_ascii=False).encode(errors="replace"))
