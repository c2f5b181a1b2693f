"""What was said, as the context takes it from a transcript: messages, each with the turn that it is of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.messages.message import Message, Text, ToolResult
from workspaces.ids import TurnId


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    number: int
    """Of its entry."""
    turn: TurnId
    message: Message

    @property
    def is_plain(self) -> bool:
        """A user's message and no answer of tools: before such a one a history can be cut."""
        return is_plain(self.message)


def is_plain(message: Message) -> bool:
    if message.role != "user" or any(isinstance(part, ToolResult) for part in message.parts):
        return False
    return any(isinstance(part, Text) and part.text.strip() for part in message.parts)


def turns_of(said: Iterable[HistoryMessage]) -> list[Sequence[HistoryMessage]]:
    """What was said, turn by turn."""
    return [list(turn) for _, turn in groupby(said, key=lambda one: one.turn)]
