"""Messages of a transcript as the context uses them, each with its turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.messages.message import Message, Text, ToolResult
from workspaces.ids import TurnId


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    number: int
    """The number of the message's entry in the transcript."""
    turn: TurnId
    message: Message
    reminder: str = ""
    """The text that only the model sees beside the message; empty without one."""

    @property
    def shown(self) -> Message:
        """Return the message as the model sees it, with its reminder."""
        if not self.reminder:
            return self.message
        return Message(self.message.role, (*self.message.parts, Text(self.reminder)))

    @property
    def is_plain(self) -> bool:
        """Return True for a user's message without tool results. A history can be cut before such a
        message."""
        return is_plain(self.message)


def is_plain(message: Message) -> bool:
    if message.role != "user" or any(isinstance(part, ToolResult) for part in message.parts):
        return False
    return any(isinstance(part, Text) and part.text.strip() for part in message.parts)


def turns_of(history: Iterable[HistoryMessage]) -> list[Sequence[HistoryMessage]]:
    """Return the messages grouped by turn, in order."""
    return [list(turn) for _, turn in groupby(history, key=lambda one: one.turn)]
