"""The jobs that read conversations and chains. `learning` does them.

A job is enqueued in the batch that ends a turn, a run or a chain. For chat it is due after a time of quiet: a
further turn moves it, so one pass reads many turns. Runs and chains are read at once. A chain is read as a
whole, and its steps are not read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from harness.agents.record import SETTLE_SECONDS
from harness.conversations.conversation import learning_job
from harness.jobs.job import Job
from harness.learning.new_text import lines_of

if TYPE_CHECKING:
    from harness.agents.record import AgentRecord
    from harness.conversations.conversation import Conversation
    from harness.jobs.job import Jobs
    from harness.learning.fact_places import LearnedFacts
    from harness.runs.chain_record import Chain
    from harness.runs.run_records import RunRecords
    from workspaces.accounts.principal import Principal
    from workspaces.clock import Clock
    from workspaces.storage.records import RecordChange

LEARN = "learn"
"""Kind of the job that reads a conversation, or a chain."""


@dataclass(frozen=True, slots=True)
class LearningJobs:
    """The jobs that read what one user said."""

    principal: Principal
    facts: LearnedFacts
    jobs: Jobs
    clock: Clock

    def after_turn(
        self, conversation: Conversation, agent: AgentRecord, *, is_run: bool
    ) -> Sequence[RecordChange]:
        """Return the changes to write with the end of a turn: its job, if anything could be stored."""
        sleeps = rewrites_blocks(agent)
        if not (sleeps or self.facts.may_store(agent)):
            return ()
        wait_s = 0.0 if is_run else SETTLE_SECONDS
        if sleeps:
            wait_s = agent.config.sleep.settle
        payload = {"conversationId": conversation.id}
        return self._changes(conversation.id, payload, wait_s)

    def after_chain(self, chain: Chain, agent: AgentRecord) -> Sequence[RecordChange]:
        """Return the changes to write with the end of a chain: its job, if anything could be stored."""
        if not self.facts.may_store(agent):
            return ()
        return self._changes(chain.id, {"chainId": chain.id}, 0.0)

    def _changes(
        self, subject: str, about: Mapping[str, str], wait_s: float
    ) -> Sequence[RecordChange]:
        payload = {
            "accountId": self.principal.account_id,
            "userId": self.principal.user_id,
            **about,
        }
        due = self.clock.now() + timedelta(seconds=wait_s)
        return self.jobs.wanted_anew(Job(learning_job(subject), LEARN, due, payload))


def first_entry(conversation: Conversation) -> int:
    """Return the entry behind which the first pass reads. A fork begins with what was read before."""
    number = (conversation.forked_from or "").partition(" ")[2]
    return int(number) if number.isdecimal() else 0


def chain_text(runs: RunRecords, chain: Chain, last_output: str | None = None) -> str:
    """Return the text of a chain: the task, and the output of each step.

    `last_output` is the output of the last step, if it is not stored yet.
    """
    found = (runs.find(chain.run_id(step)) for step in range(len(chain.agents)))
    outputs = [run.reply or "" for run in found if run is not None]
    if last_output is not None:
        outputs[-1:] = [last_output]
    return lines_of([("user", chain.task), *(("assistant", output) for output in outputs)])


def rewrites_blocks(agent: AgentRecord, *, asked: bool = False) -> bool:
    """Return True if passes rewrite the user's blocks: the agent's setting says so, or a person asks."""
    return (asked or agent.config.sleep.enabled) and agent.config.private != "off"
