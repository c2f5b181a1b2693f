"""What a job of `learning_jobs` does: it reads what is new in a conversation, or a chain."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from harness.agents.catalog import AgentCatalog
from harness.conversations.conversation import Conversation, Conversations
from harness.jobs.job import Job
from harness.learning.learner import Learner, PassReport, PassWish, Subject
from harness.learning.learning_jobs import chain_text, first_entry
from harness.learning.new_text import NewText, new_text
from harness.messages.event import RUN_PREFIX
from harness.runs.run_records import RunRecords
from harness.runtime.async_bridge import run_in_thread
from workspaces.clock import Clock
from workspaces.errors import NotFound
from workspaces.ids import ConversationId

LEARNING_AT_ONCE_MAX = 2
"""Passes that one server runs at once: a hundred conversations that end together are read one after the
other."""

PAUSE_S = 60.0
"""Seconds until the next try when the provider does not answer; they double with each one."""

USAGE_PREFIX = "memory-extract:"
CHAIN_DIGITS = 8


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
