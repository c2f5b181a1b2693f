"""The proof of a row: the words of the conversation that it rests on, and whether they still hold."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from starlette.responses import Response

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.memorize.local.local_message import LocalMessage
from harness.memorize.proof import Proof, proof_reports
from harness.memory.facts.facts import Facts
from harness.web.pages.parts.rendering import shown
from workspaces.errors import NotFound

AROUND_CHARACTERS = 400
"""Of a message, before and behind the quote."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The part of a message that is shown. `quoted` is empty for a message that only surrounds the quote."""

    role: str
    position: int
    before: str
    quoted: str = ""
    after: str = ""
    is_cut_before: bool = False
    is_cut_after: bool = False


def proof_page(
    request: Request, caller: PrincipalServices, facts: Facts, row: str, base: str
) -> Response:
    """Show why a row is believed.

    Raises: NotFound for a row that memorize did not write.
    """
    fact = facts.get(row)
    memories = caller.memorizer.memories
    memory = memories.of_fact(facts, fact)
    if memory is None:
        raise NotFound("proof of", fact.key, remedy="only rows of memorize cite a conversation")
    (report,) = proof_reports(caller.memorizer.archives, [memories.cited(memory)])
    scope = facts.scope
    agent = caller.agents.get(scope.agent_id) if scope.agent_id else None
    return shown(
        request,
        "proof.html",
        caller=caller,
        agent=agent,
        record=None if agent else caller.workspaces.record(scope.workspace_id),
        base=base,
        fact=fact,
        origin=memory.origin,
        report=report,
        proofs=[
            (proof, [_excerpt(message, proof) for message in proof.messages])
            for proof in report.proofs
        ],
    )


def _excerpt(message: LocalMessage, proof: Proof) -> Excerpt:
    text, moment = message.text, proof.moment
    if proof.state != "fresh" or message.position != moment.message:
        before = text[:AROUND_CHARACTERS]
        return Excerpt(message.role, message.position, before, is_cut_after=len(before) < len(text))
    first = max(0, moment.start - AROUND_CHARACTERS)
    last = moment.end + AROUND_CHARACTERS
    return Excerpt(
        message.role,
        message.position,
        text[first : moment.start],
        text[moment.start : moment.end],
        text[moment.end : last],
        is_cut_before=first > 0,
        is_cut_after=last < len(text),
    )
