"""Find and replace phrases in the records of an account, and in their large values.

Each item is changed under the condition that it is as it was read. So a writer that comes in between is
never overwritten: the item is read again. The records of a conversation are changed under its lease, so no
turn runs meanwhile and the next one builds its context from what is stored then.

What is replaced can be recognised by its mark. So a process that goes on after a crash finds the receipts,
claims and versions whose hashes must still go.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from harness.conversations.conversation import Conversation, Conversations
from harness.forgetting.found import Findings, FoundPlace
from harness.forgetting.record_places import AccountPlaces, RecordPartition
from harness.forgetting.redaction import JsonRedactor, TextFinder, redact_bytes, redacted_hash
from harness.forgetting.stored_names import renaming
from harness.memorize.archive.snapshot import rewritten
from harness.transcripts.large_values import LargeValues
from workspaces.coordination.lease import Lease
from workspaces.errors import Busy, Conflict, NotFound
from workspaces.ids import ConversationId
from workspaces.storage.blobs import Blob, BlobStore
from workspaces.storage.contention import attempts, contended, until_written
from workspaces.storage.records import (
    Check,
    Item,
    JsonObject,
    Key,
    Put,
    RecordStore,
)

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class RecordRedaction:
    """The phrases of one forgetting in the records of an account."""

    places: AccountPlaces
    records: RecordStore
    large: BlobStore
    finder: TextFinder
    marks: frozenset[str]
    """The marks of its tombstones."""
    touched_files: frozenset[str] = frozenset()
    """Files in which something was replaced, as `<namespace>/<path>`; `<namespace>/` stands for all of a
    workspace. Their versions are forgotten."""

    def find(self, findings: Findings) -> None:
        """Add every place to the findings. Nothing is changed."""
        subjects = self.places.subjects()
        for conversation_id in subjects.conversations:
            for partition in self.places.of_conversation(conversation_id):
                self._find_in(partition, findings)
        for partition in self.places.others():
            self._find_in(partition, findings)
        for owner in subjects.owners_of_values:
            self._large_values(owner, findings, is_changing=False)

    def rewrite(self, conversations: Conversations, findings: Findings) -> list[Busy]:
        """Replace the phrases everywhere. Return a failure for each conversation in which a turn runs."""
        busy: list[Busy] = []
        for conversation in conversations.of_account():
            if not self._holds(conversation.id):
                continue
            try:
                with conversations.leased(conversation) as lease:
                    self._rewrite_conversation(conversation, lease, findings)
            except Busy as failure:
                busy.append(failure)
        for partition in self.places.others():
            self._rewrite_items(partition, findings)
        subjects = self.places.subjects()
        for owner in (*subjects.archives, *subjects.runs):
            self._large_values(owner, findings, is_changing=True)
        return busy

    def _holds(self, conversation_id: str) -> bool:
        """Return True if a conversation holds a phrase, or a mark of this forgetting."""
        probe = Findings()
        for partition in self.places.of_conversation(conversation_id):
            if self._find_in(partition, probe):
                return True
        self._large_values(conversation_id, probe, is_changing=False)
        return bool(probe.found)

    def _find_in(self, partition: RecordPartition, findings: Findings) -> bool:
        """Add the places of a partition. Return True if there are any, or an item with a mark."""
        has_any = False
        for item in partition.items(self.records):
            redactor = self._redactor(partition)
            cleaned = self._cleaned(item.value, redactor)
            self._note(partition, item, redactor, findings)
            has_any = has_any or cleaned != item.value or self._is_marked(item.value)
        return has_any

    def _rewrite_items(self, partition: RecordPartition, findings: Findings, *guard: Check) -> None:
        for item in partition.items(self.records):
            self._rewrite_item(partition, item, findings, guard)

    def _rewrite_item(
        self,
        partition: RecordPartition,
        item: Item,
        findings: Findings,
        guard: tuple[Check, ...],
    ) -> None:
        for _ in attempts():
            redactor = self._redactor(partition)
            value = self._cleaned(item.value, redactor)
            if value != item.value:
                put = Put(item.key, value, expect=item.counter, expires_at=item.expires_at)
                try:
                    self.records.write(*guard, self._fitting(put, partition))
                except Conflict:
                    again = self.records.get(item.key)
                    if again is None:
                        return
                    item = again
                    continue
            self._note(partition, item, redactor, findings)
            return
        raise contended("a record")

    def _rewrite_conversation(
        self, conversation: Conversation, lease: Lease, findings: Findings
    ) -> None:
        for partition in self.places.of_conversation(conversation.id):
            self._rewrite_items(partition, findings, lease.guard)
        self._large_values(conversation.id, findings, is_changing=True)
        self._forget_hashes(conversation, lease)

    def _forget_hashes(self, conversation: Conversation, lease: Lease) -> None:
        """Remove the hashes of requests and of messages in which something was replaced."""
        touched = self._touched(f"transcript:{conversation.id}")
        shown = self._touched(f"shown:{conversation.id}")
        entries = {int(sort): value for sort, value in touched.items()}
        for item in RecordPartition(f"shown:{conversation.id}", "receipt").items(self.records):
            if not item.key.sort.startswith("receipt:"):
                continue
            value = self._value(conversation.id, item)
            tombstone_id = _mark_in_request(value, entries, shown)
            if tombstone_id is not None and value["digest"] != redacted_hash(tombstone_id):
                changed = {**value, "digest": redacted_hash(tombstone_id)}
                put = Put(item.key, changed, expect=item.counter)
                self.records.write(
                    lease.guard, self._fitting(put, RecordPartition("", "receipt", conversation.id))
                )
        waiting = self._touched(f"inbox:{conversation.id}")
        for partition, found in (("transcript", touched), ("inbox", waiting)):
            for sort, tombstone_id in found.items():
                event_id = self._event_of(Key(f"{partition}:{conversation.id}", sort))
                if event_id is not None:
                    self._forget_body(conversation.claim_key(event_id), tombstone_id)

    @until_written("an event")
    def _forget_body(self, key: Key, tombstone_id: str) -> None:
        """Remove the hash of a message from the claim of its event."""
        claim = self.records.get(key)
        body = redacted_hash(tombstone_id)
        if claim is not None and claim.value["body"] != body:
            value = {**claim.value, "body": body}
            self.records.write(Put(key, value, claim.counter, claim.expires_at))

    def _touched(self, partition: str) -> dict[str, str]:
        """Return the items with a mark of this forgetting, each with the id of a tombstone in it."""
        found: dict[str, str] = {}
        subject = partition.partition(":")[2]
        for item in RecordPartition(partition, "conversation").items(self.records):
            tombstone_id = self._mark_in(self._value(subject, item))
            if tombstone_id is not None:
                found[item.key.sort] = tombstone_id
        return found

    def _event_of(self, key: Key) -> str | None:
        """Return the id of the event that an entry brought, or that waits."""
        item = self.records.get(key)
        if item is None:
            return None
        event = self._value(key.partition.partition(":")[2], item).get("event")
        return cast("JsonObject", event)["id"] if isinstance(event, dict) else event

    def _value(self, subject: str, item: Item) -> JsonObject:
        """Return the value of an item, also if it is large. A lost large value is empty."""
        try:
            return LargeValues(ConversationId(subject), self.large).value(item.value)
        except (NotFound, ValueError):
            return {}

    def _large_values(self, owner: str, findings: Findings, *, is_changing: bool) -> None:
        """Find the phrases in the large values of a conversation, a run or an archive, and replace them."""
        for stat in list(self.large.scan(f"{owner}/")):
            with suppress(NotFound):  # deleted meanwhile
                blob = self.large.read(stat.name)
                data, count = self._cleaned_blob(blob)
                if data != blob.data and is_changing:
                    self.large.write(stat.name, data, expect=blob.token)
                findings.add(FoundPlace("large value", path=stat.name), count)

    def _cleaned_blob(self, blob: Blob) -> tuple[bytes, int]:
        """Return the bytes of a large value without the phrases, and their number."""
        if blob.name.endswith(".zst"):
            return self._cleaned_snapshot(blob.data)
        with suppress(ValueError, RecursionError):
            value = json.loads(blob.data) if blob.name.endswith(".json") else None
            if isinstance(value, dict):
                redactor = JsonRedactor(self.finder)
                stored = cast("JsonObject", value)
                cleaned = self._cleaned(stored, redactor)
                data = blob.data if cleaned == stored else _JSON.encode(cleaned).encode()
                return data, redactor.count
        return redact_bytes(blob.data, self.finder)

    def _cleaned_snapshot(self, data: bytes) -> tuple[bytes, int]:
        """Return the snapshot of an archived conversation without the phrases, and their number.

        It keeps its name: facts cite it by that. The hash in the name has the length of the whole
        conversation behind it.
        """
        redactor = JsonRedactor(self.finder)

        def change(line: str) -> str:
            stored = json.loads(line)
            cleaned = redactor.object(stored)
            return line if cleaned == stored else _JSON.encode(cleaned)

        return rewritten(data, change), redactor.count

    def _cleaned(self, value: JsonObject, redactor: JsonRedactor) -> JsonObject:
        """Return the value without the phrases, and without what was derived from them.

        The conditions of a snapshot in which something is replaced go, so the next request takes another.
        """
        if value.get("kind") == "pattern":
            return value  # what is forbidden: only a person can lift it
        cleaned = redactor.object(value)
        seen: dict[str, str] | None = cleaned.get("seen")
        if isinstance(seen, dict) and any(map(self._is_touched, seen)):
            kept = {name: one for name, one in seen.items() if not self._is_touched(name)}
            cleaned = {**cleaned, "seen": kept}
        if redactor.count and "terms" in cleaned:
            cleaned = {**cleaned, "terms": {}}
        return cleaned

    def _is_touched(self, file: str) -> bool:
        return file in self.touched_files or f"{file.partition('/')[0]}/" in self.touched_files

    def _note(
        self,
        partition: RecordPartition,
        item: Item,
        redactor: JsonRedactor,
        findings: Findings,
    ) -> None:
        where = partition.where
        if partition.partition.startswith("shown:") and item.key.sort.startswith("receipt:"):
            where = "receipt"
        conversation = partition.subject
        is_of_one = conversation is not None and conversation.startswith("conv_")
        place = FoundPlace(
            where,
            path=None if is_of_one and where == "conversation" else self._name(item, where),
            conversation=conversation if is_of_one else None,
        )
        findings.add(place, redactor.count)
        if redactor.names or self.finder.find(item.key.sort):
            named = renaming(partition, item)
            findings.cannot(named.where, named.why)

    def _name(self, item: Item, where: str) -> str:
        """Return a name of the item for people, without phrases."""
        sort = item.key.sort
        return self.finder.replaced(sort if where != "queued event" else sort.lstrip("0") or sort)

    def _redactor(self, partition: RecordPartition) -> JsonRedactor:
        """Return a redactor. The key of a cited fact is text: its file is redacted in the same way."""
        is_citation = partition.partition.startswith("archive-citations:")
        return JsonRedactor(self.finder, has_names=not is_citation)

    def _fitting(self, put: Put, partition: RecordPartition) -> Put:
        """Return the change with its value in the blob store, if marks have made it too large."""
        if partition.subject is None:
            return put
        name = f"{put.key.sort.replace(':', '-')}-forgotten-{secrets.token_hex(8)}"
        return LargeValues(ConversationId(partition.subject), self.large).fitting(put, name)

    def _is_marked(self, value: JsonObject) -> bool:
        return self._mark_in(value) is not None

    def _mark_in(self, value: Any) -> str | None:
        """Return the id of the tombstone whose mark stands in a value."""
        match value:
            case str():
                found = next((one for one in self.marks if one in value), None)
                return None if found is None else found.removeprefix("[forgotten ").rstrip("]")
            case dict():
                return self._first_mark(cast("JsonObject", value).values())
            case list():
                return self._first_mark(cast("list[Any]", value))
            case _:
                return None

    def _first_mark(self, values: Iterable[Any]) -> str | None:
        return next((one for value in values if (one := self._mark_in(value)) is not None), None)


def _mark_in_request(
    receipt: JsonObject, entries: dict[int, str], shown: dict[str, str]
) -> str | None:
    """Return the id of a tombstone whose mark stands in what a request showed."""
    if not receipt:
        return None
    first, last = receipt["entries"]
    for number, tombstone_id in entries.items():
        if first <= number <= last:
            return tombstone_id
    snapshot = f"{receipt['snapshot']:012}"
    names = [f"snapshot:{snapshot}"]
    names += [f"delta:{snapshot}:{number:012}" for number in range(1, receipt["deltas"] + 1)]
    return next((shown[name] for name in names if name in shown), None)
