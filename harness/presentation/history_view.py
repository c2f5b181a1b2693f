"""The revisions of a workspace as somebody reads them: by who wrote, in which conversation, and why.

Consecutive revisions of one writer on one account are one chapter. Why a turn wrote is what it was asked,
and that stands in the transcript: it is shown to the one whose conversation it was, and to nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workspaces.errors import NotFound
from workspaces.revision import Revision, one_line

if TYPE_CHECKING:
    from harness.conversations.conversation import Conversations

WHY_CHARACTERS_MAX = 120

_HOW = {"edit": "by hand", "api": "CLI or API", "sync": "by sync"}


@dataclass(slots=True)
class Chapter:
    author: str
    account: str
    """On which: a conversation, by hand, or what else wrote."""
    day: str
    revisions: list[Revision] = field(default_factory=list[Revision])


def chapters(revisions: Iterable[Revision]) -> list[Chapter]:
    """In the order of the revisions."""
    found: list[Chapter] = []
    for revision in revisions:
        author, account, day = revision.author, account_of(revision), revision.at[:10]
        last = found[-1] if found else None
        if last is None or (last.author, last.account, last.day) != (author, account, day):
            last = Chapter(author, account, day)
            found.append(last)
        last.revisions.append(revision)
    return found


def account_of(revision: Revision) -> str:
    _, _, key = revision.trailers.get("Conversation", "").partition(" ")
    if key:
        return f"conversation {key}"
    source = revision.trailers.get("Source", "")
    return _HOW.get(source, source)


class TurnReasons:
    """What turns were asked. Each conversation is read once."""

    def __init__(self, conversations: Conversations) -> None:
        """Of the reader."""
        self._conversations = conversations
        self._read: dict[str, dict[str, str]] = {}

    def why(self, revision: Revision) -> str | None:
        """None when that is not known, or not the reader's to know."""
        conversation = revision.trailers.get("Conversation", "").partition(" ")[0]
        turn = revision.trailers.get("Turn")
        if not (conversation and turn):
            return None
        if conversation not in self._read:
            self._read[conversation] = self._asked(conversation)
        return self._read[conversation].get(turn)

    def _asked(self, conversation: str) -> dict[str, str]:
        found: dict[str, str] = {}
        try:
            mine = self._conversations.get(conversation)
        except NotFound:
            return found
        for entry in self._conversations.transcript(mine).entries():
            if entry.message.role == "user" and entry.message.text:
                told = one_line(entry.message.text)
                is_long = len(told) > WHY_CHARACTERS_MAX
                cut = f"{told[: WHY_CHARACTERS_MAX - 1]}…" if is_long else told
                found.setdefault(entry.turn_id, cut)
        return found
