"""Write what a running turn stores: its entries, its requests to the model, and the usage of its replies.

Each write is one batch under the lease, and durable on return. Nothing acts on an entry before it is stored.
The log saves commits in two ways, and its callers need not know how:

- Results of calls that only read wait for the next write, which usually stores the next request. After a
  crash they are read again.
- The batch that makes a turn begin stores the turn's first request too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.messages.model_request import CommitPuts
from harness.prompts.prompt_log import PromptLog, ReceiptDraft
from harness.prompts.prompt_request import PromptRequest
from harness.transcripts.transcript import Entry, Transcript
from workspaces.coordination.lease import Bid, Lease
from workspaces.errors import Conflict, LeaseLost
from workspaces.storage.records import RecordChange


class TurnLog:
    """The log of one turn. Only its runner writes to it, one write at a time."""

    def __init__(self, transcript: Transcript, prompt_log: PromptLog, right: Lease | Bid) -> None:
        """Store the dependencies. With a bid, the first write acquires the lease."""
        self.transcript = transcript
        self.prompt_log = prompt_log
        self._right = right
        self.first_request: PromptRequest | None = None
        """The turn's first request, if the batch that made the turn begin stored it. It is sent unchanged."""
        self._waiting: tuple[Entry, ...] = ()

    @property
    def lease(self) -> Lease:
        """Return the lease of the conversation.

        Raises: LeaseLost before the batch that acquires it is written.
        """
        if isinstance(self._right, Bid):
            raise LeaseLost(self._right.key)
        return self._right

    @property
    def has_waiting(self) -> bool:
        """True if there are results that the next write stores."""
        return bool(self._waiting)

    def add(self, entry: Entry) -> None:
        """Add the result of a call that only reads. The next write stores it."""
        self._waiting = (*self._waiting, entry)

    def append(
        self,
        *entries: Entry,
        receipt: ReceiptDraft | None = None,
        usage: Callable[[CommitPuts], None] | None = None,
        also: Sequence[RecordChange] = (),
    ) -> None:
        """Store all results that wait, and these entries behind them, in one batch.

        `receipt` is of a request that is about to be sent, `usage` notes that of the last entry, and `also`
        are other changes.

        Raises: LeaseLost when another process holds the conversation now; Conflict when a condition of `also`
        failed. Then nothing was written.
        """
        stored, right = (*self._waiting, *entries), self._right
        pending = None if receipt is None else self.prompt_log.prepare(receipt, right.writer)
        if not stored and pending is None:
            return
        shown = () if pending is None else pending.changes
        try:
            self._right = self.transcript.extend(stored, right, *also, *shown, note=usage)
        except Conflict as conflict:
            if conflict.name in {str(put.key) for put in shown}:
                raise LeaseLost(right.key) from conflict
            raise
        self._waiting = ()
        if pending is not None:
            self.prompt_log.mark_written(pending)
