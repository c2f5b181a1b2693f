"""How far a conversation has been read, what is being asked, and what was answered.

    learning:<conversation or chain>    state   {until, asked?, reply?, seen?, tries?}
    learning-days:<account>             <day>   {<count>: number}
    learning-told:<account>             told    {}

A pass writes three times. Before the request it notes what it asks. With the reply it stores what it will do.
At the end it moves `until`. So a pass that was interrupted after the reply goes on without another request.
One that was interrupted before is not asked again, because its request may have been billed. Its text stays
unread, and the next pass reads it with whatever is said by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from harness.conversations.conversation import learning_key
from harness.messages.model_request import CommitPuts
from workspaces.clock import Clock
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Busy, Conflict
from workspaces.ids import AccountId
from workspaces.localfs.process import is_dead, this_process
from workspaces.storage.contention import until_written
from workspaces.storage.records import Check, Condition, Counter, JsonObject, Key, Put, RecordStore
from workspaces.timestamp import Stamp, moment_of, stamp_of

ASKED_S_MAX = 900.0
"""Seconds after which a request has certainly ended, in whatever process."""

DAY_KEPT_S = 90 * 86_400.0

NoteUsage = Callable[[CommitPuts], None]
"""Records the usage of a reply in the batch of other changes."""

PassCount = Literal[
    "passes",  # the model was asked, and its reply was used
    "facts",  # facts stored
    "blocks",  # memory blocks changed
    "secrets",  # facts and blocks left out because they looked like secrets
    "over_limit",  # not asked: the account's limit of the day
    "over_budget",  # not asked: one pass would cost too much
    "failed",  # asked, and no usable reply came
    "gave_up",  # a block changed while the model answered, each time
    "interrupted",  # the process died, or was stopped, while the model answered
]


@dataclass(frozen=True, slots=True)
class PassState:
    """The state of one conversation or chain."""

    until: int = 0
    """The newest entry that was read."""
    asked: JsonObject | None = None
    """The request in progress: its process, its time, and the newest entry of its text."""
    reply: JsonObject | None = None
    """The checked reply of a pass that is not finished."""
    seen: int = 0
    """The newest entry of a text whose request was interrupted, or failed for good."""
    tries: int = 0
    """Requests in a row that a passing fault of the provider answered."""
    counter: Condition = field(default=ABSENT, compare=False)

    def as_json(self) -> JsonObject:
        return {
            "until": self.until,
            **({"asked": self.asked} if self.asked else {}),
            **({"reply": self.reply} if self.reply else {}),
            **({"seen": self.seen} if self.seen else {}),
            **({"tries": self.tries} if self.tries else {}),
        }


@dataclass(frozen=True, slots=True)
class PassRecords:
    """The records of an account's passes. Threads may share it."""

    account_id: AccountId
    records: RecordStore
    clock: Clock

    def state(self, subject: str) -> PassState:
        item = self.records.get(learning_key(subject))
        if item is None:
            return PassState()
        value: Mapping[str, Any] = item.value
        return PassState(
            until=value["until"],
            asked=value.get("asked"),
            reply=value.get("reply"),
            seen=value.get("seen", 0),
            tries=value.get("tries", 0),
            counter=item.counter,
        )

    def write(
        self,
        subject: str,
        state: PassState,
        *,
        note: NoteUsage | None = None,
        exists: Check | None = None,
    ) -> PassState:
        """Store a state, if it is still the one that was read and what it is about exists.

        `note` records usage in the same batch, or alone if the state is not stored.

        Raises: Busy if another process has changed it.
        """
        checks = () if exists is None else (exists,)
        put = Put(learning_key(subject), state.as_json(), state.counter)
        counters: list[Counter] = []

        def commit(noted: Sequence[Put]) -> Sequence[Counter]:
            counters[:] = self.records.write(*noted, put, *checks)
            return counters[: len(noted)]

        try:
            (note or _nothing_to_note)(commit)
        except Conflict as conflict:
            raise Busy("the conversation", holder="another pass over it") from conflict
        return replace(state, counter=counters[-1])

    def record_usage(self, note: NoteUsage | None) -> None:
        """Record usage alone."""
        (note or _nothing_to_note)(lambda noted: self.records.write(*noted) if noted else ())

    def settled(self, subject: str) -> PassState:
        """Return the state, after ending a request whose process is gone.

        Raises: Busy while the request may still be answered.
        """
        state = self.state(subject)
        if state.asked is None:
            return state
        asked_at = moment_of(Stamp(state.asked["at"]))
        is_over = self.clock.now() - asked_at > timedelta(seconds=ASKED_S_MAX)
        if not is_over and not is_dead(state.asked["process"]):
            raise Busy("the conversation", holder="another pass over it")
        self.count("interrupted")
        return self.write(subject, replace(state, asked=None, seen=state.asked["until"]))

    def asking(self, state: PassState, until: int) -> PassState:
        """Return the state with a request that is about to be sent."""
        asked = {"process": this_process(), "at": stamp_of(self.clock.now()), "until": until}
        return replace(state, asked=asked)

    @until_written("learning")
    def count(self, what: PassCount, number: int = 1) -> None:
        """Add to a count of today."""
        if not number:
            return
        key = Key(f"learning-days:{self.account_id}", self._today())
        expires_at = self.clock.now().timestamp() + DAY_KEPT_S
        item = self.records.get(key)
        counts: JsonObject = {} if item is None else item.value
        value = {**counts, what: counts.get(what, 0) + number}
        counter = ABSENT if item is None else item.counter
        self.records.write(Put(key, value, counter, expires_at))

    def today(self) -> Mapping[str, int]:
        """Return the counts of today."""
        item = self.records.get(Key(f"learning-days:{self.account_id}", self._today()))
        return {} if item is None else item.value

    def is_told(self) -> bool:
        """Return True if the account's owner was told that conversations are read in the background."""
        return self.records.get(told_key(self.account_id)) is not None

    def tell(self) -> None:
        """Note that the account's owner was told."""
        self.records.write(Put(told_key(self.account_id), {}, ANY))

    def _today(self) -> str:
        return self.clock.now().date().isoformat()


def _nothing_to_note(commit: CommitPuts) -> None:
    commit(())


def told_key(account_id: AccountId) -> Key:
    return Key(f"learning-told:{account_id}", "told")
