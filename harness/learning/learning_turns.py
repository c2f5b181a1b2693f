"""An observer of turns: it enqueues what is to be read, and gives learnings to the steps of chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.agents.catalog import AgentCatalog
from harness.context.receipt import ShownPart
from harness.conversations.conversation import Conversation, Conversations
from harness.learning.learning_jobs import LearningJobs, chain_text, first_entry
from harness.learning.new_text import CHARACTERS_MIN, length_behind
from harness.learning.pass_records import PassRecords
from harness.learning.unread import UnreadText
from harness.messages.event import RUN_PREFIX, Event
from harness.runs.chain_record import Chain
from harness.runs.run import Run
from harness.runs.run_records import RunRecords
from harness.tools.port import AnyTool
from harness.transcripts.outcome import Ending
from harness.transcripts.transcript import Entry
from harness.turns.turn_observer import TurnObserver
from workspaces.errors import NotFound
from workspaces.storage.records import RecordChange

if TYPE_CHECKING:
    from harness.learning.learnings import Learnings


@dataclass(frozen=True, slots=True)
class LearningTurns(TurnObserver):
    """The observer of the turns of one principal."""

    jobs: LearningJobs
    learnings: Callable[[], Learnings]
    agents: AgentCatalog
    conversations: Conversations
    runs: RunRecords
    records: PassRecords
    unread: UnreadText

    def tools(self, conversation: Conversation, event: Event) -> tuple[AnyTool, ...]:
        """Return `record_learning` for the step of a chain."""
        chain = self._chain_of(event)
        if chain is None:
            return ()
        del conversation
        from harness.learning.learnings import RecordLearning

        keep = self.learnings().record
        return (RecordLearning(lambda learning, by: keep(chain, learning, by)),)

    def instructions(self, conversation: Conversation, event: Event) -> str | None:
        """Return the learnings that the step of a chain is shown."""
        del conversation
        chain = self._chain_of(event)
        return None if chain is None else self.learnings().shown(chain)

    def shown(self, conversation: Conversation, event: Event) -> tuple[ShownPart, ...]:
        """Return the part with the learnings, for the receipts of the step."""
        del conversation
        chain = self._chain_of(event)
        text = None if chain is None else self.learnings().shown(chain)
        if chain is None or text is None:
            return ()
        rows = tuple(fact.id for fact in self.learnings().newest(chain))
        return (ShownPart("learnings", None, len(text.encode()), rows=rows),)

    def hides_fact(self, conversation: Conversation, event: Event) -> Callable[[str], bool] | None:
        """Return a test for learnings, where they have their own part of the prompt."""
        del conversation
        if self._chain_of(event) is None:
            return None
        from harness.learning.learnings import is_learning

        return is_learning

    def ends(
        self, conversation: Conversation, event: Event, ending: Ending, own: Sequence[Entry]
    ) -> tuple[RecordChange, ...]:
        """Return the job that reads the conversation, if there is enough to read.

        The steps of a chain are read with the chain.
        """
        if ending.status in ("waiting", "failed", "interrupted"):
            return ()
        run = self._run_of(event)
        try:
            if run is not None and run.chain_id is not None:
                return self._after_step(run, own)
            agent = self.agents.get(conversation.agent_id)
        except NotFound:  # the agent was deleted while the turn ran
            return ()
        changes = self.jobs.after_turn(conversation, agent, is_run=run is not None)
        return tuple(changes) if changes and self._is_enough(conversation, own) else ()

    def _after_step(self, run: Run, own: Sequence[Entry]) -> tuple[RecordChange, ...]:
        """Return the job of a chain that ends with its last run. Other chains end by themselves."""
        chain = self.runs.chains.find(run.chain_id or "")
        if chain is None or chain.re_examines is None:
            return ()
        if run.id != chain.run_id(len(chain.agents) - 1):
            return ()
        replies = (one.message.text for one in own if one.message.role == "assistant")
        text = chain_text(self.runs, chain, "\n\n".join(one for one in replies if one))
        if len(text) < CHARACTERS_MIN:
            return ()
        return tuple(self.jobs.after_chain(chain, self.agents.get(chain.agents[0])))

    def _is_enough(self, conversation: Conversation, own: Sequence[Entry]) -> bool:
        """Return True if enough was said since the last pass."""
        first = first_entry(conversation)

        def read() -> int:
            until = max(first, self.records.state(conversation.id).until)
            return length_behind(self.conversations.transcript(conversation), until)

        return self.unread.is_enough(conversation.id, first, own, read)

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
