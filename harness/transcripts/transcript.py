"""Transcripts: everything that was said and done in a conversation, stored as it happens.

Entries are numbered without gaps and never changed. Each append is a new item under the next number,
guarded by the lease: two writers cannot both add entry 7, and a holder whose lease has passed on can
add nothing. An entry too large for a record lies `aside`, under a name that holds the generation, or the
bid that shall win it: a stale holder that is still writing cannot replace the bytes of the entry that
became number 7 after all.

A conversation is a row of *sessions*, each beginning at an entry. The *window* is what a turn begins
with: the entries of the newest session from its cursor on. Finding it reads one item, loading it reads
the window and nothing before it, however long the conversation is.

Not every entry was said in the conversation. A *summary* stands for all entries up to the one that it
covers; it is known by its kind and never by its text. A *flush* is what a model wrote down before a
summary was made: its call of tools, and each result. Both are kept in the row and are no messages.
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
    RecordStore,
    with_prefix,
)
from workspaces.storage.records import RecordChange as RecordChange
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
    """What a tool has changed, with its result."""
    seen: SeenVersions = field(default_factory=lambda: NOTHING_SEEN)
    """The versions of files that the conversation has come to know by this entry."""
    asks: tuple[RequiredAnswer, ...] = ()
    """With a reply: those of its calls that must be allowed, or made by the client, before any is run."""
    allowed: tuple[str, ...] = ()
    """With an answer: the calls that it allows."""
    system: tuple[str, ...] = ()
    """What the platform said to the model with this event, for good."""
    kind: EntryKind = "said"
    covers: int | None = None
    """Of a summary: the last entry that it stands for."""

    @property
    def is_said(self) -> bool:
        """In the conversation, so that the model is shown it."""
        return self.kind == "said"

    def as_json(self) -> JsonObject:
        """Only what there is to say."""
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
        }


class Carried(NamedTuple):
    """An entry on its way to another conversation."""

    entry: Entry
    whole: Mapping[str, str] = MappingProxyType({})
    """What was kept beside it of results that it shows shortened, by the ids of their calls."""


@dataclass(frozen=True, slots=True)
class TranscriptWindow:
    session: Session
    entries: tuple[Entry, ...]

    @property
    def next_number(self) -> int:
        return self.entries[-1].number + 1 if self.entries else self.session.window_from

    @property
    def newest_number(self) -> int:
        """Of its entries; of the one that comes first when there is none."""
        return self.entries[-1].number if self.entries else self.session.window_from

    @property
    def said(self) -> tuple[HistoryMessage, ...]:
        """What the context is made of."""
        return tuple(
            HistoryMessage(one.number, one.turn_id, one.message)
            for one in self.entries
            if one.is_said
        )

    @property
    def summary(self) -> Entry | None:
        """What stands for all that came before."""
        number = self.session.summary
        return next(
            (one for one in self.entries if one.number == number and _is_summary(one)), None
        )

    @property
    def system(self) -> tuple[str, ...]:
        """What the platform said beside them for good."""
        carried = self.summary.system if self.summary else ()
        return (*carried, *self.system_until(self.newest_number))

    def system_until(self, last: int) -> tuple[str, ...]:
        """Of it, what came with the entries up to this one."""
        return tuple(
            text
            for entry in self.entries
            if entry.is_said and entry.number <= last
            for text in entry.system
        )


class Transcript:
    """One conversation's entries. Only the holder of its lease may append."""

    def __init__(
        self,
        conversation_id: ConversationId,
        records: RecordStore,
        large: BlobStore,
        *,
        told: Callable[[int], None] | None = None,
    ) -> None:
        """`told` hears the number of each entry that was appended."""
        self._told = told
        self._conversation_id = conversation_id
        self._partition = f"transcript:{conversation_id}"
        self._sessions = f"sessions:{conversation_id}"
        self._records = records
        self._aside = LargeValues(conversation_id, large)

    def session(self) -> Session:
        """The newest."""
        found = self._records.scan(self._sessions, backwards=True, limit=1)
        if not found:
            raise NotFound("conversation", self._conversation_id)
        return session_of(found[0])

    def sessions(self) -> list[Session]:
        return [session_of(item) for item in with_prefix(self._records, self._sessions, "")]

    def window(self) -> TranscriptWindow:
        session = self.session()
        return TranscriptWindow(session, tuple(self.entries(session.window_from)))

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
        """At most so many: those behind the entry `after`, or before it where the newest come first."""
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
        """What a tool answered this call, whole, if it stands in the newest session; of several calls
        with one id the newest."""
        found: str | None = None
        for entry in self.entries(self.session().first):
            for part in entry.message.parts:
                if isinstance(part, ToolResult) and part.call_id == call_id:
                    found = part.text
        return found

    def append(self, entry: Entry, lease: Lease, *also: RecordChange) -> None:
        """The next entry, and whatever must change in the same instant. LeaseLost when the
        conversation is another's now; Conflict when one of the other changes was not to be."""
        self.extend((entry,), lease, *also)

    def extend(
        self,
        entries: Sequence[Entry],
        lease: Lease,
        *also: RecordChange,
        note: Callable[[CommitPuts], None] | None = None,
    ) -> None:
        """Several at once, likewise. `note`: of what the last of them has used up."""
        note = note or _nothing_to_note
        try:
            puts = [self._put(entry, str(lease.generation)) for entry in entries]
        except Failure:
            note(lambda noted: self._records.write(*noted))
            raise

        def written(noted: Sequence[Put]) -> Sequence[Counter]:
            """The sums come before the entries: it is they who tell whether a batch has arrived."""
            return self._records.write(lease.guard, *noted, *puts, *also)[: len(noted)]

        try:
            note(written)
        except Conflict as conflict:
            if lease.is_lost_by(conflict) or conflict.name in {str(put.key) for put in puts}:
                raise LeaseLost(lease.key) from conflict
            raise
        if self._told is not None:
            for entry in entries:
                self._told(entry.number)

    def open(self, entry: Entry, bid: Bid, *also: RecordChange) -> Lease:
        """The next entry, by whoever takes the lease in the same instant. Conflict, and nothing happened,
        when somebody else was faster."""
        put = self._put(entry, bid.mark)
        lease = bid.won(self._records.write(*bid.changes, put, *also))
        if self._told is not None:
            self._told(entry.number)
        return lease

    def moved(self, session: Session, lease: Lease, *first: Put) -> Session:
        """What is known of the newest session, and what must be written in the same instant."""
        put = self.session_put(session)
        try:
            *_, counter = self._records.write(lease.guard, *first, put)
        except Conflict as conflict:
            raise LeaseLost(lease.key) from conflict
        return replace(session, counter=counter)

    def compact(self, summary: Entry, session: Session, lease: Lease) -> Session:
        """The summary and the window that begins behind what it covers, in one instant."""
        session = self.moved(session, lease, self._put(summary, str(lease.generation)))
        if self._told is not None:
            self._told(summary.number)
        return session

    def summary_until(self, session: Session, last: int) -> Entry | None:
        """The newest summary of a session among its entries up to `last`."""
        found = [one for one in self.entries(session.first, last) if _is_summary(one)]
        return found[-1] if found else None

    def reset(self, lease: Lease, now: Stamp) -> Session:
        """A new session from here on; the newest one when nothing was said in it yet."""
        session, newest = self.session(), self.newest()
        first = newest.number + 1 if newest else 1
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
        """Of a conversation that nobody can know of yet. Returns how many entries came."""
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
        """Everything, from the end, so that what an interruption leaves is still a row."""
        for partition in (self._partition, self._sessions):
            while found := self._records.scan(partition, backwards=True, limit=DELETED_AT_ONCE):
                self._records.write(*(Delete(item.key) for item in found))
        self._aside.erase()

    def _put(self, entry: Entry, writer: str) -> Put:
        sort = _sort(entry.number)
        return self._aside.put(Key(self._partition, sort), entry.as_json(), f"{sort}-{writer}")

    def _entry(self, item: Item) -> Entry:
        return entry_of(int(item.key.sort), self._aside.value(item.value))


def entry_of(number: int, value: JsonObject) -> Entry:
    return Entry(
        number,
        Stamp(value["at"]),
        TurnId(value["turn"]),
        message_of(value["message"]),
        value.get("event"),
        usage_of(value["usage"]) if "usage" in value else NO_USAGE,
        not value.get("cut", False),
        tuple(tool_revision_of(one) for one in value.get("revisions", ())),
        value.get("seen", NOTHING_SEEN),
        tuple(required_answer_of(one) for one in value.get("asks", ())),
        tuple(value.get("allowed", ())),
        tuple(value.get("system", ())),
        value.get("kind", "said"),
        value.get("covers"),
    )


def _nothing_to_note(written: CommitPuts) -> None:
    written(())


def _is_summary(entry: Entry) -> bool:
    return entry.kind == "summary" and entry.covers is not None


def _sort(number: int) -> str:
    return f"{number:0{NUMBER_DIGITS}}"
