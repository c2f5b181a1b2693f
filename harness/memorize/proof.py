"""Proof: whether a memory still says what its conversation said, and the words around its quotes.

| state | when |
|---|---|
| fresh | the cited snapshot holds each quote at its place, and the body is the one it was given for |
| drifted | the body has changed since, or a quote does not stand at its place |
| orphaned | the snapshot is gone, or a message of it |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.memorize.archive.archives import ArchivedConversation, Archives
from harness.memorize.grounding import holds_quote, words_hash
from harness.memorize.local.local_message import LocalMessage
from harness.memorize.memory import CitedMoment, MemorizedFact
from workspaces.errors import NotFound

ProofState = Literal["fresh", "drifted", "orphaned"]

_RANK: Mapping[ProofState, int] = {"fresh": 0, "drifted": 1, "orphaned": 2}

AROUND = 1
"""Messages before and behind a cited one that are shown with it."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A grounding with its state."""

    moment: CitedMoment
    state: ProofState
    reason: str
    messages: tuple[LocalMessage, ...] = ()
    """The cited message and those around it."""

    def as_json(self) -> dict[str, Any]:
        return {
            "message_position": self.moment.message,
            "raw_event_index": self.moment.event,
            "quote": self.moment.quote,
            "state": self.state,
            "reason": self.reason,
            "messages": [one.as_json() for one in self.messages],
        }


@dataclass(frozen=True, slots=True)
class ProofReport:
    """A memory with its state, and that of each grounding."""

    memory: MemorizedFact
    archive: ArchivedConversation | None
    state: ProofState
    reasons: tuple[str, ...]
    proofs: tuple[Proof, ...]

    def as_json(self) -> dict[str, Any]:
        memory, origin = self.memory, self.memory.origin
        return {
            "id": memory.fact.id,
            "key": memory.fact.key,
            "content": memory.fact.value,
            "workspace": memory.workspace,
            "conversation_id": origin.conversation,
            "provider": origin.provider,
            "title": None if self.archive is None else self.archive.about.title,
            "state": self.state,
            "reasons": list(self.reasons),
            "groundings": [one.as_json() for one in self.proofs],
        }


def proof_reports(archives: Archives, memories: Iterable[MemorizedFact]) -> Iterator[ProofReport]:
    """Yield a report on each memory. Each snapshot is read once."""
    by_snapshot: dict[tuple[str, str, str], list[MemorizedFact]] = defaultdict(list)
    for memory in memories:
        said = memory.origin
        by_snapshot[said.provider, said.conversation, said.snapshot].append(memory)
    for (provider, conversation, snapshot), cited in by_snapshot.items():
        archive = archives.of(provider, conversation)
        shown = _messages(archives, archive, snapshot, cited)
        for memory in cited:
            yield _report(memory, archive, shown)


def _messages(
    archives: Archives,
    archive: ArchivedConversation | None,
    snapshot: str,
    memories: Sequence[MemorizedFact],
) -> Mapping[int, LocalMessage] | None:
    """Return the cited messages and those around them by position; None if the snapshot is gone."""
    if archive is None or archive.find(snapshot) is None:
        return None
    wanted = {
        position
        for memory in memories
        for moment in memory.moments
        if moment.message is not None
        for position in range(moment.message - AROUND, moment.message + AROUND + 1)
    }
    found: dict[int, LocalMessage] = {}
    try:
        for message in archives.messages(archive, snapshot):
            if message.position in wanted:
                found[message.position] = message
                if len(found) == len(wanted):
                    break
    except NotFound:  # it was deleted at this moment
        return None
    return found


def _report(
    memory: MemorizedFact,
    archive: ArchivedConversation | None,
    shown: Mapping[int, LocalMessage] | None,
) -> ProofReport:
    reasons: list[str] = []
    states: list[ProofState] = ["fresh"]
    if not memory.is_body_unchanged:
        states.append("drifted")
        reasons.append("its text has changed since it was memorized")
    if memory.has_broken_moments:
        states.append("drifted")
        reasons.append("its groundings were edited and cannot be read")
    if shown is None:
        states.append("orphaned")
        reasons.append("the archive of its conversation is gone")
    proofs = tuple(_proof(memory, moment, shown) for moment in memory.moments)
    states.extend(proof.state for proof in proofs)
    if shown is not None:
        reasons += [proof.reason for proof in proofs if proof.state != "fresh"]
    worst = max(states, key=_rank)
    return ProofReport(memory, archive, worst, tuple(dict.fromkeys(reasons)), proofs)


def _proof(
    memory: MemorizedFact, moment: CitedMoment, shown: Mapping[int, LocalMessage] | None
) -> Proof:
    """Compare one grounding with its message."""
    if shown is None:
        return Proof(moment, "orphaned", "the archive of its conversation is gone")
    if moment.message is None:
        return _raw_proof(memory, moment)
    message = shown.get(moment.message)
    if message is None:
        return Proof(moment, "orphaned", f"message {moment.message} is gone")
    around = tuple(
        shown[position]
        for position in range(moment.message - AROUND, moment.message + AROUND + 1)
        if position in shown
    )
    part = message.text[moment.start : moment.end]
    if words_hash(part) != moment.hash or not holds_quote(part, moment.quote):
        reason = f"the quote does not stand at its place in message {moment.message}"
        return Proof(moment, "drifted", reason, around)
    return Proof(moment, "fresh", "the quote stands at its place", around)


def _raw_proof(memory: MemorizedFact, moment: CitedMoment) -> Proof:
    """Compare a grounding with its raw event, which the archive keeps with the citation."""
    kept = memory.citation.groundings if memory.citation is not None else ()
    for one in kept:
        if one.get("raw_event_index") == moment.event and "raw_event" in one:
            if holds_quote(one["raw_event"], moment.quote):
                return Proof(moment, "fresh", "the quote stands in the raw event")
            reason = f"the quote does not stand in raw event {moment.event}"
            return Proof(moment, "drifted", reason)
    return Proof(moment, "orphaned", f"raw event {moment.event} is gone")


def _rank(state: ProofState) -> int:
    return _RANK[state]
