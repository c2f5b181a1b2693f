"""The memories that one principal reaches: find, list and delete them.

They lie in the shared workspaces, in the user's private one, and in those of the agents. A key of a user
reaches the private ones alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from harness.memorize.archive.archives import Archives, Citation
from harness.memorize.memorize_request import ResourceListRequest
from harness.memorize.memory import MemorizedFact, origin_of, tag_slug
from harness.memory.facts.fact import Fact
from harness.memory.facts.fact_catalog import FactCatalog
from harness.memory.facts.facts import Facts
from harness.memory.recall import since_of
from workspaces.errors import Failure, NotFound
from workspaces.home.workspaces import private_to_user
from workspaces.ids import AgentId, WorkspaceId
from workspaces.revision import Author


@dataclass(frozen=True, slots=True)
class MemoryPage:
    memories: Sequence[MemorizedFact]
    page: int
    per_page: int
    total: int

    def as_json(self) -> dict[str, Any]:
        return {
            "data": [one.as_json() for one in self.memories],
            "meta": {"page": self.page, "per_page": self.per_page, "total": self.total},
        }


@dataclass(frozen=True, slots=True)
class Memories:
    facts: FactCatalog
    archives: Archives
    agent_ids: Callable[[], Sequence[AgentId]]

    def get(self, reference: str) -> MemorizedFact:
        """Return the memory with this id or key.

        Raises: NotFound, also for a fact that memorize did not write.
        """
        return self.cited(self._find(reference)[1])

    def all(self) -> list[MemorizedFact]:
        """Return all memories as their files say them, those that changed last first."""
        return sorted(
            chain.from_iterable(self._of(opened()) for _, opened in self._scopes()),
            key=_by_update,
            reverse=True,
        )

    def list(self, request: ResourceListRequest) -> MemoryPage:
        """Return a page of the memories that a request describes.

        Raises: Refused for something that is no date.
        """
        after = since_of(request.updated_after) if request.updated_after else None
        before = since_of(request.updated_before) if request.updated_before else None
        found = [
            one
            for one in self.all()
            if _matches(one, request)
            and (after is None or one.fact.updated_at >= after)
            and (before is None or one.fact.updated_at < before)
        ]
        name, is_falling = request.sort.removeprefix("-"), request.sort.startswith("-")
        found.sort(key=_ORDERS[name], reverse=is_falling)
        first = (request.page - 1) * request.per_page
        shown = [self.cited(one) for one in found[first : first + request.per_page]]
        return MemoryPage(shown, request.page, request.per_page, len(found))

    def delete(self, reference: str, by: Author) -> MemorizedFact:
        """Forget a memory. The conversation stays; its snapshots that nothing cites any more go.

        Raises: NotFound, WorkspaceBusy.
        """
        facts, memory = self._find(reference)
        facts.delete(memory.fact.key, by=by)
        origin = memory.origin
        archive = self.archives.of(origin.provider, origin.conversation)
        if archive is not None:
            self.archives.drop(archive, memory.fact.id)
            self.archives.prune(archive.id, self.is_there)
        return memory

    def of_fact(self, facts: Facts, fact: Fact) -> MemorizedFact | None:
        """Return the memory that a fact is, as its file says it; None if memorize did not write it."""
        origin = origin_of(fact)
        if origin is None:
            return None
        workspace_id = facts.scope.workspace_id
        name = self.facts.workspaces.record(workspace_id).name
        return MemorizedFact(fact, origin, name, workspace_id)

    def cited(self, memory: MemorizedFact) -> MemorizedFact:
        """Return the memory with what the archive keeps of it."""
        origin = memory.origin
        archive = self.archives.of(origin.provider, origin.conversation)
        if archive is None:
            return memory
        return replace(memory, citation=self.archives.citation(archive, memory.fact.id))

    def is_there(self, citation: Citation) -> bool:
        """Return True if the fact of a citation exists, or cannot be read now."""
        try:
            fact = self._facts_in(citation.workspace_id).get(citation.key)
        except NotFound:
            return False
        except Failure:
            return True
        origin = origin_of(fact)
        return origin is not None and origin.snapshot == citation.snapshot

    def _of(self, facts: Facts) -> Iterator[MemorizedFact]:
        for fact in facts.list():
            if (memory := self.of_fact(facts, fact)) is not None:
                yield memory

    def _find(self, reference: str) -> tuple[Facts, MemorizedFact]:
        """Return a memory. A workspace that cannot be read does not hide those of the others."""
        unread: Failure = NotFound("memory", reference)
        for _, opened in self._scopes():
            try:
                facts = opened()
                memory = self.of_fact(facts, facts.get(reference))
            except NotFound:
                continue
            except Failure as failure:
                unread = failure
                continue
            if memory is not None:
                return facts, memory
        raise unread

    def _scopes(self) -> Iterator[tuple[WorkspaceId, Callable[[], Facts]]]:
        """Yield the id of every workspace that the principal reaches, and what opens its facts."""
        principal = self.facts.principal
        if principal.may_configure:
            for record in self.facts.workspaces.list():
                yield record.id, partial(self.facts.of_workspace, record.id)
        own = private_to_user(principal.user_id)
        yield own, partial(self.facts.of_workspace, own)
        for agent_id in self.agent_ids():
            facts = self.facts.of_agent(agent_id)
            yield facts.scope.workspace_id, partial(self.facts.of_agent, agent_id)

    def _facts_in(self, workspace_id: WorkspaceId) -> Facts:
        opened = dict(self._scopes()).get(workspace_id)
        if opened is None:
            raise NotFound("workspace", workspace_id)
        return opened()


def _matches(memory: MemorizedFact, request: ResourceListRequest) -> bool:
    origin = memory.origin
    if request.provider not in (None, origin.provider):
        return False
    if request.conversation_id not in (None, origin.conversation):
        return False
    if not {tag_slug(tag) for tag in request.tags} <= set(memory.tags):
        return False
    if request.project is not None:
        wanted = request.project.rstrip("/")
        if not f"{origin.project or ''}/".startswith(f"{wanted}/"):
            return False
    if request.q is None:
        return True
    text = "\n".join([memory.fact.key, memory.fact.value, *memory.tags]).casefold()
    return all(word in text for word in request.q.casefold().split())


def _by_update(memory: MemorizedFact) -> tuple[str, str]:
    return memory.fact.updated_at, memory.fact.id


def _by_creation(memory: MemorizedFact) -> tuple[str, str]:
    return memory.fact.created_at, memory.fact.id


def _by_confidence(memory: MemorizedFact) -> tuple[float, str]:
    return memory.confidence if memory.confidence is not None else -1.0, memory.fact.id


_ORDERS: dict[str, Callable[[MemorizedFact], tuple[str | float, str]]] = {
    "updated_at": _by_update,
    "created_at": _by_creation,
    "confidence": _by_confidence,
}
