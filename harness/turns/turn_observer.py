"""The port through which other parts take part in the batches that begin and end a turn.

A turn writes its first entry in one batch, and its end in another. An observer adds changes to both. So a
record that tells of the turn changes at the same instant as the turn itself, whichever process dies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.context.receipt import ShownPart
from harness.conversations.conversation import Conversation
from harness.messages.event import Event
from harness.tools.port import AnyTool
from harness.transcripts.outcome import Ending
from harness.transcripts.session import Session
from harness.transcripts.transcript import Entry
from workspaces.ids import TurnId
from workspaces.storage.records import RecordChange


class TurnObserver:
    """An observer of the turns of one principal, which changes nothing. Threads may share it."""

    def wants_new_session(self, conversation: Conversation, session: Session) -> bool:
        """Return True if the next turn of this conversation must begin a new session.

        `session` is the newest session of the conversation.
        """
        del conversation, session
        return False

    def may_replace_session(self, conversation: Conversation) -> bool:
        """Return True if a session that cannot be read is replaced by a new one."""
        del conversation
        return False

    def tools(self, conversation: Conversation, event: Event) -> tuple[AnyTool, ...]:
        """Return tools for the turn of this event alone. It raises Failure if the turn must not begin."""
        del conversation, event
        return ()

    def instructions(self, conversation: Conversation, event: Event) -> str | None:
        """Return the harness's instructions for the turn of this event alone."""
        del conversation, event
        return None

    def shown(self, conversation: Conversation, event: Event) -> tuple[ShownPart, ...]:
        """Return the parts of memory that the event's own message shows, for the receipts of its turn."""
        del conversation, event
        return ()

    def hides_fact(self, conversation: Conversation, event: Event) -> Callable[[str], bool] | None:
        """Return a test for the keys of the agent's facts that this turn shows elsewhere.

        None: all are shown.
        """
        del conversation, event
        return None

    def begins(
        self, conversation: Conversation, event: Event, turn_id: TurnId, session: Session
    ) -> tuple[RecordChange, ...]:
        """Return changes to write with the turn's first entry. Each may have a condition.

        If a condition fails, the beginning is tried again from the start.
        """
        del conversation, event, turn_id, session
        return ()

    def ends(
        self, conversation: Conversation, event: Event, ending: Ending, own: Sequence[Entry]
    ) -> tuple[RecordChange, ...]:
        """Return changes to write with the end of a turn, or with its pause. `own` are its entries.

        If a condition fails, this is called again.
        """
        del conversation, event, ending, own
        return ()


@dataclass(frozen=True, slots=True)
class TurnObservers(TurnObserver):
    """Several observers as one. Their changes are one batch."""

    find: Callable[[], tuple[TurnObserver, ...]]
    """Returns the observers. It is called when a turn is there to be observed."""

    @property
    def observers(self) -> tuple[TurnObserver, ...]:
        return self.find()

    def wants_new_session(self, conversation: Conversation, session: Session) -> bool:
        return any(one.wants_new_session(conversation, session) for one in self.observers)

    def may_replace_session(self, conversation: Conversation) -> bool:
        return any(one.may_replace_session(conversation) for one in self.observers)

    def tools(self, conversation: Conversation, event: Event) -> tuple[AnyTool, ...]:
        return tuple(tool for one in self.observers for tool in one.tools(conversation, event))

    def instructions(self, conversation: Conversation, event: Event) -> str | None:
        texts = (one.instructions(conversation, event) for one in self.observers)
        return "\n\n".join(text for text in texts if text) or None

    def shown(self, conversation: Conversation, event: Event) -> tuple[ShownPart, ...]:
        return tuple(part for one in self.observers for part in one.shown(conversation, event))

    def hides_fact(self, conversation: Conversation, event: Event) -> Callable[[str], bool] | None:
        found = [
            hides
            for one in self.observers
            if (hides := one.hides_fact(conversation, event)) is not None
        ]
        return (lambda key: any(hides(key) for hides in found)) if found else None

    def begins(
        self, conversation: Conversation, event: Event, turn_id: TurnId, session: Session
    ) -> tuple[RecordChange, ...]:
        return tuple(
            change
            for one in self.observers
            for change in one.begins(conversation, event, turn_id, session)
        )

    def ends(
        self, conversation: Conversation, event: Event, ending: Ending, own: Sequence[Entry]
    ) -> tuple[RecordChange, ...]:
        return tuple(
            change
            for one in self.observers
            for change in one.ends(conversation, event, ending, own)
        )
