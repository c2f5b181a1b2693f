"""Keep the records of runs and of active memory in step with the turns of a principal.

All changes are part of the batches that begin and end a turn, under the lease of its conversation. So the
shared session moves at most once for each turn, and a run has ended exactly when its turn has.

A run that does not succeed leaves its entries in the shared conversation, where people can read them. The
session skips them: the next turn resumes the state from before that run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from harness.agents.catalog import AgentCatalog
from harness.context.receipt import DECISION, ShownPart
from harness.conversations.conversation import Conversation, Conversations
from harness.messages.event import RUN_PREFIX, SHARED_KEY, Event
from harness.runs.active_memory import (
    ActiveMemories,
    BegunTurn,
    session_of_state,
    session_state,
)
from harness.runs.run import Run, RunError, ended
from harness.runs.run_records import RunRecords
from harness.runtime.templates import render
from harness.tools.port import AnyTool
from harness.transcripts.approval import accepted_call
from harness.transcripts.outcome import Ending, outcome_of
from harness.transcripts.session import Session
from harness.transcripts.transcript import Entry
from harness.turns.turn_observer import TurnObserver
from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound
from workspaces.ids import RunId, TurnId
from workspaces.revision import RevisionId
from workspaces.storage.records import RecordChange
from workspaces.timestamp import stamp_of

if TYPE_CHECKING:
    from harness.runs.decisions import Decisions


class RunStopped(Failure):
    """The run was cancelled before its turn began."""

    code = "cancelled"

    def __init__(self, run_id: RunId) -> None:
        super().__init__(f"the run {run_id} was cancelled before it began")


@dataclass(frozen=True, slots=True)
class RunTurns(TurnObserver):
    """An observer of turns for the runs of one principal."""

    runs: RunRecords
    memories: ActiveMemories
    conversations: Conversations
    agents: AgentCatalog
    decisions: Callable[[], Decisions]
    clock: Clock

    def tools(self, conversation: Conversation, event: Event) -> tuple[AnyTool, ...]:
        """Return the tool that ends a run with a result, and the one that lists the agent's decisions.

        Raises: CardMissing; RunStopped for the event of a run that was cancelled.
        """
        agent, run = self.agents.get(conversation.agent_id), self._run_of(conversation, event)
        found: list[AnyTool] = []
        if (
            run is not None
            and not run.is_final
            and (submit := self.decisions().submit_tool(run, agent))
        ):
            found.append(submit)
        if agent.config.review_decisions and self._is_owner(conversation):
            from harness.runs.result_tools import GetMyDecisions

            found.append(GetMyDecisions(partial(self.decisions().told, agent.id)))
        return tuple(found)

    def instructions(self, conversation: Conversation, event: Event) -> str | None:
        """Return the guidance to look at earlier decisions first, for runs of an agent that wants it."""
        if self._run_of(conversation, event) is None:
            return None
        agent = self.agents.get(conversation.agent_id)
        return render("runs/decisions-first.md") if agent.config.review_decisions else None

    def shown(self, conversation: Conversation, event: Event) -> tuple[ShownPart, ...]:
        """Return the slots of the decision that the prompt of a re-examination shows."""
        run = self._run_of(conversation, event)
        review = None if run is None else run.review
        if run is None or not review:
            return ()
        revision = review.get("revision")
        return tuple(
            ShownPart(
                f"{DECISION}{run.parent_id}:{one['slot']}",
                RevisionId(revision) if revision else None,
                one["bytes"],
            )
            for one in review.get("shown", ())
        )

    def _is_owner(self, conversation: Conversation) -> bool:
        return conversation.user_id == self.runs.principal.owner.id

    def wants_new_session(self, conversation: Conversation, session: Session) -> bool:
        """Return True if active memory is on and has no state of this session to resume."""
        if conversation.key != SHARED_KEY:
            return False
        state = self.memories.state(conversation.agent_id)
        return state.is_enabled and not _is_of(state.session_id, session)

    def may_replace_session(self, conversation: Conversation) -> bool:
        if conversation.key != SHARED_KEY:
            return False
        return self.memories.state(conversation.agent_id).is_enabled

    def begins(
        self, conversation: Conversation, event: Event, turn_id: TurnId, session: Session
    ) -> tuple[RecordChange, ...]:
        """Return the changes for the beginning of a turn.

        Raises: RunStopped for the event of a run that was cancelled; NotFound if it was lost with its
        conversation.
        """
        changes: list[RecordChange] = []
        before = None
        if conversation.key == SHARED_KEY:
            state = self.memories.state(conversation.agent_id)
            note = BegunTurn(turn_id, state.generation, session.window_from, session.summary)
            changes.append(self.memories.note(conversation.agent_id, note))
            before = state.session_id if _is_of(state.session_id, session) else None
        run = self._run_of(conversation, event)
        if run is not None:
            if run.stop is not None or run.is_final:
                raise RunStopped(run.id)
            if run.turn_id is not None:  # its turn began in a conversation that was deleted since
                raise NotFound("conversation", str(run.conversation_id))
            begun = replace(
                run,
                status="running",
                conversation_id=conversation.id,
                turn_id=turn_id,
                session_before=before,
                started_at=stamp_of(self.clock.now()),
            )
            changes.append(self.runs.put(begun))
        return tuple(changes)

    def ends(
        self, conversation: Conversation, event: Event, ending: Ending, own: Sequence[Entry]
    ) -> tuple[RecordChange, ...]:
        """Return the changes for the end of a turn, or for its pause."""
        run = self._run_of(conversation, event)
        now = stamp_of(self.clock.now())
        if ending.status == "waiting":
            paused = () if run is None else (replace(run, waiting_since=now),)
            return tuple(self.runs.put(one) for one in paused)
        changes: list[RecordChange] = []
        after = None
        if run is not None and not run.is_final:
            outcome = outcome_of(ending, conversation.id, own)
            reply, is_done = outcome.reply, run
            run = ended(run, ending, outcome.usage, reply, now)
            if run.status == "succeeded":
                run = self._with_result(run, is_done, own)
            after = self._state_after(conversation, ending)
            run = replace(run, session_after=after if run.status == "succeeded" else None)
            changes += [self.runs.put(run), *self.runs.left(run)]
        if conversation.key == SHARED_KEY:
            changes += self._moved(conversation, ending, run)
        return tuple(changes)

    def _moved(
        self, conversation: Conversation, ending: Ending, run: Run | None
    ) -> Iterable[RecordChange]:
        """Return the changes of the shared session at the end of a turn."""
        state = self.memories.state(conversation.agent_id)
        begun = self.memories.begun(conversation.agent_id)
        if begun is None or begun.turn_id != ending.turn_id:
            return ()  # the turn began before this conversation was observed
        if run is not None and run.status != "succeeded":
            return self._skipped(conversation, ending, begun)
        if begun.generation != state.generation:
            return ()  # a reset came while the turn ran, and wins
        if run is None and not state.is_enabled:
            return ()  # chat with active memory off
        moved = replace(
            state,
            session_id=self._state_after(conversation, ending),
            updated_at=stamp_of(self.clock.now()),
            runs=state.runs + (run is not None and run.source != "re_examine"),
        )
        return (self.memories.put(conversation.agent_id, moved),)

    def _skipped(
        self, conversation: Conversation, ending: Ending, begun: BegunTurn
    ) -> Iterable[RecordChange]:
        """Return the change that leaves a run's entries, and a summary among them, out of the context."""
        transcript = self.conversations.transcript(conversation)
        session = transcript.session()
        if not session.first <= ending.first:
            return ()
        session = replace(
            session,
            window_from=begun.window_from,
            summary=begun.summary,
            skipped=(*session.skipped, (ending.first, ending.last)),
        )
        return (transcript.session_put(session),)

    def _state_after(self, conversation: Conversation, ending: Ending) -> str:
        session = self.conversations.transcript(conversation).session()
        return session_state(session.id, ending.last)

    def _with_result(self, run: Run, before: Run, own: Sequence[Entry]) -> Run:
        """Return a succeeded run with its result. A run that should have one and has none has failed."""
        from harness.memory.decisions.decision import stored_decision
        from harness.runs.result_tools import SUBMIT

        agent = self.agents.get(run.agent_id)
        call = accepted_call(own, SUBMIT)
        if call is not None:
            result = self.decisions().result_of(before, agent, call.input)
            said = (one.message.text for one in own if one.message.role == "assistant")
            reply = "\n\n".join(text for text in said if text)
            if not reply and "card" in result:
                reply = stored_decision(run.id, result).line
            return replace(run, result=result, reply=reply or None)
        if run.parent_id is None and agent.config.card is None:
            return run
        error = RunError("no_result", "the run ended without a result")
        return replace(run, status="failed", error=error)

    def _run_of(self, conversation: Conversation, event: Event) -> Run | None:
        """Return the run whose event this is, if it is one."""
        if not event.id.startswith(RUN_PREFIX):
            return None
        run = self.runs.find(event.id.removeprefix(RUN_PREFIX))
        if run is None or run.agent_id != conversation.agent_id:
            return None
        return run if run.conversation_key == conversation.key else None


def _is_of(state: str | None, session: Session) -> bool:
    """Return True if this is a state of the session."""
    return state is not None and session_of_state(state) == session.id
