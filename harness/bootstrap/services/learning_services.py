"""What learns in the background from one user, each part built at its first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.learning.fact_places import LearnedFacts
from harness.learning.learning_jobs import LearningJobs, chain_text
from harness.learning.new_text import CHARACTERS_MIN
from harness.learning.pass_records import PassRecords
from harness.learning.unread import UnreadText
from workspaces.coordination.lazily import lazily
from workspaces.errors import NotFound

if TYPE_CHECKING:
    from harness.agents.catalog import AgentCatalog
    from harness.billing.ledger import Ledger
    from harness.conversations.conversation import Conversations
    from harness.learning.budget import DailyLimit
    from harness.learning.learner import OpenSmallModel
    from harness.learning.learning import Learning
    from harness.learning.learning_turns import LearningTurns
    from harness.learning.learnings import Learnings
    from harness.memory.blocks.blocks import Blocks
    from harness.memory.facts.fact_catalog import FactCatalog
    from harness.runs.chain_record import Chain
    from harness.runs.run_records import RunRecords
    from workspaces.accounts.principal import Principal
    from workspaces.storage.records import RecordChange


class LearningServices:
    """What learns from one user, and the parts by which it takes part in turns and chains."""

    def __init__(
        self,
        *,
        principal: Principal,
        agents: AgentCatalog,
        blocks: Blocks,
        facts: Callable[[], FactCatalog],
        conversations: Conversations,
        runs: RunRecords,
        limit: Callable[[], DailyLimit],
        ledger: Ledger,
        open_model: OpenSmallModel,
    ) -> None:
        self._principal = principal
        self._agents = agents
        self._blocks = blocks
        self._conversations = conversations
        self._runs = runs
        self._limit = limit
        self._ledger = ledger
        self._open_model = open_model
        self._facts = LearnedFacts(principal, agents, facts)
        self._unread = UnreadText()
        self.records = PassRecords(principal.account_id, runs.records, runs.clock)
        self._jobs = LearningJobs(principal, self._facts, runs.jobs, runs.clock)

    @lazily
    def learning(self) -> Learning:
        from harness.learning.learner import Learner
        from harness.learning.learning import Learning

        learner = Learner(
            principal=self._principal,
            agents=self._agents,
            blocks=self._blocks,
            facts=self._facts,
            records=self.records,
            limit=self._limit(),
            price=lambda model: self._ledger.prices.find(model),
            open_model=self._open_model,
            was_read=self._unread.forget,
        )
        return Learning(learner, self._agents, self._conversations, self._runs, self._runs.clock)

    @lazily
    def learnings(self) -> Learnings:
        from harness.learning.learnings import Learnings

        return Learnings(self._facts, self._runs.clock)

    @lazily
    def observer(self) -> LearningTurns:
        """The observer of turns that enqueues what is to be read."""
        from harness.learning.learning_turns import LearningTurns

        return LearningTurns(
            jobs=self._jobs,
            learnings=lambda: self.learnings,
            agents=self._agents,
            conversations=self._conversations,
            runs=self._runs,
            records=self.records,
            unread=self._unread,
        )

    def chain_ended(self, chain: Chain) -> Sequence[RecordChange]:
        """Return the job that reads a chain, if it said enough."""
        if len(chain_text(self._runs, chain)) < CHARACTERS_MIN:
            return ()
        try:
            return self._jobs.after_chain(chain, self._agents.get(chain.agents[0]))
        except NotFound:  # the agent was deleted
            return ()
