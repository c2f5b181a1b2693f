"""Stored results: the full text of tool results that were shortened, by the id of the call, for
`read_result`.

A result that the tool itself shortened is stored beside the conversation. A result that the context shortened
later is in the transcript, and is read from there.
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
"""Characters of a result, head and tail together: the same as for the output of a command."""


class StoredResults:
    """The stored results of one conversation. Results of other conversations cannot be named."""

    def __init__(
        self,
        conversation_id: ConversationId,
        blobs: BlobStore,
        find_answer: Callable[[str], str | None] | None = None,
    ) -> None:
        """Open the results. `find_answer` returns the answer to a call from the transcript."""
        self._conversation_id = conversation_id
        self._blobs = blobs
        self._find_answer = find_answer

    def keep(self, call_id: str, text: str) -> None:
        self._blobs.write(self._name(call_id), text.encode(), expect=ANY)

    def read(self, call_id: str) -> str:
        """Return the full result of a call.

        Raises: NotFound if there is none.
        """
        try:
            return self._blobs.read(self._name(call_id)).data.decode()
        except NotFound:
            text = None if self._find_answer is None else self._find_answer(call_id)
        if text is None:
            raise NotFound("result", call_id)
        return text

    def stored_lookup(self) -> Callable[[str], str | None]:
        """Return a function that returns the stored result of a call, None for most. The names of stored
        results are listed once, for all calls."""
        stored_names = {stat.name for stat in self._blobs.scan(f"{self._conversation_id}/results/")}

        def stored_result(call_id: str) -> str | None:
            name = self._name(call_id)
            return self._blobs.read(name).data.decode() if name in stored_names else None

        return stored_result

    def shorten(self, call_id: str, text: str) -> str:
        """Return the text for the model: the whole result, or its head and tail with a note on where to read
        the middle. A shortened result is stored."""
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
        """Return the name of a blob. A call's id comes from the provider and may be any text, so it is
        hashed."""
        digits = sha256(call_id.encode(errors="replace")).hexdigest()[:NAME_DIGITS]
        return f"{self._conversation_id}/results/{digits}.txt"
