"""Conversations: what people see. One belongs to the user of its first turn; for everyone else it
does not exist.

A conversation is found by its id, or by its agent and key. The key names it for everyone in the account
(its lease is named after it too), so a user who says something under a key that is another's is told
that there is no such conversation, as if it had been asked for by a wrong id.

To delete one is two steps: in one batch it disappears, and a job is enqueued that removes what it
consists of; whoever deleted it runs that job at once, and anyone if they could not.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice

from harness.billing.ledger import conversation_rows
from harness.jobs.job import Job, Jobs
from harness.messages.event import full_key
from harness.messages.message import ToolResult
from harness.prompts.prompt_log import PromptLog
from harness.tools.stored_results import StoredResults
from harness.transcripts.session import Session, new_session
from harness.transcripts.transcript import Carried, Entry, Transcript
from workspaces.accounts.account import Principal
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.coordination.lease import Lease, Leases
from workspaces.errors import AlreadyExists, Busy, Conflict, Forbidden, NotFound, Refused
from workspaces.ids import AccountId, AgentId, ConversationId, UserId, lease_key, new_id
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import Check, Delete, Item, Key, Put, RecordStore, with_prefix
from workspaces.timestamp import Stamp, moment_of, stamp_of

ERASE = "erase"
"""The kind of job that removes what a deleted conversation consists of."""

DELETED_AT_ONCE = 100
LISTED_AT_ONCE = 100

LET_GO_LOOKS_MAX, LET_GO_LOOK_S = 200, 0.005
"""Between the end of a turn and that of its lease lies one write; a second is long for it."""

INSTRUCT = "give an agent instructions (`system`)"
""" … is not for a user's key."""

_CONVERSATION_ID = re.compile(r"[a-z0-9_]{1,64}")
"""What is looked for at all: ids are opaque, and no other text is one."""


@dataclass(frozen=True, slots=True)
class Conversation:
    id: ConversationId
    key: str
    account_id: AccountId
    agent_id: AgentId
    user_id: UserId
    created_at: Stamp
    forked_from: str | None = None
    """`<conversation id> <entry number>`, for one that began as a fork."""
    counter: int = 1
    """Of its record, and of the copy of it under its key: neither ever changes."""

    @property
    def exists(self) -> Check:
        """Put this into a batch that must not happen once the conversation was deleted."""
        return Check(conversation_key(self.account_id, self.id), self.counter)

    @property
    def place(self) -> str:
        """In the list of its user's conversations."""
        return f"{self.created_at} {self.id}"

    @property
    def lease_key(self) -> str:
        return lease_key(full_key(self.account_id, self.agent_id, self.key))

    def claim_key(self, event_id: str) -> Key:
        return claim_key(self.account_id, self.user_id, self.agent_id, event_id)

    def as_json(self) -> dict[str, str]:
        forked = {"forkedFrom": self.forked_from} if self.forked_from else {}
        return {
            "id": self.id,
            "key": self.key,
            "agentId": self.agent_id,
            "userId": self.user_id,
            "createdAt": self.created_at,
            **forked,
        }


@dataclass(frozen=True, slots=True)
class New:
    """A conversation that is not there yet, and what makes it: written with whatever it begins with."""

    conversation: Conversation
    session: Session
    """Its first one, as it will be then."""
    changes: tuple[Put, ...]


@dataclass(frozen=True, slots=True)
class DeletedParts:
    """What went with a conversation."""

    entries: int
    sessions: int
    waiting: int


def claim_key(account_id: AccountId, user_id: UserId, agent_id: AgentId, event_id: str) -> Key:
    """Under the user: an id says nothing of the events of others."""
    return Key(f"claims:{account_id}:{user_id}", f"{agent_id}:{event_id}")


def conversation_key(account_id: AccountId, conversation_id: str) -> Key:
    return Key(f"account:{account_id}", f"conversation:{conversation_id}")


def inbox_partition(conversation_id: ConversationId) -> str:
    return f"inbox:{conversation_id}"


class Conversations:
    """Those of one principal."""

    def __init__(
        self,
        principal: Principal,
        records: RecordStore,
        large: BlobStore,
        clock: Clock,
        *,
        leases: Leases,
        jobs: Jobs,
    ) -> None:
        self._principal = principal
        self._records = records
        self._large = large
        self._clock = clock
        self._leases = leases
        self._jobs = jobs

    def find(self, agent_id: AgentId, key: str) -> Conversation | None:
        """The principal's conversation with this agent under this key, if there was a first turn."""
        found = self._under(agent_id, key)
        return None if found is None or found.user_id != self._principal.user_id else found

    def get(self, conversation_id: str) -> Conversation:
        """NotFound, also for another user's."""
        found = self._look(conversation_id)
        if found is None or found.user_id != self._principal.user_id:
            raise NotFound("conversation", conversation_id)
        return found

    def open(self, agent_id: AgentId, key: str) -> Conversation:
        """The one under this key, begun if it is new. NotFound when it is another user's."""
        found = self.found_or_new(agent_id, key)
        if isinstance(found, Conversation):
            return found
        try:
            self._records.write(*found.changes)
        except Conflict:  # by somebody else, or by us in the same instant
            return self.open(agent_id, key)
        return found.conversation

    def found_or_new(self, agent_id: AgentId, key: str) -> Conversation | New:
        """NotFound when it is another user's."""
        found = self._under(agent_id, key)
        if found is None:
            fresh = self._new(agent_id, key)
            session = new_session(1, fresh.created_at)
            return New(fresh, replace(session, counter=1), self._made(fresh, session))
        if found.user_id != self._principal.user_id:
            raise NotFound("conversation", key, remedy="use another key")
        return found

    def list(
        self, agent_id: AgentId | None = None, *, behind: str = "", limit: int | None = None
    ) -> list[Conversation]:
        """The newest first; those behind a `place` in this list."""
        return list(islice(self._newest_first(agent_id, behind), limit))

    def _newest_first(self, agent_id: AgentId | None, behind: str) -> Iterator[Conversation]:
        partition = _listing(self._principal.account_id, self._principal.user_id)
        end = behind or None
        while page := self._records.scan(partition, end=end, backwards=True, limit=LISTED_AT_ONCE):
            for item in page:
                found = self._look(_listed_id(item))
                if found is not None and agent_id in (None, found.agent_id):
                    yield found
            end = page[-1].key.sort

    def transcript(
        self, conversation: Conversation, *, told: Callable[[int], None] | None = None
    ) -> Transcript:
        return Transcript(conversation.id, self._records, self._large, told=told)

    def showing(self, conversation: Conversation) -> PromptLog:
        return PromptLog(conversation.id, self._records, self._large)

    def reset(self, conversation: Conversation) -> Session:
        """A new session from here on. Busy while a turn runs or was interrupted."""
        with self._alone(conversation) as lease:
            self.check_at_rest(conversation)
            return self.transcript(conversation).reset(lease, self._now())

    def check_at_rest(self, conversation: Conversation) -> None:
        """Busy when a turn waits or was interrupted; for whoever holds the lease, so that none runs."""
        head = self._records.get(Key(inbox_partition(conversation.id), "head"))
        if head is not None and head.value["running"] is not None:
            raise Busy("the conversation", holder="a turn that was interrupted")
        if head is not None and head.value.get("paused") is not None:
            raise Busy("the conversation", holder="a turn that waits for an answer")

    def fork(self, conversation: Conversation, key: str, at: int | None = None) -> Conversation:
        """A new conversation that begins with the entries of this one, up to number `at` or all. Only with
        all of them it knows of a reset behind the last."""
        transcript = self.transcript(conversation)
        newest = transcript.newest()
        last = newest.number if newest else 0
        begun_until = last + 1 if at is None else at
        at = last if at is None else at
        if not 1 <= at <= last:
            raise Refused("at", at, f"must be one of 1 to {last}")
        fresh = self._new(conversation.agent_id, key, forked_from=f"{conversation.id} {at}")
        kept = [one for one in transcript.sessions() if one.first <= begun_until]
        sessions = [_anew(one, transcript, at) for one in kept]
        return self._create(fresh, sessions, self.carried(conversation, at))

    def carried(self, conversation: Conversation, last: int | None = None) -> Iterator[Carried]:
        """Its entries up to a number or all, with what lies beside them."""
        kept = StoredResults(conversation.id, self._large).stored_lookup()
        for entry in self.transcript(conversation).entries(1, last):
            parts = entry.message.parts
            calls = [part.call_id for part in parts if isinstance(part, ToolResult)]
            whole = {call: text for call in calls if (text := kept(call)) is not None}
            yield Carried(entry, whole)

    def add(
        self, agent_id: AgentId, key: str, sessions: Iterable[Session], entries: Iterable[Carried]
    ) -> Conversation:
        """A conversation that was elsewhere before. AlreadyExists when the key is taken."""
        return self._create(self._new(agent_id, key), sessions, self._admitted(entries))

    def _admitted(self, entries: Iterable[Carried]) -> Iterator[Carried]:
        """What a platform says to its models is not for its users to bring along. Forbidden."""
        for carried in entries:
            if carried.entry.system and not self._principal.may_configure:
                raise Forbidden(INSTRUCT)
            yield carried

    def delete(self, conversation: Conversation) -> DeletedParts:
        """The conversation and everything in it. Busy while a turn runs."""
        gone = self._gone(conversation)
        with self._alone(conversation) as lease:
            self._remove(conversation, lease)
        # where its job runs at this moment, whoever runs it brings it to its end
        with suppress(Conflict):
            self.erase(conversation.id)
            self._records.write(*self._jobs.unwanted(_erasure(conversation.id)))
        return gone

    def delete_with(self, agent_id: AgentId) -> int:
        """Those of all users with this agent, which is going. Returns how many there were."""
        pointers = with_prefix(self._records, self._pointers, f"{agent_id}:")
        return self._delete_all(pointer.value["id"] for pointer in pointers)

    def delete_of(self, user_id: UserId) -> int:
        """Those of a user who is going, with all agents. Returns how many there were."""
        partition = _listing(self._principal.account_id, user_id)
        return self._delete_all(
            _listed_id(item) for item in with_prefix(self._records, partition, "")
        )

    def acquire(self, conversation: Conversation) -> Lease:
        """Whoever has just heard the end of a turn is not told that it still runs: its lease is let go
        of a moment later. Busy."""
        for _ in range(LET_GO_LOOKS_MAX):
            with suppress(Busy):
                return self._leases.acquire(conversation.lease_key)
            if self._is_in_use(conversation):
                raise Busy("the conversation", holder="a turn")
            time.sleep(LET_GO_LOOK_S)
        return self._leases.acquire(conversation.lease_key)

    @contextmanager
    def _alone(self, conversation: Conversation) -> Generator[Lease]:
        lease = self.acquire(conversation)
        try:
            yield lease
        finally:
            self._leases.release(lease)

    def _is_in_use(self, conversation: Conversation) -> bool:
        """Something runs, or waits."""
        partition = inbox_partition(conversation.id)
        items = {item.key.sort: item.value for item in self._records.scan(partition, start="head")}
        head, tail = items.get("head"), items.get("tail")
        if head is None or tail is None:
            return tail is not None
        return head["running"] is not None or head["next"] < tail["next"]

    def _delete_all(self, ids: Iterable[str]) -> int:
        found = [one for one in map(self._look, ids) if one is not None]
        for conversation in found:
            self.delete(conversation)
        return len(found)

    def erase(self, conversation_id: ConversationId) -> None:
        """What a deleted conversation consists of. What an earlier erasure left is found again: the
        transcript, by which the claims of its events are found, goes after them."""
        transcript = Transcript(conversation_id, self._records, self._large)
        place = self._records.get(self._tombstone(conversation_id))
        if place is None:
            return
        deleted = _conversation(conversation_id, self._principal.account_id, place)
        inbox = with_prefix(self._records, inbox_partition(conversation_id), "")
        waiting = (item.value["event"] for item in inbox if "event" in item.value)
        said = (entry.event_id for entry in transcript.entries() if entry.event_id is not None)
        events = dict.fromkeys([*(one["id"] for one in waiting), *said])
        claims = (self._records.get(deleted.claim_key(event)) for event in events)
        doomed = [item.key for item in inbox]
        doomed += [claim.key for claim in claims if claim and _is_about(claim, conversation_id)]
        doomed += self._usage_rows(deleted)
        for start in range(0, len(doomed), DELETED_AT_ONCE):
            batch = doomed[start : start + DELETED_AT_ONCE]
            self._records.write(*(Delete(key) for key in batch))
        PromptLog(conversation_id, self._records, self._large).erase()
        transcript.erase()
        self._records.write(Delete(place.key), *self._jobs.unwanted(f"turn:{conversation_id}"))

    def _usage_rows(self, conversation: Conversation) -> list[Key]:
        """From the day before it began: clocks of machines differ."""
        since = moment_of(conversation.created_at).date() - timedelta(days=1)
        until = self._clock.now().date() + timedelta(days=1)
        return conversation_rows(conversation.account_id, conversation.id, since, until)

    def _remove(self, conversation: Conversation, lease: Lease) -> None:
        job = Job(
            _erasure(conversation.id),
            ERASE,
            self._clock.now(),
            {
                "accountId": conversation.account_id,
                "userId": conversation.user_id,
                "conversationId": conversation.id,
            },
        )
        try:
            self._records.write(
                lease.guard,
                Delete(self._pointer(conversation.agent_id, conversation.key)),
                Delete(self._key(conversation.id)),
                Delete(self._listed(conversation)),
                Put(self._tombstone(conversation.id), _value(conversation)),
                *self._jobs.wanted(job),
            )
        except Conflict as error:
            raise Busy("the conversation", holder="a process that was faster") from error

    def _gone(self, conversation: Conversation) -> DeletedParts:
        transcript = self.transcript(conversation)
        newest = transcript.newest()
        waiting = with_prefix(self._records, inbox_partition(conversation.id), "0")
        return DeletedParts(
            newest.number if newest else 0, len(transcript.sessions()), len(waiting)
        )

    def _new(self, agent_id: AgentId, key: str, *, forked_from: str | None = None) -> Conversation:
        return Conversation(
            ConversationId(new_id("conv")),
            key,
            self._principal.account_id,
            agent_id,
            self._principal.user_id,
            self._now(),
            forked_from,
        )

    def _create(
        self, conversation: Conversation, sessions: Iterable[Session], entries: Iterable[Carried]
    ) -> Conversation:
        """What it consists of comes first: a conversation that can be found is whole."""
        key = conversation.key
        if self._under(conversation.agent_id, key) is not None:
            raise AlreadyExists("conversation", key)
        transcript = self.transcript(conversation)
        *earlier, newest = sessions
        try:
            transcript.fill(earlier, self._unloaded(conversation, entries))
        except BaseException:
            transcript.erase()
            raise
        try:
            self._records.write(*self._made(conversation, newest))
        except Conflict as error:
            transcript.erase()
            raise AlreadyExists("conversation", key) from error
        return conversation

    def _made(self, conversation: Conversation, newest: Session) -> tuple[Put, ...]:
        """What it can be found by, with its newest session."""
        pointer = self._pointer(conversation.agent_id, conversation.key)
        return (
            self.transcript(conversation).session_put(newest),
            Put(self._key(conversation.id), _value(conversation), expect=ABSENT),
            Put(pointer, conversation.as_json(), expect=ABSENT),
            Put(self._listed(conversation), {}),
        )

    def _under(self, agent_id: AgentId, key: str) -> Conversation | None:
        """Whoever's it is."""
        pointer = self._records.get(self._pointer(agent_id, key))
        if pointer is None:
            return None
        return _conversation(pointer.value["id"], self._principal.account_id, pointer)

    def _unloaded(self, conversation: Conversation, entries: Iterable[Carried]) -> Iterator[Entry]:
        """What lies beside them is there before they are."""
        results = StoredResults(conversation.id, self._large)
        for entry, whole in entries:
            for call_id, text in whole.items():
                results.keep(call_id, text)
            yield entry

    def _look(self, conversation_id: str) -> Conversation | None:
        if not _CONVERSATION_ID.fullmatch(conversation_id):
            return None
        item = self._records.get(self._key(conversation_id))
        account_id = self._principal.account_id
        return _conversation(conversation_id, account_id, item) if item else None

    def _now(self) -> Stamp:
        return stamp_of(self._clock.now())

    @property
    def _pointers(self) -> str:
        return f"conversation-keys:{self._principal.account_id}"

    def _pointer(self, agent_id: AgentId, key: str) -> Key:
        return Key(self._pointers, f"{agent_id}:{key}")

    def _listed(self, conversation: Conversation) -> Key:
        partition = _listing(conversation.account_id, conversation.user_id)
        return Key(partition, conversation.place)

    def _key(self, conversation_id: str) -> Key:
        return conversation_key(self._principal.account_id, conversation_id)

    def _tombstone(self, conversation_id: str) -> Key:
        return Key(
            f"account:{self._principal.account_id}", f"deleted-conversation:{conversation_id}"
        )


def _listing(account_id: AccountId, user_id: UserId) -> str:
    """Where the conversations of a user are listed, in the order they began."""
    return f"conversations:{account_id}:{user_id}"


def _listed_id(item: Item) -> str:
    return item.key.sort.partition(" ")[2]


def _erasure(conversation_id: ConversationId) -> str:
    return f"{ERASE}:{conversation_id}"


def _anew(session: Session, transcript: Transcript, at: int) -> Session:
    """The session as a fork has it: with the summary that stood then."""
    fresh = new_session(session.first, session.started_at)
    if session.window_from <= at and (session.summary or 0) <= at:
        return replace(fresh, window_from=session.window_from, summary=session.summary)
    then = transcript.summary_until(session, at)
    if then is None or then.covers is None:
        return fresh
    return replace(fresh, window_from=then.covers + 1, summary=then.number)


def _is_about(claim: Item, conversation_id: ConversationId) -> bool:
    """An event id says little: a fork repeats those of its original, and after a day it is free again."""
    return claim.value["about"]["conversation"] == conversation_id


def _value(conversation: Conversation) -> dict[str, str]:
    return {name: text for name, text in conversation.as_json().items() if name != "id"}


def _conversation(conversation_id: str, account_id: AccountId, item: Item) -> Conversation:
    value = item.value
    return Conversation(
        ConversationId(conversation_id),
        value["key"],
        account_id,
        AgentId(value["agentId"]),
        UserId(value["userId"]),
        Stamp(value["createdAt"]),
        value.get("forkedFrom"),
        item.counter,
    )
