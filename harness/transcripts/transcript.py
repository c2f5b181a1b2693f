"""Store everything that is said and done in a conversation, as it happens.

Entries are numbered without gaps and never changed. Each append is a new item under the next number, guarded
by the lease. So two writers cannot both add entry 7, and a process that has lost the lease can add nothing.
An entry too large for a record lies in the blob store. Its name there contains the generation of the lease,
or of the bid that shall win it. So a stale lease holder that is still writing cannot replace the bytes of the
entry that became number 7 after all.

A conversation is a sequence of *sessions*, each of which begins at an entry. A turn begins with the *window*:
the entries of the newest session from its cursor on. To find the window takes one read. To load it reads the
window and nothing before it, however long the conversation is.

Some entries were not said in the conversation. A *summary* replaces all entries up to the one that it covers;
it is recognised by its kind and never by its text. A *flush* holds what a model wrote down before a summary
was made: its tool calls, and each result. Both are numbered entries but no messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

from harness.context.history_message import HistoryMessage
from harness.messages.message import Message, ToolResult, message_of
from harness.messages.model_request import NO_USAGE, CommitPuts, Usage, usage_of
from harness.messages.pending_call import RequiredAnswer, required_answer_of
from harness.tools.tool_context import SeenVersions, ToolRevision, tool_revision_of
from harness.transcripts.large_values import LargeValues
from harness.transcripts.session import Session, new_session, session_of
from workspaces.conditions import ABSENT
from workspaces.coordination.lease import Bid, Lease
from workspaces.errors import Conflict, Failure, LeaseLost, NotFound
from workspaces.ids import ConversationId, TurnId
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import (
    SCAN_ITEMS_MAX,
    Counter,
    Delete,
    Item,
    JsonObject,
    Key,
    Put,
    RecordChange,
    RecordStore,
    with_prefix,
)
from workspaces.timestamp import Stamp

NUMBER_DIGITS = 12
COPIED_AT_ONCE = 40
"""Entries in a batch: at 64 KiB each they stay under what a batch may hold."""
DELETED_AT_ONCE = 100

NOTHING_SEEN: SeenVersions = {}

EntryKind = Literal["said", "flush", "summary"]


@dataclass(frozen=True, slots=True)
class Entry:
    number: int
    at: Stamp
    turn_id: TurnId
    message: Message
    event_id: str | None = None
    """The event that this entry brought into the conversation."""
    usage: Usage = NO_USAGE
    is_complete: bool = True
    """False for an answer that the provider cut."""
    changes: tuple[ToolRevision, ...] = ()
    """Revisions that a tool made; they are stored with its result."""
    seen: SeenVersions = field(default_factory=lambda: NOTHING_SEEN)
    """Versions of files that the conversation has read or written by this entry."""
    asks: tuple[RequiredAnswer, ...] = ()
    """With a reply: its calls that need approval, or are run by the client, before any call is run."""
    allowed: tuple[str, ...] = ()
    """With an answer: the calls that it approves."""
    system: tuple[str, ...] = ()
    """Permanent instructions that the platform gave to the model with this event."""
    kind: EntryKind = "said"
    covers: int | None = None
    """For a summary: the last entry that it covers."""
    reminder: str = ""
    """Memory that the model sees beside the message, and the user does not."""

    @property
    def is_said(self) -> bool:
        """True if the entry is part of the conversation, so that the model sees it."""
        return self.kind == "said"

    def as_json(self) -> JsonObject:
        """Return the JSON without empty fields."""
        return {
            "at": self.at,
            "turn": self.turn_id,
            **({"event": self.event_id} if self.event_id is not None else {}),
            "message": self.message.as_json(),
            **({"usage": self.usage.as_json()} if self.usage != NO_USAGE else {}),
            **({} if self.is_complete else {"cut": True}),
            **({"revisions": [one.as_json() for one in self.changes]} if self.changes else {}),
            **({"seen": self.seen} if self.seen else {}),
            **({"asks": [one.as_json() for one in self.asks]} if self.asks else {}),
            **({"allowed": list(self.allowed)} if self.allowed else {}),
            **({"system": list(self.system)} if self.system else {}),
            **({"kind": self.kind} if self.kind != "said" else {}),
            **({"covers": self.covers} if self.covers is not None else {}),
            **({"reminder": self.reminder} if self.reminder else {}),
        }


class Carried(NamedTuple):
    """An entry that is copied to another conversation."""

    entry: Entry
    whole: Mapping[str, str] = MappingProxyType({})
    """Full texts of the results that the entry shows shortened, by the ids of their calls."""


@dataclass(frozen=True, slots=True)
class TranscriptWindow:
    session: Session
    entries: tuple[Entry, ...]

    @property
    def next_number(self) -> int:
        behind = self.entries[-1].number + 1 if self.entries else self.session.window_from
        return max([behind, *(last + 1 for _, last in self.session.skipped)])

    @property
    def newest_number(self) -> int:
        """The number of the newest entry; of the first entry to come if there is none."""
        return self.entries[-1].number if self.entries else self.session.window_from

    @property
    def said(self) -> tuple[HistoryMessage, ...]:
        """The messages from which the context is made."""
        return tuple(
            HistoryMessage(one.number, one.turn_id, one.message, one.reminder)
            for one in self.entries
            if one.is_said
        )

    @property
    def summary(self) -> Entry | None:
        """The entry that summarises everything before the window."""
        number = self.session.summary
        return next(
            (one for one in self.entries if one.number == number and _is_summary(one)), None
        )

    @property
    def system(self) -> tuple[str, ...]:
        """The permanent instructions that the platform gave beside the messages."""
        carried = self.summary.system if self.summary else ()
        return (*carried, *self.system_until(self.newest_number))

    def system_until(self, last: int) -> tuple[str, ...]:
        """Return the permanent instructions that came with the entries up to `last`."""
        return tuple(
            text
            for entry in self.entries
            if entry.is_said and entry.number <= last
            for text in entry.system
        )


class Transcript:
    """The entries of one conversation. Only the lease holder may append."""

    def __init__(
        self,
        conversation_id: ConversationId,
        records: RecordStore,
        large: BlobStore,
        *,
        on_append: Callable[[int], None] | None = None,
    ) -> None:
        """Call `on_append` with the number of each appended entry."""
        self._on_append = on_append
        self._conversation_id = conversation_id
        self._partition = f"transcript:{conversation_id}"
        self._sessions = f"sessions:{conversation_id}"
        self._records = records
        self._large_values = LargeValues(conversation_id, large)

    def session(self) -> Session:
        """Return the newest session."""
        found = self._records.scan(self._sessions, backwards=True, limit=1)
        if not found:
            raise NotFound("conversation", self._conversation_id)
        return session_of(found[0])

    def sessions(self) -> list[Session]:
        return [session_of(item) for item in with_prefix(self._records, self._sessions, "")]

    def window(self) -> TranscriptWindow:
        session = self.session()
        entries = self.entries(session.window_from)
        return TranscriptWindow(
            session, tuple(one for one in entries if not session.skips(one.number))
        )

    def entries(self, first: int = 1, last: int | None = None) -> Iterator[Entry]:
        start, end = _sort(first), None if last is None else _sort(last + 1)
        while True:
            page = self._records.scan(self._partition, start=start, end=end)
            for item in page:
                yield self._entry(item)
            if len(page) < SCAN_ITEMS_MAX:
                return
            start = page[-1].key.sort + "\0"

    def page(self, limit: int, *, after: int | None, backwards: bool = False) -> list[Entry]:
        """Return at most `limit` entries behind the entry `after`, or before it if `backwards`."""
        scan = self._records.scan
        if backwards:
            end = None if after is None else _sort(after)
            found = scan(self._partition, end=end, backwards=True, limit=limit)
        else:
            found = scan(self._partition, start=_sort((after or 0) + 1), limit=limit)
        return [self._entry(item) for item in found]

    def newest(self) -> Entry | None:
        found = self._records.scan(self._partition, backwards=True, limit=1)
        return self._entry(found[0]) if found else None

    def result(self, call_id: str) -> str | None:
        """Return the full result of a call in the newest session; of several calls with one id the newest."""
        found: str | None = None
        for entry in self.entries(self.session().first):
            for part in entry.message.parts:
                if isinstance(part, ToolResult) and part.call_id == call_id:
                    found = part.text
        return found

    def append(self, entry: Entry, right: Lease | Bid, *also: RecordChange) -> Lease:
        """Append the next entry, and write the changes in `also` in the same batch.

        With a bid, the batch acquires the lease too. Return the lease.

        Raises: LeaseLost when another process holds the conversation now; Conflict when a condition of
        another change failed. Then nothing was written.
        """
        return self.extend((entry,), right, *also)

    def extend(
        self,
        entries: Sequence[Entry],
        right: Lease | Bid,
        *also: RecordChange,
        note: Callable[[CommitPuts], None] | None = None,
    ) -> Lease:
        """Append several entries in one batch, as `append` does.

        `note` records the usage of the last entry.
        """
        note = note or _nothing_to_note
        try:
            puts = [self._put(entry, right.writer) for entry in entries]
        except Failure:
            note(lambda noted: self._records.write(*noted))
            raise

        def write(noted: Sequence[Put]) -> Sequence[Counter]:
            """Write the batch.

            The usage sums come first, but the entries show whether a batch has arrived.
            """
            counters = self._records.write(*right.changes, *noted, *puts, *also)
            won.append(right.won(counters))
            return counters[: len(noted)]

        won: list[Lease] = []
        try:
            note(write)
        except Conflict as conflict:
            if right.is_lost_by(conflict) or conflict.name in {str(put.key) for put in puts}:
                raise LeaseLost(right.key) from conflict
            raise
        if self._on_append is not None:
            for entry in entries:
                self._on_append(entry.number)
        return won[-1] if won else right.won(())  # the answer to a batch with usage may be lost

    def moved(self, session: Session, lease: Lease, *first: Put) -> Session:
        """Update the newest session, and write `first` in the same batch.

        Raises: LeaseLost when another process holds the conversation now.
        """
        put = self.session_put(session)
        try:
            *_, counter = self._records.write(lease.guard, *first, put)
        except Conflict as conflict:
            raise LeaseLost(lease.key) from conflict
        return replace(session, counter=counter)

    def compact(self, summary: Entry, session: Session, lease: Lease) -> Session:
        """Write the summary, and move the window behind the entries it covers, in one batch."""
        session = self.moved(session, lease, self._put(summary, str(lease.generation)))
        if self._on_append is not None:
            self._on_append(summary.number)
        return session

    def summary_until(self, session: Session, last: int) -> Entry | None:
        """Return the newest summary among a session's entries up to `last`."""
        found = [one for one in self.entries(session.first, last) if _is_summary(one)]
        return found[-1] if found else None

    def reset(self, lease: Lease, now: Stamp) -> Session:
        """Start a new session here. Return the newest session if it has no entries yet."""
        session = self.session()
        newest = self._records.scan(self._partition, backwards=True, limit=1)
        first = int(newest[0].key.sort) + 1 if newest else 1  # its text may be lost
        if session.first == first:
            return session
        fresh = new_session(first, now)
        try:
            self._records.write(lease.guard, self.session_put(fresh))
        except Conflict as error:
            raise LeaseLost(lease.key) from error
        return fresh

    def session_put(self, session: Session) -> Put:
        return Put(Key(self._sessions, _sort(session.first)), session.as_json(), session.counter)

    def fill(self, sessions: Iterable[Session], entries: Iterable[Entry]) -> int:
        """Fill a conversation that no reader can find yet. Return the number of entries."""
        for session in sessions:
            self._records.write(self.session_put(session))
        count = 0
        batch: list[Put] = []
        for entry in entries:
            batch.append(self._put(entry, "0"))
            count += 1
            if len(batch) == COPIED_AT_ONCE:
                self._records.write(*batch)
                batch = []
        if batch:
            self._records.write(*batch)
        return count

    def erase(self) -> None:
        """Delete everything from the end, so that an interruption leaves entries without gaps."""
        for partition in (self._partition, self._sessions):
            while found := self._records.scan(partition, backwards=True, limit=DELETED_AT_ONCE):
                self._records.write(*(Delete(item.key) for item in found))
        self._large_values.erase()

    def _put(self, entry: Entry, writer: str) -> Put:
        sort = _sort(entry.number)
        put = Put(Key(self._partition, sort), entry.as_json(), ABSENT)
        return self._large_values.fitting(put, f"{sort}-{writer}")

    def _entry(self, item: Item) -> Entry:
        return entry_of(int(item.key.sort), self._large_values.value(item.value))


def entry_of(number: int, value: JsonObject) -> Entry:
    return Entry(
        number=number,
        at=Stamp(value["at"]),
        turn_id=TurnId(value["turn"]),
        message=message_of(value["message"]),
        event_id=value.get("event"),
        usage=usage_of(value["usage"]) if "usage" in value else NO_USAGE,
        is_complete=not value.get("cut", False),
        changes=tuple(tool_revision_of(one) for one in value.get("revisions", ())),
        seen=value.get("seen", NOTHING_SEEN),
        asks=tuple(required_answer_of(one) for one in value.get("asks", ())),
        allowed=tuple(value.get("allowed", ())),
        system=tuple(value.get("system", ())),
        kind=value.get("kind", "said"),
        covers=value.get("covers"),
        reminder=value.get("reminder", ""),
    )


def _nothing_to_note(written: CommitPuts) -> None:
    written(())


def _is_summary(entry: Entry) -> bool:
    return entry.kind == "summary" and entry.covers is not None


def _sort(number: int) -> str:
    return f"{number:0{NUMBER_DIGITS}}"
