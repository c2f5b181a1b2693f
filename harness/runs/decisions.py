"""The decisions of an account's agents: what runs submitted, what came of it, and later looks at it.

A decision is the first revision of its file in the agent's private workspace. The run's record holds the same
data. A later change of the file, by whoever, changes no answer.

The file alone is enough. Where machines share files and no records, a decision made elsewhere arrives as a
file. It gets a record here when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from harness.agents.record import AgentRecord
from harness.context.fence import attribute, fenced
from harness.memory.decisions import re_examination
from harness.memory.decisions.decision import (
    Decision,
    ago,
    stored_decision,
)
from harness.memory.decisions.decision_files import DecisionFiles, FoundDecision
from harness.memory.decisions.result_card import ResultCard, card_of
from harness.runs.result_tools import LISTED, LISTED_MAX, SubmitResult
from harness.runs.run import Run
from harness.runs.run_records import RunRecords
from harness.runtime.templates import render, root
from workspaces.clock import Clock
from workspaces.errors import Conflict, Failure, Refused, Unavailable
from workspaces.ids import AgentId, RunId
from workspaces.revision import Author
from workspaces.storage.contention import until_written
from workspaces.storage.records import JsonObject
from workspaces.timestamp import Stamp, moment_of

ResolutionStatus = Literal["pending", "active", "resolved", "expired"]
CLOSED = frozenset({"resolved", "expired"})

OUTCOME_CHARACTERS_MAX = 80
CARD_BYTES_MAX = 64 * 2**10


class CardMissing(Failure):
    """The card that an agent names is not on this machine: cards do not travel."""

    code = "card_missing"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no card {name!r} on this machine",
            remedy=f"copy cards/{name}.yaml into this home",
        )


@dataclass(frozen=True, slots=True)
class CardShelf:
    """The cards of a home, and those that are shipped."""

    folder: Path

    def get(self, name: str) -> ResultCard:
        """Return a card. A card of the home goes before a shipped one.

        Raises: CardMissing; Refused with file, line and rule if the card is wrong.
        """
        for folder in (self.folder, root() / "cards"):
            file = folder / f"{name}.yaml"
            if "/" in name or name.startswith(".") or not file.is_file():
                continue
            try:
                data = file.read_bytes()[: CARD_BYTES_MAX + 1]
            except OSError as error:
                raise Unavailable(f"card {name}", error.strerror or str(error)) from error
            if len(data) > CARD_BYTES_MAX:
                raise Refused(f"cards/{name}.yaml", None, f"is over {CARD_BYTES_MAX:,} bytes")
            card = card_of(data.decode(errors="replace"), f"cards/{name}.yaml")
            if card.type != name:
                raise Refused(f"cards/{name}.yaml: type", card.type, "is not the name of its file")
            return card
        raise CardMissing(name)

    def check(self, name: str, field: str) -> None:
        """Raise Refused, naming the field, if an agent cannot use this card."""
        try:
            self.get(name)
        except CardMissing as missing:
            rule = "is not the name of a card"
            raise Refused(field, name, rule, remedy=missing.remedy) from missing


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A decision with what came of it."""

    run: Run
    decision: Decision
    conviction: JsonObject | None

    @property
    def why_closed(self) -> str | None:
        """The rule by which the decision is not examined again; None if it may be."""
        card, status = self.decision.card, self.run.resolution_status
        if card.re_examinable is False:
            return f"is a {card.type}, which is not examined again"
        if card.re_examinable == "until_resolved" and status in CLOSED:
            return f"is {status}, and is not examined again"
        return None

    def as_json(self) -> JsonObject:
        return {
            "runId": self.run.id,
            "at": self.run.finished_at,
            **self.decision.as_json(),
            "outcome": self.run.outcome,
            "resolutionStatus": self.run.resolution_status,
            "conviction": self.conviction,
        }


@dataclass(frozen=True, slots=True)
class ReExaminationOrder:
    """What it takes to examine a decision again."""

    parent: Run
    prompt: str
    terms: JsonObject
    """What the answer must keep, and what of the decision is shown."""
    chain: JsonObject | None
    """Of a chain's decision: the agents up to the one that made it, and their task."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions of one account. Threads may share it."""

    records: RunRecords
    files: DecisionFiles
    cards: CardShelf
    clock: Clock
    _recorded: set[str] = field(default_factory=set[str], compare=False, repr=False)
    """Runs with decision files that are known to have a record."""

    def submit_tool(self, run: Run, agent: AgentRecord) -> SubmitResult | None:
        """Return the tool with which this run must end; None for a run without a result.

        Raises: CardMissing.
        """
        if run.parent_id is not None:
            return self._re_examine_tool(run)
        if agent.config.card is None:
            return None
        card = self.cards.get(agent.config.card)

        def keep(data: JsonObject, author: Author) -> str:
            made = self._made(run, card, data)
            self.files.keep(run.agent_id, run.created_at, made, author)
            return f"Accepted: {card.summary(data)}"

        return SubmitResult(card.title, card.json_schema(), card.checked, keep)

    def result_of(self, run: Run, agent: AgentRecord, data: Mapping[str, Any]) -> JsonObject:
        """Return the result of a run from the accepted call of its tool, as it is stored."""
        if run.parent_id is not None:
            return {"review": dict(data)}
        found = self.files.find(run.agent_id, run.created_at, run.id)
        if found is not None:
            return found.decision.stored()
        card = self.cards.get(agent.config.card or "")  # the file is gone: the call holds the same
        return self._made(run, card, card.checked(data)).stored()

    def adopt(self, agent_id: AgentId) -> None:
        """Record the decisions of an agent that are here as files alone: runs of other machines made them."""
        for path, run_id in self.files.names(agent_id):
            if run_id in self._recorded:
                continue
            if not self.records.has(run_id):
                found = self.files.at(agent_id, path)
                if found is None:  # what its first revision holds is no decision
                    continue
                with suppress(Conflict):  # another process was faster
                    made = _made_elsewhere(agent_id, found)
                    self.records.records.write(*self.records.recorded(made))
            self._recorded.add(run_id)

    def run(self, run_id: str) -> Run:
        """Return a run, also one of another machine whose decision is here.

        Raises: NotFound.
        """
        found = self.records.find(run_id)
        if found is None:
            for agent_id in self.files.agents_with(run_id):
                self.adopt(agent_id)
        return found or self.records.get(run_id)

    def list(self, agent_id: AgentId, *, limit: int | None = None) -> list[DecisionView]:
        """Return the decisions of an agent, newest first."""
        self.adopt(agent_id)
        views = (self.view(run) for run in self.records.newest_first(agent_id))
        return list(islice((view for view in views if view is not None), limit))

    def view(self, run: Run) -> DecisionView | None:
        """Return the decision of a run, or None if it has none."""
        decision = decision_in(run)
        if decision is None:
            return None
        return DecisionView(run, decision, self.conviction(run))

    def get(self, run_id: str) -> DecisionView:
        """Return the decision of a run.

        Raises: NotFound for an unknown run; Refused for a run without a decision.
        """
        view = self.view(self.run(run_id))
        if view is None:
            raise Refused("run", run_id, "has no decision")
        return view

    def conviction(self, run: Run) -> JsonObject | None:
        """Return the newest valid re-examination of a run's decision."""
        for child in reversed(self.records.children(run.id)):
            review = review_in(child)
            if review is not None:
                return {
                    "score": review["conviction_score"],
                    "action": review["suggested_action"],
                    "notes": review["notes"],
                    "runId": child.id,
                    "at": child.finished_at,
                }
        return None

    def tally(self, views: Sequence[DecisionView]) -> JsonObject | None:
        """Count the decisions that were good and bad by their outcomes. Return None without such outcomes."""
        good = bad = 0
        for view in views:
            words = view.decision.card.tally
            outcome = (view.run.outcome or "").casefold()
            if words is None or not outcome:
                continue
            good += outcome in {word.casefold() for word in words.good}
            bad += outcome in {word.casefold() for word in words.bad}
        if not good + bad:
            return None
        return {"good": good, "bad": bad, "hitRate": round(good / (good + bad), 4)}

    def told(self, agent_id: AgentId, limit: int = LISTED) -> str:
        """Return the newest decisions as text for the agent itself."""
        views = self.list(agent_id, limit=min(limit, LISTED_MAX))
        if not views:
            return "You have made no decisions yet."
        now, lines = self.clock.now(), list[str]()
        for view in views:
            at = ago(moment_of(view.run.finished_at or view.run.created_at), now)
            outcome = f" · outcome: {view.run.outcome}" if view.run.outcome else ""
            score = f" · conviction {view.conviction['score']}" if view.conviction else ""
            lines.append(fenced(f"{at} · {view.decision.line}{outcome}{score}"))
        tally = self.tally(self.list(agent_id))
        if tally is not None:
            decided = tally["good"] + tally["bad"]
            lines.append(f"{tally['good']} of {decided} decided were good")
        return "\n".join(lines)

    def set_outcome(
        self,
        run_id: str,
        outcome: str | None,
        fields: Mapping[str, Any] | None = None,
        status: ResolutionStatus | None = None,
    ) -> Run:
        """Note what came of a decision. None as the outcome clears outcome, fields and status.

        Raises: NotFound; Refused for a run without a decision, or an outcome that is blank or too long.
        """
        if outcome is not None and not (outcome.strip() and len(outcome) <= OUTCOME_CHARACTERS_MAX):
            rule = f"must be 1 to {OUTCOME_CHARACTERS_MAX} characters"
            raise Refused("outcome", outcome, rule)

        @until_written("decisions")
        def resolved() -> Run:
            run = self.get(run_id).run
            changed = replace(
                run,
                outcome=outcome,
                outcome_fields=None if outcome is None or fields is None else dict(fields),
                resolution_status=None if outcome is None else status,
            )
            self.records.records.write(self.records.put(changed))
            return run

        run = resolved()
        noted = "cleared" if outcome is None else outcome
        line = f"outcome: {noted}{f' ({status})' if status else ''}"
        by = self.records.principal.author("api")
        self.files.note(run.agent_id, run.created_at, run.id, line, by)
        return self.records.get(run_id)

    def re_examination_of(self, run_id: str) -> ReExaminationOrder:
        """Return the prompt and the terms of a new look at the decision of a run.

        Raises: NotFound for an unknown run; Refused if its decision cannot be examined again.
        """
        view = self.get(run_id)
        run, card = view.run, view.decision.card
        if view.why_closed is not None:
            raise Refused("run", run_id, view.why_closed)
        values = card.slot_values(view.decision.data)
        slots = [{"name": attribute(name), "text": fenced(value)} for name, value in values]
        prompt = render(
            "runs/re-examination.md",
            slots=slots,
            actions=list(card.re_examine_actions),
            watch_for=watches(view.decision),
        )
        found = self.files.find(run.agent_id, run.created_at, run.id)
        terms = {
            "actions": list(card.re_examine_actions),
            "watches": watches(view.decision),
            "prompt": prompt,
            "shown": [{"slot": name, "bytes": len(value.encode())} for name, value in values],
            "revision": found and found.revision,
        }
        return ReExaminationOrder(run, prompt, terms, view.decision.chain)

    def _re_examine_tool(self, run: Run) -> SubmitResult:
        parent = None if run.parent_id is None else self.records.find(run.parent_id)
        terms = run.review or {}
        actions, is_watching = terms.get("actions", []), terms.get("watches", False)

        def check(data: Mapping[str, Any]) -> JsonObject:
            return re_examination.checked(data, actions, watches=is_watching)

        def keep(data: JsonObject, author: Author) -> str:
            if parent is not None:
                score, action = data["conviction_score"], data["suggested_action"]
                line = f"re-examined by {run.id}: {score} · {action}"
                self.files.note(parent.agent_id, parent.created_at, parent.id, line, author)
            return "Accepted."

        schema = re_examination.schema(actions, watches=is_watching)
        return SubmitResult("a re-examination", schema, check, keep)

    def _made(self, run: Run, card: ResultCard, data: JsonObject) -> Decision:
        """Return the decision that a run makes. That of a chain tells of the steps before it."""
        chain = None if run.chain_id is None else self.records.chains.find(run.chain_id)
        told = None
        if chain is not None and run.step:
            told = {"agents": list(chain.agents[: run.step + 1]), "task": chain.task}
        return Decision(run.id, card, data, run.created_at, told)


def _made_elsewhere(agent_id: AgentId, found: FoundDecision) -> Run:
    """Return the run of a decision that is here as a file alone."""
    decision = found.decision
    created_at = decision.created_at or ""
    if created_at[:10] != found.date:  # the name of the file says where its log lies
        created_at = f"{found.date}T00:00:00.000000Z"
    return Run(
        id=RunId(decision.run_id),
        agent_id=agent_id,
        status="succeeded",
        source="on_demand" if decision.chain is None else "chain",
        prompt="",
        created_at=Stamp(created_at),
        finished_at=found.at,
        reply=decision.line,
        result=decision.stored(),
    )


def decision_in(run: Run) -> Decision | None:
    """Return the decision that a run has made, or None."""
    if run.status != "succeeded" or run.parent_id is not None or run.result is None:
        return None
    if "card" not in run.result:
        return None
    return stored_decision(run.id, run.result)


def review_in(run: Run) -> JsonObject | None:
    """Return the answer of a re-examination, or None."""
    if run.status != "succeeded" or run.result is None:
        return None
    return run.result.get("review")


def watches(decision: Decision) -> bool:
    """Return True if a decision says what to watch for."""
    field = decision.card.slots.get("watch_for", "watch_for")
    return bool(decision.data.get(field))
