"""Find, create, fork, list and delete conversations.

A conversation belongs to the user of its first turn; for every other user it does not exist. It is found by
its id, or by its user, agent and key. So two users may use the same key. The full key, which names the lease,
is stored with the conversation and never changes.

Conversations of an older version have no stored full key. An index for the whole account leads to them, and
their lease has the name that now is the account owner's.

A delete has two steps. One batch makes the conversation disappear and enqueues a job that removes its parts.
The deleting process runs that job at once; if it cannot, any other process does.
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
from harness.conversations.queue_state import QueueState, is_idle, queue_partition
from harness.jobs.job import Job, Jobs
from harness.messages.event import full_key
from harness.messages.message import ToolResult
from harness.messages.pending_call import PendingCall
from harness.prompts.prompt_log import PromptLog
from harness.tools.stored_results import StoredResults
from harness.transcripts.approval import pending
from harness.transcripts.session import Session, new_session
from harness.transcripts.transcript import Carried, Entry, Transcript
from workspaces.accounts.principal import Principal
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.coordination.lease import Lease, Leases
from workspaces.errors import AlreadyExists, Busy, Conflict, Forbidden, NotFound, Refused
from workspaces.ids import AccountId, AgentId, ConversationId, UserId, lease_key, new_id
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import Check, Delete, Item, Key, Put, RecordStore, with_prefix
from workspaces.timestamp import Stamp, moment_of, stamp_of

ERASE = "erase"
"""Kind of the job that removes the parts of a deleted conversation."""

DELETED_AT_ONCE = 100
LISTED_AT_ONCE = 100

LET_GO_LOOKS_MAX, LET_GO_LOOK_S = 200, 0.005
"""Checks, and seconds between them, for a lease to be released. Between the end of a turn and the release of
its lease lies one write; a second is long for it."""

INSTRUCT = "give an agent instructions (`system`)"
"""The permission that a user's key does not have."""

_CONVERSATION_ID = re.compile(r"[a-z0-9_]{1,64}")
"""Pattern of the ids that are looked up. Ids are opaque, and no other text is one."""


@dataclass(frozen=True, slots=True)
class Conversation:
    id: ConversationId
    key: str
    account_id: AccountId
    agent_id: AgentId
    user_id: UserId
    created_at: Stamp
    forked_from: str | None = None
    """`<conversation id> <entry number>` of the original, for a fork."""
    stored_key: str | None = None
    """The full key. None for a conversation of an older version."""
    counter: int = 1
    """Counter of the conversation's record, and of its copy under the key. Neither record ever changes."""

    @property
    def exists(self) -> Check:
        """A check for a batch that must fail if the conversation was deleted."""
        return Check(conversation_key(self.account_id, self.id), self.counter)

    @property
    def place(self) -> str:
        """The sort key in the list of the user's conversations."""
        return f"{self.created_at} {self.id}"

    @property
    def lease_key(self) -> str:
        key = self.stored_key or full_key(self.account_id, self.agent_id, self.key)
        return lease_key(key)

    @property
    def pointer(self) -> Key:
        """The record by which the conversation is found under its key."""
        if self.stored_key is None:
            return _old_pointer(self.account_id, self.agent_id, self.key)
        return _pointer(self.account_id, self.user_id, self.agent_id, self.key)

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
    """A conversation that does not exist yet. Its changes are written together with its first content."""

    conversation: Conversation
    session: Session
    """Its first session, as it will be once written."""
    changes: tuple[Put, ...]


@dataclass(frozen=True, slots=True)
class DeletedParts:
    """The numbers of parts that were deleted with a conversation."""

    entries: int
    sessions: int
    waiting: int


def claim_key(account_id: AccountId, user_id: UserId, agent_id: AgentId, event_id: str) -> Key:
    """Return the claim's key. It is under the user, so that an id says nothing about other users' events."""
    return Key(f"claims:{account_id}:{user_id}", f"{agent_id}:{event_id}")


def conversation_key(account_id: AccountId, conversation_id: str) -> Key:
    return Key(f"account:{account_id}", f"conversation:{conversation_id}")


def learning_key(subject: str) -> Key:
    """Return the key of the record of how far background passes have read a conversation or a chain."""
    return Key(f"learning:{subject}", "state")


def learning_job(subject: str) -> str:
    """Return the id of the job that reads a conversation or a chain in the background."""
    return f"learn:{subject}"


class Conversations:
    """The conversations of one principal."""

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
        self.principal = principal
        self.records = records
        self._large = large
        self.clock = clock
        self.leases = leases
        self.jobs = jobs

    def find(self, agent_id: AgentId, key: str) -> Conversation | None:
        """Return the principal's conversation with this agent under this key, if it had a first turn."""
        return self._by_key(agent_id, key)

    def get(self, conversation_id: str) -> Conversation:
        """Return the conversation with this id.

        Raises: NotFound, also for another user's conversation.
        """
        found = self._by_id(conversation_id)
        if found is None or found.user_id != self.principal.user_id:
            raise NotFound("conversation", conversation_id)
        return found

    def open(self, agent_id: AgentId, key: str) -> Conversation:
        """Return the conversation under this key; create it if it is new."""
        found = self.found_or_new(agent_id, key)
        if isinstance(found, Conversation):
            return found
        try:
            self.records.write(*found.changes)
        except Conflict:  # another caller created it at the same moment
            return self.open(agent_id, key)
        return found.conversation

    def found_or_new(self, agent_id: AgentId, key: str) -> Conversation | New:
        """Return the conversation under this key, or the changes that create it."""
        found = self._by_key(agent_id, key)
        if found is None:
            fresh = self._new(agent_id, key)
            session = new_session(1, fresh.created_at)
            return New(fresh, replace(session, counter=1), self._creation(fresh, session))
        return found

    def list(
        self, agent_id: AgentId | None = None, *, behind: str = "", limit: int | None = None
    ) -> list[Conversation]:
        """Return the conversations, newest first; only those behind a `place` in this list."""
        return list(islice(self._newest_first(agent_id, behind), limit))

    def _newest_first(self, agent_id: AgentId | None, behind: str) -> Iterator[Conversation]:
        partition = _listing(self.principal.account_id, self.principal.user_id)
        end = behind or None
        while page := self.records.scan(partition, end=end, backwards=True, limit=LISTED_AT_ONCE):
            for item in page:
                found = self._by_id(_listed_id(item))
                if found is not None and agent_id in (None, found.agent_id):
                    yield found
            end = page[-1].key.sort

    def of_account(self) -> list[Conversation]:
        """Return the conversations of all users of the account.

        Raises: Forbidden for a user who may not change the account.
        """
        if not self.principal.may_configure:
            raise Forbidden("see the conversations of other users")
        partition, prefix = self._key("")
        ids = (
            item.key.sort.removeprefix(prefix)
            for item in with_prefix(self.records, partition, prefix)
        )
        return [one for one in map(self._by_id, ids) if one is not None]

    def transcript(
        self, conversation: Conversation, *, on_append: Callable[[int], None] | None = None
    ) -> Transcript:
        return Transcript(conversation.id, self.records, self._large, on_append=on_append)

    def queue(self, conversation: Conversation) -> QueueState:
        """Return the queue of one conversation, to read it."""
        return QueueState(conversation.id, self.records, self._large)

    def pending(self, conversation: Conversation) -> tuple[PendingCall, ...]:
        """Return the calls of a conversation that wait for approval or for the client."""
        paused = self.queue(conversation).paused()
        if paused is None:
            return ()
        return pending(list(self.transcript(conversation).entries(paused.first)))

    def prompt_log(self, conversation: Conversation) -> PromptLog:
        return PromptLog(conversation.id, self.records, self._large)

    def reset(self, conversation: Conversation) -> Session:
        """Start a new session.

        Raises: Busy while a turn runs or was interrupted.
        """
        with self.leased(conversation) as lease:
            self.check_at_rest(conversation)
            return self.transcript(conversation).reset(lease, self._now())

    def check_at_rest(self, conversation: Conversation) -> None:
        """Check that no turn waits or was interrupted. The lease holder calls it, so no turn runs either.

        Raises: Busy when a turn waits or was interrupted.
        """
        head = self.queue(conversation).head()
        if head.running is not None:
            raise Busy("the conversation", holder="a turn that was interrupted")
        if head.paused is not None:
            raise Busy("the conversation", holder="a turn that waits for an answer")

    def fork(self, conversation: Conversation, key: str, at: int | None = None) -> Conversation:
        """Create a conversation that begins with this one's entries, up to number `at` or all.

        Only a fork with all entries includes a reset behind the last entry.

        Raises: Refused when there is no entry `at`.
        """
        transcript = self.transcript(conversation)
        newest = transcript.newest()
        last = newest.number if newest else 0
        begun_until = last + 1 if at is None else at
        at = last if at is None else at
        if not 1 <= at <= last:
            raise Refused("at", at, f"must be between 1 and {last}")
        fresh = self._new(conversation.agent_id, key, forked_from=f"{conversation.id} {at}")
        kept = [one for one in transcript.sessions() if one.first <= begun_until]
        sessions = [_session_of_fork(one, transcript, at) for one in kept]
        return self._create(fresh, sessions, self.carried(conversation, at))

    def carried(self, conversation: Conversation, last: int | None = None) -> Iterator[Carried]:
        """Yield the entries up to `last` or all, with the full texts of shortened results."""
        kept = StoredResults(conversation.id, self._large).stored_lookup()
        for entry in self.transcript(conversation).entries(1, last):
            parts = entry.message.parts
            calls = [part.call_id for part in parts if isinstance(part, ToolResult)]
            whole = {call: text for call in calls if (text := kept(call)) is not None}
            yield Carried(entry, whole)

    def add(
        self, agent_id: AgentId, key: str, sessions: Iterable[Session], entries: Iterable[Carried]
    ) -> Conversation:
        """Create a conversation from the entries of an import.

        Raises: AlreadyExists when the key is taken.
        """
        return self._create(self._new(agent_id, key), sessions, self._check_instructions(entries))

    def _check_instructions(self, entries: Iterable[Carried]) -> Iterator[Carried]:
        """Yield the entries, if the principal may bring the instructions in them.

        Raises: Forbidden when a user brings a platform's instructions to its models.
        """
        for carried in entries:
            if carried.entry.system and not self.principal.may_configure:
                raise Forbidden(INSTRUCT)
            yield carried

    def delete(self, conversation: Conversation) -> DeletedParts:
        """Delete the conversation and everything in it.

        Raises: Busy while a turn runs.
        """
        deleted_parts = self._count_parts(conversation)
        with self.leased(conversation) as lease:
            self._remove(conversation, lease)
        # another process runs the job at this moment, or a backup puts it off: the job will finish it
        with suppress(Conflict, Busy):
            self.erase(conversation.id)
            self.records.write(*self.jobs.unwanted(_erasure(conversation.id)))
        return deleted_parts

    def delete_with(self, agent_id: AgentId) -> int:
        """Delete all users' conversations with this agent, which is being deleted. Return their number."""
        partition, prefix = self._key("")
        conversations = with_prefix(self.records, partition, prefix)
        return self._delete_all(
            item.key.sort.removeprefix(prefix)
            for item in conversations
            if item.value["agentId"] == agent_id
        )

    def delete_of(self, user_id: UserId) -> int:
        """Delete all conversations of a user who is being deleted, with all agents. Return their number."""
        partition = _listing(self.principal.account_id, user_id)
        return self._delete_all(
            _listed_id(item) for item in with_prefix(self.records, partition, "")
        )

    def acquire(self, conversation: Conversation) -> Lease:
        """Acquire the conversation's lease.

        A turn releases its lease a moment after its end is known. So a caller that just saw the end is not
        refused: this waits for the release.

        Raises: Busy while a turn runs or waits.
        """
        for _ in range(LET_GO_LOOKS_MAX):
            with suppress(Busy):
                return self.leases.acquire(conversation.lease_key)
            if self.is_in_use(conversation):
                raise Busy("the conversation", holder="a turn")
            time.sleep(LET_GO_LOOK_S)
        return self.leases.acquire(conversation.lease_key)

    @contextmanager
    def leased(self, conversation: Conversation) -> Generator[Lease]:
        """Hold the conversation's lease during the block, so that no turn runs.

        Raises: Busy while a turn runs or waits.
        """
        lease = self.acquire(conversation)
        try:
            yield lease
        finally:
            self.leases.release(lease)

    def is_in_use(self, conversation: Conversation) -> bool:
        """Return True if a turn runs or an event waits."""
        return not is_idle(*self.queue(conversation).ends())

    def _delete_all(self, ids: Iterable[str]) -> int:
        found = [one for one in map(self._by_id, ids) if one is not None]
        for conversation in found:
            self.delete(conversation)
        return len(found)

    def erase(self, conversation_id: ConversationId) -> None:
        """Remove the parts of a deleted conversation.

        It can be repeated after an interruption. The transcript is removed after the claims of its events,
        because the claims are found by it.
        """
        transcript = Transcript(conversation_id, self.records, self._large)
        tombstone = self.records.get(self._tombstone(conversation_id))
        if tombstone is None:
            return
        deleted = _conversation(conversation_id, self.principal.account_id, tombstone)
        queue = with_prefix(self.records, queue_partition(conversation_id), "")
        waiting = (item.value["event"] for item in queue if "event" in item.value)
        said = (entry.event_id for entry in transcript.entries() if entry.event_id is not None)
        events = dict.fromkeys([*(one["id"] for one in waiting), *said])
        claims = (self.records.get(deleted.claim_key(event)) for event in events)
        keys = [item.key for item in queue]
        keys += [claim.key for claim in claims if claim and _is_about(claim, conversation_id)]
        keys += [*self._usage_rows(deleted), learning_key(conversation_id)]
        for start in range(0, len(keys), DELETED_AT_ONCE):
            batch = keys[start : start + DELETED_AT_ONCE]
            self.records.write(*(Delete(key) for key in batch))
        PromptLog(conversation_id, self.records, self._large).erase()
        transcript.erase()
        self.records.write(Delete(tombstone.key), *self.jobs.unwanted(f"turn:{conversation_id}"))

    def _usage_rows(self, conversation: Conversation) -> list[Key]:
        """Return the usage rows, from the day before the conversation began: clocks of machines differ."""
        since = moment_of(conversation.created_at).date() - timedelta(days=1)
        until = self.clock.now().date() + timedelta(days=1)
        return conversation_rows(conversation.account_id, conversation.id, since, until)

    def _remove(self, conversation: Conversation, lease: Lease) -> None:
        job = Job(
            _erasure(conversation.id),
            ERASE,
            self.clock.now(),
            {
                "accountId": conversation.account_id,
                "userId": conversation.user_id,
                "conversationId": conversation.id,
            },
        )
        jobs = (
            *self.jobs.wanted(job),
            *self.jobs.unwanted(learning_job(conversation.id)),
        )
        try:
            self.records.write(
                lease.guard,
                Delete(conversation.pointer),
                Delete(self._key(conversation.id)),
                Delete(self._listed(conversation)),
                Put(self._tombstone(conversation.id), _value(conversation)),
                *jobs,
            )
        except Conflict as error:
            raise Busy("the conversation", holder="another process") from error

    def _count_parts(self, conversation: Conversation) -> DeletedParts:
        transcript = self.transcript(conversation)
        newest = transcript.newest()
        waiting = with_prefix(self.records, queue_partition(conversation.id), "0")
        return DeletedParts(
            newest.number if newest else 0, len(transcript.sessions()), len(waiting)
        )

    def _new(self, agent_id: AgentId, key: str, *, forked_from: str | None = None) -> Conversation:
        return Conversation(
            id=ConversationId(new_id("conv")),
            key=key,
            account_id=self.principal.account_id,
            agent_id=agent_id,
            user_id=self.principal.user_id,
            created_at=self._now(),
            forked_from=forked_from,
            stored_key=self._full_key(agent_id, key),
        )

    def _full_key(self, agent_id: AgentId, key: str) -> str:
        """Return the full key of a new conversation. The short form is the owner's, unless an older version
        gave it to another user."""
        account_id, user_id = self.principal.account_id, self.principal.user_id
        is_owner = user_id == self.principal.owner.id
        if is_owner and self.records.get(_old_pointer(account_id, agent_id, key)) is None:
            return full_key(account_id, agent_id, key)
        return full_key(account_id, agent_id, key, user_id)

    def _create(
        self, conversation: Conversation, sessions: Iterable[Session], entries: Iterable[Carried]
    ) -> Conversation:
        """Write the conversation.

        Its parts are written first, so a conversation that can be found is complete.
        """
        key = conversation.key
        if self._by_key(conversation.agent_id, key) is not None:
            raise AlreadyExists("conversation", key)
        transcript = self.transcript(conversation)
        *earlier, newest = sessions
        try:
            transcript.fill(earlier, self._with_full_texts(conversation, entries))
        except BaseException:
            transcript.erase()
            raise
        try:
            self.records.write(*self._creation(conversation, newest))
        except Conflict as error:
            transcript.erase()
            raise AlreadyExists("conversation", key) from error
        return conversation

    def _creation(self, conversation: Conversation, newest: Session) -> tuple[Put, ...]:
        """Return the records by which the conversation is found, with its newest session."""
        found = {**_value(conversation), "id": conversation.id}
        return (
            self.transcript(conversation).session_put(newest),
            Put(self._key(conversation.id), _value(conversation), expect=ABSENT),
            Put(conversation.pointer, found, expect=ABSENT),
            Put(self._listed(conversation), {}),
        )

    def _by_key(self, agent_id: AgentId, key: str) -> Conversation | None:
        """Return the principal's conversation under this key. An older version's index may hold it."""
        account_id, user_id = self.principal.account_id, self.principal.user_id
        pointer = self.records.get(_pointer(account_id, user_id, agent_id, key))
        if pointer is None:
            pointer = self.records.get(_old_pointer(account_id, agent_id, key))
            if pointer is None or pointer.value["userId"] != user_id:
                return None
        return _conversation(pointer.value["id"], account_id, pointer)

    def _with_full_texts(
        self, conversation: Conversation, entries: Iterable[Carried]
    ) -> Iterator[Entry]:
        """Store the full texts of shortened results, and yield each entry after its texts."""
        results = StoredResults(conversation.id, self._large)
        for entry, whole in entries:
            for call_id, text in whole.items():
                results.keep(call_id, text)
            yield entry

    def _by_id(self, conversation_id: str) -> Conversation | None:
        if not _CONVERSATION_ID.fullmatch(conversation_id):
            return None
        item = self.records.get(self._key(conversation_id))
        account_id = self.principal.account_id
        return _conversation(conversation_id, account_id, item) if item else None

    def _now(self) -> Stamp:
        return stamp_of(self.clock.now())

    def _listed(self, conversation: Conversation) -> Key:
        partition = _listing(conversation.account_id, conversation.user_id)
        return Key(partition, conversation.place)

    def _key(self, conversation_id: str) -> Key:
        return conversation_key(self.principal.account_id, conversation_id)

    def _tombstone(self, conversation_id: str) -> Key:
        return Key(
            f"account:{self.principal.account_id}", f"deleted-conversation:{conversation_id}"
        )


def _pointer(account_id: AccountId, user_id: UserId, agent_id: AgentId, key: str) -> Key:
    return Key(f"conversation-keys:{account_id}:{user_id}", f"{agent_id}:{key}")


def _old_pointer(account_id: AccountId, agent_id: AgentId, key: str) -> Key:
    """Return the record in which older versions kept a key, for all users of the account."""
    return Key(f"conversation-keys:{account_id}", f"{agent_id}:{key}")


def _listing(account_id: AccountId, user_id: UserId) -> str:
    """Return the partition that lists a user's conversations, in the order they began."""
    return f"conversations:{account_id}:{user_id}"


def _listed_id(item: Item) -> str:
    return item.key.sort.partition(" ")[2]


def _erasure(conversation_id: ConversationId) -> str:
    return f"{ERASE}:{conversation_id}"


def _session_of_fork(session: Session, transcript: Transcript, at: int) -> Session:
    """Return the session as a fork has it: with the summary that stood at entry `at`."""
    fresh = new_session(session.first, session.started_at)
    skipped = tuple((first, min(last, at)) for first, last in session.skipped if first <= at)
    fresh = replace(fresh, skipped=skipped)
    if session.window_from <= at and (session.summary or 0) <= at:
        return replace(fresh, window_from=session.window_from, summary=session.summary)
    then = transcript.summary_until(session, at)
    if then is None or then.covers is None:
        return fresh
    return replace(fresh, window_from=then.covers + 1, summary=then.number)


def _is_about(claim: Item, conversation_id: ConversationId) -> bool:
    """Return True if the claim belongs to this conversation.

    An event id alone says little: a fork repeats its original's ids, and after a day an id is free again.
    """
    return claim.value["about"]["conversation"] == conversation_id


def _value(conversation: Conversation) -> dict[str, str]:
    shown = {name: text for name, text in conversation.as_json().items() if name != "id"}
    return {**shown, **({"fullKey": conversation.stored_key} if conversation.stored_key else {})}


def _conversation(conversation_id: str, account_id: AccountId, item: Item) -> Conversation:
    value = item.value
    return Conversation(
        id=ConversationId(conversation_id),
        key=value["key"],
        account_id=account_id,
        agent_id=AgentId(value["agentId"]),
        user_id=UserId(value["userId"]),
        created_at=Stamp(value["createdAt"]),
        forked_from=value.get("forkedFrom"),
        stored_key=value.get("fullKey"),
        counter=item.counter,
    )
