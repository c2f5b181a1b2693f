"""An observer of turns: it enqueues what is to be read, and gives learnings to the steps of chains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.agents.catalog import AgentCatalog
from harness.context.receipt import ShownPart
from harness.conversations.conversation import Conversation, Conversations
from harness.learning.learning import LearningJobs
from harness.learning.learnings import Learnings, RecordLearning, is_learning
from harness.learning.new_text import CHARACTERS_MIN, lines_of
from harness.messages.event import RUN_PREFIX, SHARED_KEY, Event
from harness.runs.chain_record import Chain
from harness.runs.run import Run
from harness.runs.run_records import RunRecords
from harness.tools.port import AnyTool
from harness.transcripts.outcome import Ending
from harness.turns.turn_observer import Unobserved
from workspaces.errors import NotFound
from workspaces.storage.records import RecordChange


@dataclass(frozen=True, slots=True)
class LearningTurns(Unobserved):
    """The observer of the turns of one principal."""

    jobs: LearningJobs
    learnings: Learnings
    agents: AgentCatalog
    conversations: Conversations
    runs: RunRecords

    def tools(self, conversation: Conversation, event: Event) -> tuple[AnyTool, ...]:
        """Return `record_learning` for the step of a chain."""
        chain = self._chain_of(event)
        if chain is None:
            return ()
        del conversation
        return (RecordLearning(lambda learning, by: self.learnings.record(chain, learning, by)),)

    def instructions(self, conversation: Conversation, event: Event) -> str | None:
        """Return the learnings that the step of a chain is shown."""
        del conversation
        chain = self._chain_of(event)
        return None if chain is None else self.learnings.shown(chain)

    def shown(self, conversation: Conversation, event: Event) -> tuple[ShownPart, ...]:
        """Return the part with the learnings, for the receipts of the step."""
        del conversation
        chain = self._chain_of(event)
        text = None if chain is None else self.learnings.shown(chain)
        if chain is None or text is None:
            return ()
        rows = tuple(fact.id for fact in self.learnings.newest(chain))
        return (ShownPart("learnings", None, len(text.encode()), rows=rows),)

    def hides_fact(self, conversation: Conversation, event: Event) -> Callable[[str], bool] | None:
        """Return a test for learnings, where they have their own part of the prompt."""
        del conversation
        return None if self._chain_of(event) is None else is_learning

    def ends(
        self, conversation: Conversation, event: Event, ending: Ending
    ) -> tuple[RecordChange, ...]:
        """Return the job that reads the conversation. The steps of a chain are read with the chain."""
        if ending.status in ("waiting", "failed", "interrupted"):
            return ()
        run = self._run_of(event)
        try:
            if run is not None and run.chain_id is not None:
                return self._after_step(run)
            if run is not None and not self._is_long(conversation, ending):
                return ()
            agent = self.agents.get(conversation.agent_id)
        except NotFound:  # the agent was deleted while the turn ran
            return ()
        return tuple(self.jobs.after_turn(conversation, agent, is_run=run is not None))

    def _after_step(self, run: Run) -> tuple[RecordChange, ...]:
        """Return the job of a chain that ends with its last run. Other chains end by themselves."""
        chain = self.runs.chains.find(run.chain_id or "")
        if (
            chain is None
            or chain.re_examines is None
            or run.id != chain.run_id(len(chain.agents) - 1)
        ):
            return ()
        return tuple(self.jobs.after_chain(chain, self.agents.get(chain.agents[0])))

    def _is_long(self, conversation: Conversation, ending: Ending) -> bool:
        """Return True if a run said enough to be read. Chat may have been before it in its conversation."""
        if conversation.key == SHARED_KEY:
            return True
        entries = self.conversations.transcript(conversation).entries(ending.first, ending.last)
        said = ((one.message.role, one.message.text) for one in entries if one.is_said)
        return len(lines_of(said)) >= CHARACTERS_MIN

    def _chain_of(self, event: Event) -> Chain | None:
        """Return the chain of which an event is a step."""
        run = self._run_of(event)
        if run is None or run.chain_id is None:
            return None
        return self.runs.chains.find(run.chain_id)

    def _run_of(self, event: Event) -> Run | None:
        if not event.id.startswith(RUN_PREFIX):
            return None
        return self.runs.find(event.id.removeprefix(RUN_PREFIX))
