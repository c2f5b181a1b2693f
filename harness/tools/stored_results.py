"""Results of tools that were not shown whole, under the ids of their calls, for `read_result`.

What a tool itself had to shorten is kept beside the conversation. What the context shortened later stands
in the transcript, and is read from there.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from workspaces.conditions import ANY
from workspaces.errors import NotFound
from workspaces.ids import ConversationId
from workspaces.storage.blobs import BlobStore

NAME_DIGITS = 40
SHOWN_CHARACTERS_MAX = 64 * 1024
"""Of a result, its head and its tail together: as much as of what a command printed."""


class StoredResults:
    """Of one conversation: what another one kept cannot be named."""

    def __init__(
        self,
        conversation_id: ConversationId,
        blobs: BlobStore,
        told: Callable[[str], str | None] | None = None,
    ) -> None:
        """`told` finds in the transcript what a call was answered."""
        self._conversation_id = conversation_id
        self._blobs = blobs
        self._told = told

    def keep(self, call_id: str, text: str) -> None:
        self._blobs.write(self._name(call_id), text.encode(), expect=ANY)

    def read(self, call_id: str) -> str:
        """NotFound."""
        try:
            return self._blobs.read(self._name(call_id)).data.decode()
        except NotFound:
            told = None if self._told is None else self._told(call_id)
        if told is None:
            raise NotFound("result", call_id)
        return told

    def kept(self) -> Callable[[str], str | None]:
        """What was kept of a call's result, None for most. What there is is looked up once, for all calls."""
        there = {stat.name for stat in self._blobs.scan(f"{self._conversation_id}/results/")}

        def found(call_id: str) -> str | None:
            name = self._name(call_id)
            return self._blobs.read(name).data.decode() if name in there else None

        return found

    def shown(self, call_id: str, text: str) -> str:
        """What the model is shown of a result: whole, or head and tail with where the middle is kept."""
        if len(text) <= SHOWN_CHARACTERS_MAX:
            return text
        self.keep(call_id, text)
        half = SHOWN_CHARACTERS_MAX // 2
        left_out = len(text) - 2 * half
        middle = f"(… {left_out:,} characters are left out here"
        return (
            f'{text[:half]}\n{middle}; read_result with id "{call_id}" shows the whole …)\n'
            f"{text[-half:]}"
        )

    def _name(self, call_id: str) -> str:
        """An id is the provider's and may be any text, so that it cannot be a name itself."""
        digits = sha256(call_id.encode(errors="replace")).hexdigest()[:NAME_DIGITS]
        return f"{self._conversation_id}/results/{digits}.txt"
