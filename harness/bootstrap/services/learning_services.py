"""Build what learns in the background, for one principal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.agents.catalog import AgentCatalog
from harness.billing.ledger import Ledger
from harness.conversations.conversation import Conversations
from harness.learning.budget import DailyLimit
from harness.learning.fact_places import LearnedFacts
from harness.learning.learner import Learner, OpenSmallModel
from harness.learning.learning import Learning, LearningJobs, chain_text
from harness.learning.learning_turns import LearningTurns
from harness.learning.learnings import Learnings
from harness.learning.new_text import CHARACTERS_MIN
from harness.learning.pass_records import PassRecords
from harness.learning.unread import UnreadText
from harness.memory.blocks.blocks import Blocks
from harness.memory.facts.fact_catalog import FactCatalog
from harness.runs.chain_record import Chain
from harness.runs.run_records import RunRecords
from workspaces.accounts.principal import Principal
from workspaces.errors import NotFound
from workspaces.storage.records import RecordChange


@dataclass(frozen=True, slots=True)
class LearningServices:
    """What learns from one user, and the parts by which it takes part in turns and chains."""

    learning: Learning
    observer: LearningTurns
    chain_ended: Callable[[Chain], Sequence[RecordChange]]


def learning_services(
    *,
    principal: Principal,
    agents: AgentCatalog,
    blocks: Blocks,
    facts: FactCatalog,
    conversations: Conversations,
    runs: RunRecords,
    limit: DailyLimit,
    ledger: Ledger,
    open_model: OpenSmallModel,
) -> LearningServices:
    learned_facts = LearnedFacts(principal, agents, facts)
    unread = UnreadText()
    records = PassRecords(principal.account_id, runs.records, runs.clock)
    learner = Learner(
        principal=principal,
        agents=agents,
        blocks=blocks,
        facts=learned_facts,
        records=records,
        limit=limit,
        price=lambda model: ledger.prices.find(model),
        open_model=open_model,
        was_read=unread.forget,
    )
    learning = Learning(learner, agents, conversations, runs, runs.clock)
    jobs = LearningJobs(principal, learned_facts, runs.jobs, runs.clock)
    learnings = Learnings(learned_facts, runs.clock)

    def chain_ended(chain: Chain) -> Sequence[RecordChange]:
        """Return the job that reads a chain, if it said enough."""
        if len(chain_text(runs, chain)) < CHARACTERS_MIN:
            return ()
        try:
            return jobs.after_chain(chain, agents.get(chain.agents[0]))
        except NotFound:  # the agent was deleted
            return ()

    observer = LearningTurns(
        jobs=jobs,
        learnings=learnings,
        agents=agents,
        conversations=conversations,
        runs=runs,
        records=records,
        unread=unread,
    )
    return LearningServices(learning, observer, chain_ended)
