"""The revisions of a workspace as a person reads them: by author, by conversation, and why.

Consecutive revisions of one author in one conversation, or from one other source, are one chapter. The reason
for a turn's writes is the message that started the turn. It stands in the transcript, so it is shown only to
the owner of that conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    """Consecutive revisions of one author from one source."""

    author: str
    account: str
    """The source: a conversation, edits by hand, or another writer."""
    day: str
    revisions: list[Revision] = field(default_factory=list[Revision])


def chapters(revisions: Iterable[Revision]) -> list[Chapter]:
    """Return the chapters, in the order of the revisions."""
    result: list[Chapter] = []
    for revision in revisions:
        author, account, day = revision.author, account_of(revision), revision.at[:10]
        last = result[-1] if result else None
        if last is None or (last.author, last.account, last.day) != (author, account, day):
            last = Chapter(author, account, day)
            result.append(last)
        last.revisions.append(revision)
    return result


def account_of(revision: Revision) -> str:
    return account_of_trailers(revision.trailers)


def account_of_trailers(trailers: Mapping[str, str]) -> str:
    """Return the source of a revision in words: its conversation, or another way of writing."""
    _, _, key = trailers.get("Conversation", "").partition(" ")
    if key:
        return f"conversation {key}"
    source = trailers.get("Source", "")
    return _HOW.get(source, source)


class TurnReasons:
    """The messages that started turns. Each conversation is read once."""

    def __init__(self, conversations: Callable[[], Conversations]) -> None:
        """Create the reader. `conversations` returns those of the person who reads. It is called when a
        revision names a conversation."""
        self._conversations = conversations
        self._read: dict[str, dict[str, str]] = {}

    def why(self, revision: Revision) -> str | None:
        """Return the message that led to this revision.

        Return None when it is unknown, or the reader may not see it.
        """
        conversation = revision.trailers.get("Conversation", "").partition(" ")[0]
        turn = revision.trailers.get("Turn")
        if not (conversation and turn):
            return None
        if conversation not in self._read:
            self._read[conversation] = self._messages_of(conversation)
        return self._read[conversation].get(turn)

    def _messages_of(self, conversation: str) -> dict[str, str]:
        messages: dict[str, str] = {}
        try:
            mine = self._conversations().get(conversation)
        except NotFound:
            return messages
        for entry in self._conversations().transcript(mine).entries():
            if entry.message.role == "user" and entry.message.text:
                line = one_line(entry.message.text)
                is_long = len(line) > WHY_CHARACTERS_MAX
                cut = f"{line[: WHY_CHARACTERS_MAX - 1]}…" if is_long else line
                messages.setdefault(entry.turn_id, cut)
        return messages
