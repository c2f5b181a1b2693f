"""When conversations and chains are read, and by which job.

A job is enqueued in the batch that ends a turn, a run or a chain. For chat it is due after a time of quiet: a
further turn moves it, so one pass reads many turns. Runs and chains are read at once. A chain is read as a
whole, and its steps are not read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from harness.agents.catalog import AgentCatalog
from harness.agents.record import SETTLE_SECONDS, AgentRecord
from harness.conversations.conversation import Conversation, Conversations, learning_job
from harness.jobs.job import Job, Jobs
from harness.learning.fact_places import LearnedFacts
from harness.learning.learner import Learner, PassReport, PassWish, Subject, rewrites_blocks
from harness.learning.new_text import NewText, lines_of, new_text
from harness.messages.event import RUN_PREFIX
from harness.runs.chain_record import Chain
from harness.runs.run_records import RunRecords
from harness.runtime.async_bridge import run_in_thread
from workspaces.accounts.principal import Principal
from workspaces.clock import Clock
from workspaces.errors import NotFound
from workspaces.ids import ConversationId
from workspaces.storage.records import RecordChange

LEARN = "learn"
"""Kind of the job that reads a conversation, or a chain."""

LEARNING_AT_ONCE_MAX = 2
"""Passes that one server runs at once: a hundred conversations that end together are read one after the
other."""

PAUSE_S = 60.0
"""Seconds until the next try when the provider does not answer; they double with each one."""

USAGE_PREFIX = "memory-extract:"
CHAIN_DIGITS = 8


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


@dataclass(frozen=True, slots=True)
class Learning:
    """What is learned in the background from what one user said."""

    learner: Learner
    agents: AgentCatalog
    conversations: Conversations
    runs: RunRecords
    clock: Clock

    async def read(self, conversation: Conversation, wish: PassWish) -> PassReport:
        """Read what is new in a conversation.

        Raises: NotFound for an agent that was deleted; Busy while another process reads it.
        """
        return await self.learner.learn(await run_in_thread(self._subject, conversation), wish)

    async def do_job(self, job: Job) -> datetime | None:
        """Do the pass of a job. Return when to try again, if a turn runs or the provider does not answer.

        Raises: Busy while the pass cannot be done; NotFound if what it reads was deleted; Unavailable.
        """
        if await run_in_thread(self._is_in_use, job):
            return self.clock.now() + timedelta(seconds=PAUSE_S)
        subject = await run_in_thread(self._subject_of_job, job)
        report = await self.learner.learn(subject, PassWish())
        if report.status != "later":
            return None
        return self.clock.now() + timedelta(seconds=PAUSE_S * 2 ** (report.tries - 1))

    def _is_in_use(self, job: Job) -> bool:
        """Return True while a turn runs in the conversation, so that half of it would be read."""
        conversation_id = job.payload.get("conversationId")
        if conversation_id is None:
            return False
        return self.conversations.is_in_use(self.conversations.get(str(conversation_id)))

    def _subject_of_job(self, job: Job) -> Subject:
        if "chainId" in job.payload:
            return self._chain_subject(str(job.payload["chainId"]))
        return self._subject(self.conversations.get(str(job.payload["conversationId"])))

    def _subject(self, conversation: Conversation) -> Subject:
        agent = self.agents.get(conversation.agent_id)
        transcript = self.conversations.transcript(conversation)

        def read(after: int) -> NewText:
            return new_text(transcript, after, self._is_of_chain)

        return Subject(
            id=conversation.id,
            agent=agent,
            usage_id=ConversationId(f"{USAGE_PREFIX}{transcript.session().id}"),
            trailers={"Conversation": f"{conversation.id} {conversation.key}"},
            read=read,
            exists=conversation.exists,
            first=first_entry(conversation),
        )

    def _chain_subject(self, chain_id: str) -> Subject:
        chain = self.runs.chains.find(chain_id)
        if chain is None:
            raise NotFound("chain", chain_id)
        digits = chain.id.partition("_")[2][:CHAIN_DIGITS]

        def read(after: int) -> NewText:
            return NewText("" if after else chain_text(self.runs, chain), 1)

        return Subject(
            id=chain.id,
            agent=self.agents.get(chain.agents[0]),
            usage_id=ConversationId(f"{USAGE_PREFIX}chain:{digits}"),
            trailers={"Chain": chain.id},
            read=read,
        )

    def _is_of_chain(self, event_id: str) -> bool:
        if not event_id.startswith(RUN_PREFIX):
            return False
        run = self.runs.find(event_id.removeprefix(RUN_PREFIX))
        return run is not None and run.chain_id is not None


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
