"""Where facts of a conversation may be stored, and storing them there.

| the conversation is of | facts of a workspace | facts of the agent |
|---|---|---|
| the account's owner, or `extract.shared` is on | the first writable mount | the agent's own |
| another user | that user's with the agent | that user's with the agent |

Facts of the agent are stored only if its memory is on, because otherwise no prompt shows them. A mount in
which a person approves every write is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from harness.agents.catalog import AgentCatalog
from harness.agents.record import AgentRecord
from harness.memory.facts.fact import Fact
from workspaces.accounts.principal import Principal
from workspaces.revision import Author

if TYPE_CHECKING:
    from harness.learning.candidate import FactCandidate, FactPlan, LearnedScope
    from harness.memory.facts.fact_catalog import FactCatalog
    from harness.memory.facts.facts import Facts

FactPlaces: TypeAlias = "Mapping[LearnedScope, Facts]"


@dataclass(frozen=True, slots=True)
class LearnedFacts:
    """The facts that passes over the conversations of one user store."""

    principal: Principal
    agents: AgentCatalog
    catalog: Callable[[], FactCatalog]

    def may_store(self, agent: AgentRecord) -> bool:
        """Return False if there is certainly no place for a fact, without looking at any workspace."""
        config = agent.config
        if not config.extract.enabled:
            return False
        return config.memory_enabled or (self._is_shared(agent) and bool(config.workspaces))

    def places(self, agent: AgentRecord) -> FactPlaces:
        """Return the places for the facts of a conversation with this agent."""
        config = agent.config
        if not config.extract.enabled:
            return {}
        found: dict[LearnedScope, Facts] = {}
        if not self._is_shared(agent):
            if config.memory_enabled:
                found["agent"] = self.catalog().of_agent(agent.id)
            return found
        for mount in self.agents.bindings(agent) if config.workspaces else ():
            if mount.is_writable and not (mount.is_private or mount.is_asked_for):
                found["workspace"] = self.catalog().over(mount.here)
                break
        if config.memory_enabled:
            found["agent"] = self.catalog().of_every_user(agent.id)
        return found

    def _is_shared(self, agent: AgentRecord) -> bool:
        """Return True if all users of the agent may see what is learned from this user."""
        return agent.config.extract.shared or self.principal.user_id == self.principal.owner.id


def known_in(places: FactPlaces) -> dict[LearnedScope, Sequence[Fact]]:
    return {scope: facts.list() for scope, facts in places.items()}


def store(places: FactPlaces, candidates: Sequence[FactCandidate], by: Author) -> FactPlan:
    """Store the candidates that the present facts leave room for, as one revision of each place.

    A second call stores nothing more.

    Raises: WorkspaceBusy while a command holds a workspace.
    """
    from harness.learning.candidate import planned

    plan = planned(candidates, known_in(places))
    for scope, entries in plan.entries.items():
        if entries:
            places[scope].put_all(entries, by=by)
    return plan
