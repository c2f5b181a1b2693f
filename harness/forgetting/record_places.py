"""The records of an account that hold text, partition by partition.

A record store lists one partition at a time. So this module knows all partitions that docs/data.md names, and
a test compares them with those of a home in use. Sums of usage, leases and places in lists hold no text and
are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from workspaces.accounts.stored_items import partition_of
from workspaces.ids import AccountId, UserId
from workspaces.storage.records import Item, Key, RecordStore, with_prefix

Where = Literal[
    "file",
    "history",
    "record",
    "conversation",
    "queued event",
    "snapshot",
    "receipt",
    "large value",
    "learning",
    "run",
    "archive",
    "index",
    "job",
    "trash",
    "temporary file",
    "local file",
    "database",
    "backup",
    "object",
    "pack",
    "version",
]
"""The kinds of places in which a text can be."""


@dataclass(frozen=True, slots=True)
class RecordPartition:
    """Records of one kind. `subject` is the conversation, run or archive that they belong to."""

    partition: str
    where: Where
    subject: str | None = None
    only: str | None = None
    """The sort key of the one item that belongs to the account; None: all of them."""

    def items(self, records: RecordStore) -> list[Item]:
        if self.only is None:
            return with_prefix(records, self.partition, "")
        item = records.get(Key(self.partition, self.only))
        return [] if item is None else [item]


@dataclass(frozen=True, slots=True)
class AccountSubjects:
    """The ids of what an account's records belong to."""

    conversations: tuple[str, ...]
    archives: tuple[str, ...]
    runs: tuple[str, ...]

    @property
    def owners_of_values(self) -> tuple[str, ...]:
        """Return the ids under which large values lie."""
        return (*self.conversations, *self.archives, *self.runs)


class AccountPlaces:
    """The places of one account's records."""

    def __init__(self, account_id: AccountId, records: RecordStore) -> None:
        self._account_id = account_id
        self._records = records

    def subjects(self) -> AccountSubjects:
        own = with_prefix(self._records, partition_of(self._account_id), "")
        kinds = ("conversation:", "deleted-conversation:")
        conversations = [_id(item) for item in own if item.key.sort.startswith(kinds)]
        archives = [
            item.key.sort
            for user_id in self._user_ids()
            for item in with_prefix(self._records, self._of_user("archives", user_id), "arc_")
        ]
        runs = [item.key.sort for item in with_prefix(self._records, self._of("runs"), "")]
        return AccountSubjects(tuple(conversations), tuple(archives), tuple(runs))

    def archives_of(self, conversation_id: str) -> list[tuple[UserId, str]]:
        """Return the archives of a conversation, each with the user whose facts cite it."""
        return [
            (UserId(user_id), item.key.sort)
            for user_id in self._user_ids()
            for item in with_prefix(self._records, self._of_user("archives", user_id), "arc_")
            if item.value["uuid"] == conversation_id
        ]

    def facts_citing(self, conversation_id: str) -> list[str]:
        """Return the ids of the facts that cite a conversation."""
        archives = [archive_id for _, archive_id in self.archives_of(conversation_id)]
        cited = (with_prefix(self._records, f"archive-citations:{one}", "mem_") for one in archives)
        return [item.key.sort for items in cited for item in items]

    def runs_in(self, conversation_id: str) -> list[str]:
        """Return the runs whose turns are in a conversation."""
        items = with_prefix(self._records, self._of("runs"), "")
        return [one.key.sort for one in items if one.value.get("conversationId") == conversation_id]

    def of_conversation(self, conversation_id: str) -> Iterator[RecordPartition]:
        """Yield the partitions that only the holder of the conversation's lease may change."""
        kinds: tuple[tuple[str, Where], ...] = (
            ("transcript", "conversation"),
            ("sessions", "conversation"),
            ("inbox", "queued event"),
            ("shown", "snapshot"),
            ("learning", "learning"),
        )
        for prefix, where in kinds:
            yield RecordPartition(f"{prefix}:{conversation_id}", where, conversation_id)

    def others(self) -> Iterator[RecordPartition]:
        """Yield all other partitions."""
        own = partition_of(self._account_id)
        yield RecordPartition(own, "record")
        yield RecordPartition("accounts", "record", only=f"account:{self._account_id}")
        for item in with_prefix(self._records, own, "key:"):
            yield RecordPartition(item.value["at"], "record", only="key")
        yield RecordPartition(self._of("conversation-keys"), "record")
        for user_id in self._user_ids():
            yield RecordPartition(self._of_user("conversation-keys", user_id), "record")
            yield RecordPartition(self._of_user("claims", user_id), "queued event")
            yield RecordPartition(self._of_user("archives", user_id), "archive")
        for archive_id in self.subjects().archives:
            yield RecordPartition(f"archive-citations:{archive_id}", "archive", archive_id)
        yield RecordPartition(self._of("runs"), "run")
        yield RecordPartition(self._of("chains"), "run")
        for chain in with_prefix(self._records, self._of("chains"), ""):
            yield RecordPartition(f"learning:{chain.key.sort}", "learning", chain.key.sort)
        for job in with_prefix(self._records, "jobs", ""):
            if job.value.get("payload", {}).get("accountId") == self._account_id:
                yield RecordPartition("jobs", "job", only=job.key.sort)
                yield RecordPartition("jobs-claims", "job", only=job.key.sort)

    def _user_ids(self) -> list[str]:
        return [
            _id(item)
            for item in with_prefix(self._records, partition_of(self._account_id), "user:")
        ]

    def _of(self, kind: str) -> str:
        return f"{kind}:{self._account_id}"

    def _of_user(self, kind: str, user_id: str) -> str:
        return f"{kind}:{self._account_id}:{user_id}"


def _id(item: Item) -> str:
    return item.key.sort.partition(":")[2]
