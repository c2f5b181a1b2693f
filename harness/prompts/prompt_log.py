"""Store the prompts that a conversation's model saw, so that they can be repeated and explained.

    shown:<conversation>   snapshot:<number>               the prompt and the tools, with their bytes
                           delta:<snapshot>:<number>       a notice of changes since, with its bytes
                           receipt:<number>                one for each request

A request is stored before it is sent, in one batch under the lease's guard: its new parts and its receipt. So
a process that resumes a turn finds each notice beside the same message. Every byte that a model may have read
is accounted for. Values too large for a record lie in the blob store with the transcript's, and are deleted
with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.context.delta import Delta, delta_of
from harness.context.receipt import (
    Receipt,
    Remark,
    RequestPurpose,
    ShownPart,
    receipt,
    receipt_of,
)
from harness.context.snapshot import ShownState, Snapshot, snapshot_of
from harness.prompts.prompt_request import PromptRequest
from harness.transcripts.large_values import LargeValues
from workspaces.conditions import ABSENT
from workspaces.errors import NotFound
from workspaces.ids import ConversationId, TurnId
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import Delete, Item, JsonObject, Key, Put, RecordStore, with_prefix
from workspaces.timestamp import moment_of, stamp_of

NUMBER_DIGITS = 12
DELETED_AT_ONCE = 100

_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class ReceiptDraft:
    """A request that is about to be sent, with what its receipt says besides."""

    prompt: PromptRequest
    turn_id: TurnId
    model: str
    remarks: tuple[Remark, ...] = ()
    purpose: RequestPurpose = "turn"
    also_shown: tuple[ShownPart, ...] = ()
    """Memory that stands in the messages."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """The records of a request that is about to be stored."""

    draft: ReceiptDraft
    receipt: Receipt
    changes: tuple[Put, ...]


class PromptLog:
    """The prompt log of one conversation. Only the lease holder may write to it."""

    def __init__(
        self, conversation_id: ConversationId, records: RecordStore, large: BlobStore
    ) -> None:
        self._conversation_id = conversation_id
        self._partition = f"shown:{conversation_id}"
        self._records = records
        self._large_values = LargeValues(conversation_id, large)
        self._held: ShownState | None = None
        self._receipts = 0
        self._is_loaded = False
        self._unavailable: set[str] = set()

    @property
    def unavailable(self) -> tuple[str, ...]:
        """The sources of memory that could not be read at some request since this log was opened."""
        return tuple(sorted(self._unavailable))

    def held(self) -> ShownState | None:
        """Return the state that the model has seen up to the newest request; None before the first."""
        if not self._is_loaded:
            self._load()
        return self._held

    def prepare(self, draft: ReceiptDraft, writer: str) -> PendingWrite:
        """Return the records to write before the request is sent.

        `writer` identifies the process that holds the lease, or bids for it.
        """
        self.held()
        prompt = draft.prompt
        new_receipt = receipt(
            number=self._receipts + 1,
            at=stamp_of(prompt.held.asked_at),
            turn_id=draft.turn_id,
            model=draft.model,
            shown=prompt.held,
            history=prompt.said,
            pruning=prompt.pruning,
            request=prompt.request,
            remarks=draft.remarks,
            purpose=draft.purpose,
            also_shown=draft.also_shown,
        )
        new_parts = [] if prompt.news is None else [self._new_part(prompt, writer)]
        put = self._put(f"receipt:{_digits(new_receipt.number)}", new_receipt.as_json(), writer)
        return PendingWrite(draft, new_receipt, (*new_parts, put))

    def mark_written(self, pending_write: PendingWrite) -> None:
        """Note that the records have been written."""
        prompt = pending_write.draft.prompt
        self._held, self._receipts = prompt.held, pending_write.receipt.number
        self._unavailable |= prompt.unavailable

    def receipts(self) -> list[Receipt]:
        found = with_prefix(self._records, self._partition, "receipt:")
        return [receipt_of(_number(item), self._large_values.value(item.value)) for item in found]

    def resume(self, turn_id: TurnId) -> Receipt | None:
        """Return the receipt of the newest request of a resumed turn, flushes excluded; None if it made none.

        Sources that could not be read at one of its requests count as unavailable now.
        """
        newest = None
        for found in self._backwards():
            if found.turn_id != turn_id:
                break
            if found.purpose == "turn":
                newest = newest or found
            self._unavailable |= found.unavailable
        return newest

    def as_shown(self, receipt: Receipt) -> ShownState:
        """Return the state that the model had seen with this request."""
        snapshot = self._snapshot(receipt.snapshot)
        deltas = self._deltas(receipt.snapshot)[: receipt.deltas]
        return ShownState(snapshot, deltas, moment_of(receipt.at), receipt.length, receipt.last)

    def erase(self) -> None:
        """Delete all records. The transcript's erasure deletes the large values."""
        while found := self._records.scan(self._partition, limit=DELETED_AT_ONCE):
            self._records.write(*(Delete(item.key) for item in found))

    def _load(self) -> None:
        last = next(self._backwards(), None)
        if last is not None:
            self._held, self._receipts = self.as_shown(last), last.number
        self._is_loaded = True

    def _backwards(self) -> Iterator[Receipt]:
        """Yield the receipts, newest first, with one read each: a turn has few."""
        end = f"receipt:{_LAST}"
        while found := self._before(end):
            yield receipt_of(_number(found), self._large_values.value(found.value))
            end = found.key.sort

    def _new_part(self, prompt: PromptRequest, writer: str) -> Put:
        snapshot, deltas = prompt.held.snapshot, prompt.held.deltas
        if prompt.news is snapshot:
            return self._put(f"snapshot:{_digits(snapshot.number)}", snapshot.as_json(), writer)
        name = f"delta:{_digits(snapshot.number)}:{_digits(len(deltas))}"
        return self._put(name, deltas[-1].as_json(), writer)

    def _snapshot(self, number: int) -> Snapshot:
        item = self._records.get(Key(self._partition, f"snapshot:{_digits(number)}"))
        if item is None:
            raise NotFound("snapshot", f"{number} of {self._conversation_id}")
        return snapshot_of(number, self._large_values.value(item.value))

    def _deltas(self, snapshot: int) -> tuple[Delta, ...]:
        found = with_prefix(self._records, self._partition, f"delta:{_digits(snapshot)}:")
        return tuple(delta_of(self._large_values.value(item.value)) for item in found)

    def _before(self, end: str) -> Item | None:
        start = "receipt:"
        found = self._records.scan(self._partition, start=start, end=end, backwards=True, limit=1)
        return found[0] if found else None

    def _put(self, sort: str, value: JsonObject, writer: str) -> Put:
        name = f"{sort.replace(':', '-')}-{writer}"
        return self._large_values.fitting(Put(Key(self._partition, sort), value, ABSENT), name)


def _digits(number: int) -> str:
    return f"{number:0{NUMBER_DIGITS}}"


def _number(item: Item) -> int:
    return int(item.key.sort.rpartition(":")[2])
