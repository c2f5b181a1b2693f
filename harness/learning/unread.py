"""The length of what no pass has read yet, of the conversations that this process knows.

The end of every turn asks for it, so it is kept in memory and only grows by the turn's own text. It is read
from the store if another process has written to the conversation since, or if it is not known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from harness.learning.new_text import CHARACTERS_MIN, text_of
from harness.transcripts.transcript import Entry

KNOWN_MAX = 10_000
"""Conversations that are known at most: two numbers each."""


class UnreadText:
    """The lengths of several conversations. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int, int]] = {}
        """The newest entry of each conversation, and the length up to it."""

    def is_enough(
        self, conversation_id: str, first: int, own: Sequence[Entry], read: Callable[[], int]
    ) -> bool:
        """Return True if a turn's entries, with what was unread before them, are worth a pass.

        `first` is the entry behind which the conversation's first pass reads. `read` returns the length from
        the store.
        """
        if not own:
            return False
        length, begin = len(text_of(own)), own[0].number
        if length < CHARACTERS_MIN and begin > first + 1:
            with self._lock:
                newest, before = self._known.get(conversation_id, (0, 0))
            length = before + 1 + length if newest + 1 == begin else read()
        with self._lock:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[conversation_id] = own[-1].number, min(length, CHARACTERS_MIN)
        return length >= CHARACTERS_MIN

    def forget(self, conversation_id: str) -> None:
        """Forget a conversation that was read."""
        with self._lock:
            self._known.pop(conversation_id, None)
