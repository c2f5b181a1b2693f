"""The usage of an account's models, and what it cost.

A *note* is written after every request to a model, whatever its result, and is durable on return. The usage
of a reply that a turn stores is written in the same batch as the reply. A note adds to five sums: the
account's day and month, and the agent's, the user's and the conversation's day. A report over a period reads
a fixed number of rows for each day, however many requests they stand for. Each sum has one cell for every
purpose and model.

Sums that many writers add to are exact, because every addition is conditional on the sum that it was added
to. Three things keep that cheap:

Within a process one writer writes the notes of all threads that wait, so a process never loses a race against
itself. A note that is written with a reply takes its turn between these batches.

A sum that this process wrote last is not read again, until a conflict shows that another process wrote it.

A writer whose answer got lost finds out whether its notes were written. Each batch has a number, and the
account's row of the day stores the latest number of each writer.

Days and months are UTC. The cost of a request is decided when its note is made, by the prices of that moment.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Literal, assert_never

from harness.billing.price import NANODOLLARS, Prices
from harness.messages.model_request import NO_USAGE, CommitPuts, Usage, usage_of
from harness.runtime.json_log import event
from workspaces.accounts.principal import Principal
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, Failure, Forbidden, Refused, Unavailable
from workspaces.ids import AccountId, AgentId, ConversationId, UserId
from workspaces.storage.contention import attempts, contended
from workspaces.storage.records import (
    Counter,
    Delete,
    Item,
    JsonObject,
    Key,
    Put,
    RecordStore,
    with_prefix,
)

UsagePurpose = Literal["turn", "compaction", "extraction", "sleep"]
"""The purpose of a request. Code that asks for another purpose adds its word here."""

Dimension = Literal["day", "agent", "user", "conversation", "purpose", "model"]
Spending = Literal["agent", "user", "conversation"]
"""The dimensions with sums of their own, besides the account."""

_log = logging.getLogger("harness.billing.ledger")

NOTES_MAX = 16
"""The most notes in one batch: five sums each stay below the hundred changes of a batch."""

LOST_MAX = 3
PAUSE_S = 0.01

CELLS_MAX = 200
"""The most cells in one sum. On a day with more models, the later ones count as `other`."""

KEPT_MAX = 1_000
"""The most sums that are kept in memory, a few hundred bytes each. These need no read before an addition."""

WRITERS_MAX = 32
"""The most processes that may wait for a lost answer at the same time."""

LINES_MAX = 1_000
"""The most rows in one report, the most expensive first. Further conversations and users count as `other`."""

DAYS_MAX = 400
"""The most days in one report: a year and the month that it is compared with."""


@dataclass(frozen=True, slots=True)
class UsageOwner:
    """The owner of a request's usage, and the request's purpose."""

    account_id: AccountId
    agent_id: AgentId
    user_id: UserId
    conversation_id: ConversationId | None = None
    """None for a request outside any conversation, as the extraction of a schedule."""
    purpose: UsagePurpose = "turn"


@dataclass(frozen=True, slots=True)
class Spent:
    """A sum of usage and cost."""

    asked: int = 0
    """The number of requests."""
    usage: Usage = NO_USAGE
    nanodollars: int = 0
    unpriced: int = 0
    """Requests to models without a price: their tokens are counted, their dollars are not."""

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.asked + other.asked,
            self.usage + other.usage,
            self.nanodollars + other.nanodollars,
            self.unpriced + other.unpriced,
        )

    @property
    def dollars(self) -> float:
        return self.nanodollars / NANODOLLARS

    def as_json(self) -> JsonObject:
        return {
            "asked": self.asked,
            **self.usage.as_json(),
            "dollars": self.dollars,
            "unpriced": self.unpriced,
        }


NOTHING = Spent()

Cells = dict[str, Spent]
"""Sums by purpose and model."""


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One row of a report."""

    name: str
    """A day, an id, a purpose or a model."""
    spent: Spent


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The usage of a period, summed up by one dimension."""

    since: date
    until: date
    """The last day of the period. Both days belong to it."""
    by: Dimension
    lines: tuple[UsageRow, ...]
    """The rows: days in order, any other dimension with the most expensive first."""
    total: Spent
    prices: str
    """The day of the current prices. Older requests keep the cost that they had when they were made."""

    def as_json(self) -> JsonObject:
        return {
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
            "by": self.by,
            "rows": [{self.by: line.name, **line.spent.as_json()} for line in self.lines],
            "total": self.total.as_json(),
            "prices": self.prices,
        }


def day_of(field: str, text: str | None) -> date | None:
    """Return the day that a request or an option names.

    Raises: Refused, naming the field, for text that is not a day.
    """
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError as error:
        raise Refused(field, text, "must be a day, as 2026-11-01") from error


def conversation_rows(
    account_id: AccountId, conversation_id: ConversationId, since: date, until: date
) -> list[Key]:
    """Return the keys where a conversation may have sums of these days. They are deleted with the
    conversation.

    Its usage stays in the sums of its account, agent and user.
    """
    days = (since + timedelta(days=number) for number in range((until - since).days + 1))
    return [_key(account_id, _day(day, f"conversation:{conversation_id}")) for day in days]


@dataclass(slots=True, eq=False)
class _Note:
    """The usage of one request, to be written."""

    owner: UsageOwner
    model: str
    spent: Spent
    day: date
    is_over: bool = False
    error: Failure | None = field(
        default_factory=lambda: Unavailable("usage", "it was not recorded")
    )
    """None once the note is written."""

    @property
    def cell(self) -> str:
        return f"{self.owner.purpose} {self.model}"


@dataclass(slots=True)
class _NoteQueue:
    """The queue of notes that wait for the next batch."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[_Note] = field(default_factory=list[_Note])
    writing: threading.Lock = field(default_factory=threading.Lock)
    batches: int = 0


class Ledger:
    """The usage of all accounts of a home. Threads and any number of processes may share it."""

    def __init__(
        self,
        records: RecordStore,
        clock: Clock,
        prices: Callable[[], Prices],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._prices = prices
        self._records = records
        self._clock = clock
        self._sleep = sleep
        self._name = secrets.token_hex(6)
        self._queue = _NoteQueue()
        self._written_sums: dict[Key, Item] = {}
        """Sums as this process wrote them last. They are current unless another process wrote to them too."""

    @property
    def prices(self) -> Prices:
        """Return the prices, read when they are first needed."""
        return self._prices()

    def note(self, owner: UsageOwner, model: str, usage: Usage) -> None:
        """Write a note. It is durable on return.

        Raises: Unavailable when it is unknown whether the note was written.
        """
        note = self._new_note(owner, model, usage)
        with self._queue.guard:
            self._queue.waiting.append(note)
        with self._queue.writing:
            while not note.is_over:
                self._write_batch()
        if note.error is not None:
            raise note.error

    def note_with(self, owner: UsageOwner, model: str, usage: Usage, commit: CommitPuts) -> None:
        """Write a note in one batch with the other changes that `commit` writes.

        If that batch is refused or fails, the note is written alone, because the usage happened, and then the
        failure is raised.
        """
        batch, queue = [self._new_note(owner, model, usage)], self._queue
        with queue.writing:
            queue.batches += 1
            try:
                self._write(batch, queue.batches, commit)
            except Failure:
                self._write(batch, queue.batches, self._commit)
                raise

    def today(self) -> date:
        return self._clock.now().date()

    def spent_on(
        self, account_id: AccountId, day: date, purposes: Collection[UsagePurpose] | None = None
    ) -> Spent:
        """Return the sum that an account spent on a day, for these purposes or for all."""
        cells = self._cells(_key(account_id, _day(day, "account")))
        return _sum(
            spent
            for cell, spent in cells.items()
            if purposes is None or cell.partition(" ")[0] in purposes
        )

    def spent_in_month(self, account_id: AccountId, day: date) -> Spent:
        return _sum(self._cells(_key(account_id, _month(day))).values())

    def report(
        self,
        account_id: AccountId,
        *,
        since: date | None = None,
        until: date | None = None,
        by: Dimension = "day",
        of: tuple[Spending, str] | None = None,
    ) -> UsageReport:
        """Return the report of a period; without days, of the month so far. `of` restricts it to one
        agent, user or conversation."""
        until = until or self.today()
        since = since or until.replace(day=1)
        days = _days(since, until)
        sums: dict[str, Spent] = {}
        for day in days:
            for name, spent in self._sums_of(account_id, day, by, of):
                sums[name] = sums.get(name, NOTHING) + spent
        lines = [UsageRow(name, spent) for name, spent in sums.items()]
        if by != "day":
            lines.sort(key=lambda line: (-line.spent.nanodollars, -line.spent.asked, line.name))
            lines = _cut(lines)
        return UsageReport(since, until, by, tuple(lines), _sum(sums.values()), self.prices.valid)

    def forget(self, account_id: AccountId) -> None:
        """Delete the usage of an account that is being deleted."""
        for item in with_prefix(self._records, _partition(account_id), ""):
            self._records.write(Delete(item.key))

    # reading

    def _sums_of(
        self, account_id: AccountId, day: date, by: Dimension, of: tuple[Spending, str] | None
    ) -> Iterable[tuple[str, Spent]]:
        match by:
            case "day" | "purpose" | "model":
                row = "account" if of is None else ":".join(of)
                for cell, spent in self._cells(_key(account_id, _day(day, row))).items():
                    purpose, _, model = cell.partition(" ")
                    yield {"day": day.isoformat(), "purpose": purpose, "model": model}[by], spent
            case "agent" | "user" | "conversation":
                if of is not None:
                    rule = f"cannot be summed up by {by}: such sums are not stored"
                    raise Refused(of[0], of[1], rule)
                prefix = _day(day, f"{by}:")
                for item in with_prefix(self._records, _partition(account_id), prefix):
                    name = item.key.sort.removeprefix(prefix)
                    yield name, _sum(_cells_of(item.value).values())
            case _:
                assert_never(by)

    def _cells(self, key: Key) -> Cells:
        item = self._records.get(key)
        return {} if item is None else _cells_of(item.value)

    # writing

    def _new_note(self, owner: UsageOwner, model: str, usage: Usage) -> _Note:
        price = self.prices.find(model)
        spent = Spent(
            1, usage, price.of(usage) if price else 0, unpriced=0 if price is not None else 1
        )
        tokens = {"input": usage.prompt, "output": usage.output}
        facts = {"purpose": owner.purpose, "tokens": tokens, "dollars": spent.dollars}
        event(_log, "usage", level=logging.DEBUG, **facts)
        return _Note(owner, model, spent, self.today())

    def _commit(self, changes: Sequence[Put]) -> Sequence[Counter]:
        return self._records.write(*changes)

    def _write_batch(self) -> None:
        """Write the notes that have waited longest. The caller's note is among them sooner or later."""
        queue = self._queue
        with queue.guard:
            batch, queue.waiting = queue.waiting[:NOTES_MAX], queue.waiting[NOTES_MAX:]
        queue.batches += 1
        error: Failure | None = None
        try:
            self._write(batch, queue.batches, self._commit)
        except Failure as failure:
            error = failure
        finally:
            for note in batch:
                note.is_over = True
        for note in batch:
            note.error = error

    def _write(self, batch: Sequence[_Note], number: int, commit: CommitPuts) -> None:
        """Write a batch, and retry when another process changed a sum.

        Raises: Conflict of the other changes in the batch, never of the sums; Unavailable.
        """
        unanswered = 0
        changes: Sequence[Put] = ()
        for _ in attempts():
            try:
                changes = self._changes(batch, number)
                if changes:
                    self._remember(changes, commit(changes))
                return
            except Conflict as conflict:
                if conflict.name not in {str(put.key) for put in changes}:
                    raise
                self._written_sums.clear()
                self._sleep(PAUSE_S * random.random())  # noqa: S311 - spreads writers out
            except Unavailable:
                unanswered += 1
                if unanswered >= LOST_MAX:
                    raise
                self._sleep(PAUSE_S)
        raise contended("usage")

    def _changes(self, batch: Sequence[_Note], number: int) -> list[Put]:
        """Return the changes of a batch; an empty list when it was written already."""
        additions: dict[Key, list[_Note]] = {}
        for note in batch:
            for key in _keys(note):
                additions.setdefault(key, []).append(note)
        changes: list[Put] = []
        for key, notes in additions.items():
            item = self._written_sums.get(key) or self._records.get(key)
            value: JsonObject = item.value if item else {}
            if self._is_written(value, number):
                return []
            cells: JsonObject = {**value.get("cells", {})}
            for note in notes:
                has_cell = note.cell in cells or len(cells) < CELLS_MAX
                cell = note.cell if has_cell else f"{note.owner.purpose} other"
                before = _spent_of(cells[cell]) if cell in cells else NOTHING
                cells[cell] = _as_value(before + note.spent)
            sums: JsonObject = {"cells": cells}
            if key.sort.endswith(":account"):
                sums["writers"] = self._writers(value, number)
            changes.append(Put(key, sums, expect=item.counter if item else ABSENT))
        return changes

    def _remember(self, changes: Sequence[Put], counters: Sequence[Counter]) -> None:
        if len(self._written_sums) > KEPT_MAX:
            self._written_sums.clear()
        for put, counter in zip(changes, counters, strict=True):
            self._written_sums[put.key] = Item(put.key, put.value, counter)

    @property
    def _writer(self) -> str:
        """The name of this process as a writer.

        A forked process has a name of its own: it numbers its batches like its siblings.
        """
        return f"{self._name}-{os.getpid()}"

    def _is_written(self, value: JsonObject, number: int) -> bool:
        return value.get("writers", {}).get(self._writer) == number

    def _writers(self, value: JsonObject, number: int) -> JsonObject:
        others = {
            writer: batch
            for writer, batch in value.get("writers", {}).items()
            if writer != self._writer
        }
        latest = list(others.items())[-(WRITERS_MAX - 1) :]
        return {**dict(latest), self._writer: number}


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """The usage that a principal may see: a user's own key sees the user's, any other key sees the
    account's."""

    principal: Principal
    ledger: Ledger

    def report(
        self,
        *,
        by: Dimension = "day",
        since: date | None = None,
        until: date | None = None,
        of: tuple[Spending, str] | None = None,
    ) -> UsageReport:
        """Return the report of a period; without days, of the month so far. `of` restricts it to one agent,
        user or conversation.

        Raises: Forbidden when a user's key asks for the usage of others.
        """
        principal = self.principal
        if not principal.may_configure:
            own: tuple[Spending, str] = ("user", principal.user_id)
            if of not in (None, own) or by in ("agent", "user", "conversation"):
                raise Forbidden("see the usage of others")
            of = own
        return self.ledger.report(principal.account_id, since=since, until=until, by=by, of=of)


def _keys(note: _Note) -> list[Key]:
    owner, day = note.owner, note.day
    rows = [
        _day(day, "account"),
        _month(day),
        _day(day, f"agent:{owner.agent_id}"),
        _day(day, f"user:{owner.user_id}"),
    ]
    if owner.conversation_id is not None:
        rows.append(_day(day, f"conversation:{owner.conversation_id}"))
    return [_key(owner.account_id, row) for row in rows]


def _partition(account_id: AccountId) -> str:
    return f"usage:{account_id}"


def _key(account_id: AccountId, row: str) -> Key:
    return Key(_partition(account_id), row)


def _day(day: date, row: str) -> str:
    return f"{day.isoformat()}:{row}"


def _month(day: date) -> str:
    return f"month:{day:%Y-%m}"


def _days(since: date, until: date) -> list[date]:
    count = (until - since).days + 1
    if not 1 <= count <= DAYS_MAX:
        rule = f"must be 1 to {DAYS_MAX} days before {until}"
        raise Refused("since", since.isoformat(), rule)
    return [since + timedelta(days=number) for number in range(count)]


def _cut(lines: list[UsageRow]) -> list[UsageRow]:
    """Return at most `LINES_MAX` rows. The last one then stands for all rows that are left out."""
    if len(lines) <= LINES_MAX:
        return lines
    rest = _sum(line.spent for line in lines[LINES_MAX - 1 :])
    return [*lines[: LINES_MAX - 1], UsageRow("other", rest)]


def _sum(spent: Iterable[Spent]) -> Spent:
    return sum(spent, start=NOTHING)


def _cells_of(value: JsonObject) -> Cells:
    cells: JsonObject = value.get("cells", {})
    return {cell: _spent_of(value) for cell, value in cells.items()}


def _spent_of(value: JsonObject) -> Spent:
    return Spent(value["asked"], usage_of(value), value["nanodollars"], value["unpriced"])


def _as_value(spent: Spent) -> JsonObject:
    value = spent.as_json()
    del value["dollars"]
    return {**value, "nanodollars": spent.nanodollars}
