"""The reader of this home's own conversations, as a provider like the others.

An entry is a line: it is counted from 0 here, and from 1 in the transcript. What a model said and the tools
that it called are two messages of one line. Summaries and what was written down before them were not said,
so they are not shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from harness.conversations.conversation import Conversation, Conversations
from harness.conversations.export import entry_line
from harness.memorize.local.local_message import (
    LocalConversation,
    LocalMessage,
    SaidPart,
    WholeConversation,
    raw_event_text,
    shown_title,
)
from harness.messages.message import Text, ToolCall, ToolResult
from harness.transcripts.transcript import Entry
from workspaces.errors import NotFound


@dataclass(frozen=True, slots=True)
class OwnConversations:
    """The conversations of one principal with the agents of this home."""

    conversations: Conversations

    def list(self) -> Iterator[LocalConversation]:
        """Yield the conversations, the newest first."""
        for conversation in self.conversations.list():
            yield self._about(conversation)

    def find(self, conversation_id: str) -> WholeConversation | None:
        """Return the conversation with this id, if it is the principal's."""
        try:
            conversation = self.conversations.get(conversation_id)
        except NotFound:
            return None
        transcript = self.conversations.transcript(conversation)

        def messages() -> Iterator[LocalMessage]:
            position = 1
            for entry in transcript.entries():
                for part in _said(entry) if entry.is_said else ():
                    yield part.message(position, entry.number - 1)
                    position += 1

        def raw_event(index: int) -> str | None:
            entry = next(transcript.entries(index + 1, index + 1), None)
            return None if entry is None else raw_event_text(entry_line(entry))

        return WholeConversation(self._about(conversation), messages, raw_event)

    def _about(self, conversation: Conversation) -> LocalConversation:
        transcript = self.conversations.transcript(conversation)
        first, newest = transcript.page(1, after=None), transcript.newest()
        return LocalConversation(
            conversation.id,
            "harness",
            shown_title(first[0].message.text if first else conversation.key),
            None,
            newest.at if newest is not None else conversation.created_at,
        )


def _said(entry: Entry) -> Iterator[SaidPart]:
    """Yield what an entry says: text, then calls, then results."""
    message, uuid = entry.message, f"entry-{entry.number}"
    texts = [part.text for part in message.parts if isinstance(part, Text) and part.text.strip()]
    if texts:
        yield SaidPart(message.role, "message", uuid, entry.at, "\n\n".join(texts))
    calls = [
        f"{part.name} {json.dumps(part.input, ensure_ascii=False)}"
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    if calls:
        yield SaidPart("assistant", "tool_call", uuid, entry.at, "\n".join(calls))
    results = [part.text for part in message.parts if isinstance(part, ToolResult)]
    if results:
        yield SaidPart("user", "tool_result", uuid, entry.at, "\n\n".join(results))
