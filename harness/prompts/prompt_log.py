"""Showings: what a conversation's model was shown, kept so that it can be repeated and accounted for.

    shown:<conversation>   snapshot:<number>               the prompt and the tools, with their bytes
                           delta:<snapshot>:<number>       what was told of changes since, with its bytes
                           receipt:<number>                one for each request

A request is kept before it is sent, in one batch under the lease's guard: what is new in it and its
receipt. So a turn that is taken up by another process finds what was told, beside the same message, and
what a model may have read is never unaccounted for. What is too large for a record lies `aside`, with what
the transcript has there, and goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.context.delta import Delta, delta_of
from harness.context.receipt import Receipt, Remark, RequestPurpose, receipt, receipt_of
from harness.context.snapshot import ShownState, Snapshot, snapshot_of
from harness.prompts.prompt_request import PromptRequest
from harness.transcripts.large_values import LargeValues
from workspaces.coordination.lease import Lease
from workspaces.errors import Conflict, LeaseLost, NotFound
from workspaces.ids import ConversationId, TurnId
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import Delete, Item, JsonObject, Key, Put, RecordStore, with_prefix
from workspaces.timestamp import moment_of, stamp_of

NUMBER_DIGITS = 12
DELETED_AT_ONCE = 100

_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A question about to be kept."""

    question: PromptRequest
    receipt: Receipt
    changes: tuple[Put, ...]


class PromptLog:
    """One conversation's. Only the holder of its lease may keep anything."""

    def __init__(
        self, conversation_id: ConversationId, records: RecordStore, large: BlobStore
    ) -> None:
        self._conversation_id = conversation_id
        self._partition = f"shown:{conversation_id}"
        self._records = records
        self._aside = LargeValues(conversation_id, large)
        self._held: ShownState | None = None
        self._receipts = 0
        self._is_loaded = False
        self._unavailable: set[str] = set()

    @property
    def unavailable(self) -> tuple[str, ...]:
        """The sources of memory that could not be read at some request since this was opened."""
        return tuple(sorted(self._unavailable))

    def held(self) -> ShownState | None:
        """What the model was shown up to the newest request; None before the first."""
        if not self._is_loaded:
            self._load()
        return self._held

    def record(
        self,
        question: PromptRequest,
        turn_id: TurnId,
        model: str,
        lease: Lease,
        *,
        remarks: tuple[Remark, ...] = (),
        purpose: RequestPurpose = "turn",
    ) -> Receipt:
        """What is about to be asked, and what there was to say about it. LeaseLost when the conversation is
        another's now."""
        writer = str(lease.generation)
        keeping = self.prepare(question, turn_id, model, writer, remarks=remarks, purpose=purpose)
        try:
            self._records.write(lease.guard, *keeping.changes)
        except Conflict as conflict:
            raise LeaseLost(lease.key) from conflict
        self.mark_written(keeping)
        return keeping.receipt

    def prepare(
        self,
        question: PromptRequest,
        turn_id: TurnId,
        model: str,
        writer: str,
        *,
        remarks: tuple[Remark, ...] = (),
        purpose: RequestPurpose = "turn",
    ) -> PendingWrite:
        """What must be written before it is asked; `writer` is who holds the lease, or bids for it."""
        self.held()
        at = stamp_of(question.held.asked_at)
        made = receipt(
            self._receipts + 1,
            at,
            turn_id,
            model,
            question.held,
            question.said,
            question.pruning,
            question.request,
            remarks,
            purpose,
        )
        news = [] if question.news is None else [self._news(question, writer)]
        put = self._put(f"receipt:{_digits(made.number)}", made.as_json(), writer)
        return PendingWrite(question, made, (*news, put))

    def mark_written(self, keeping: PendingWrite) -> None:
        """It has been written."""
        self._held, self._receipts = keeping.question.held, keeping.receipt.number
        self._unavailable |= keeping.question.unavailable

    def receipts(self) -> list[Receipt]:
        found = with_prefix(self._records, self._partition, "receipt:")
        return [receipt_of(_number(item), self._aside.value(item.value)) for item in found]

    def resume(self, turn_id: TurnId) -> Receipt | None:
        """A turn is gone on with that had asked before: what could not be read then is unavailable in it
        now. The receipt of its newest request but for a flush; None when it has made none."""
        newest = None
        for found in self._backwards():
            if found.turn_id != turn_id:
                break
            if found.purpose == "turn":
                newest = newest or found
            self._unavailable |= found.unavailable
        return newest

    def as_shown(self, receipt: Receipt) -> ShownState:
        """What the model had been shown with that request."""
        snapshot = self._snapshot(receipt.snapshot)
        deltas = self._deltas(receipt.snapshot)[: receipt.deltas]
        return ShownState(snapshot, deltas, moment_of(receipt.at), receipt.length, receipt.last)

    def erase(self) -> None:
        """All of it but what lies aside, which goes with the transcript's."""
        while found := self._records.scan(self._partition, limit=DELETED_AT_ONCE):
            self._records.write(*(Delete(item.key) for item in found))

    def _load(self) -> None:
        last = next(self._backwards(), None)
        if last is not None:
            self._held, self._receipts = self.as_shown(last), last.number
        self._is_loaded = True

    def _backwards(self) -> Iterator[Receipt]:
        """The newest first, one read each: a turn has few."""
        end = f"receipt:{_LAST}"
        while found := self._before(end):
            yield receipt_of(_number(found), self._aside.value(found.value))
            end = found.key.sort

    def _news(self, question: PromptRequest, writer: str) -> Put:
        snapshot, deltas = question.held.snapshot, question.held.deltas
        if question.news is snapshot:
            return self._put(f"snapshot:{_digits(snapshot.number)}", snapshot.as_json(), writer)
        name = f"delta:{_digits(snapshot.number)}:{_digits(len(deltas))}"
        return self._put(name, deltas[-1].as_json(), writer)

    def _snapshot(self, number: int) -> Snapshot:
        item = self._records.get(Key(self._partition, f"snapshot:{_digits(number)}"))
        if item is None:
            raise NotFound("snapshot", f"{number} of {self._conversation_id}")
        return snapshot_of(number, self._aside.value(item.value))

    def _deltas(self, snapshot: int) -> tuple[Delta, ...]:
        found = with_prefix(self._records, self._partition, f"delta:{_digits(snapshot)}:")
        return tuple(delta_of(self._aside.value(item.value)) for item in found)

    def _before(self, end: str) -> Item | None:
        start = "receipt:"
        found = self._records.scan(self._partition, start=start, end=end, backwards=True, limit=1)
        return found[0] if found else None

    def _put(self, sort: str, value: JsonObject, writer: str) -> Put:
        name = f"{sort.replace(':', '-')}-{writer}"
        return self._aside.put(Key(self._partition, sort), value, name)


def _digits(number: int) -> str:
    return f"{number:0{NUMBER_DIGITS}}"


def _number(item: Item) -> int:
    return int(item.key.sort.rpartition(":")[2])
