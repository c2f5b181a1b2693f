"""Usage: what the models of an account have used up, and what it cost.

A *note* is written after every question to a model, whatever came of it, and is durable on return. Of a
reply that a turn stores it is written in the same batch: where the one is, there is the other. It adds to
five sums: of the account's day and month, and of the agent's, the user's and the conversation's day.
Reading a period is so many rows for each of its days, however many questions they stand for. In each sum
stand apart what for (the purpose) and by which model.

Sums that many writers add to are exact, because every addition is conditional on the sum that it was added
to. Three things keep that cheap. Within a process one writer carries the notes of all who wait, so that a
process never loses a race against itself; a note that goes with a reply takes its turn between them. A sum
that it wrote last is not read again until somebody else turns out to have written to it. And a writer whose
answer got lost finds out whether its notes arrived: each batch has a number, and the account's row of the day
remembers the latest of each writer.

Days and months are UTC. What a question cost is decided when it is noted, by the prices of that moment.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Literal, assert_never

from harness.billing.price import NANODOLLARS, Prices
from harness.messages.model_request import NO_USAGE, CommitPuts, Usage, usage_of
from workspaces.accounts.account import Principal
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, Failure, Forbidden, Refused, Unavailable
from workspaces.ids import AccountId, AgentId, ConversationId, UserId
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

UsagePurpose = Literal["turn", "compaction", "extraction"]
"""What a question was asked for. Whatever asks for something else adds its word here."""

Dimension = Literal["day", "agent", "user", "conversation", "purpose", "model"]
Spending = Literal["agent", "user", "conversation"]
"""Who has sums of its own, beside the account."""

NOTES_MAX = 16
"""In one batch: five sums each stay below the hundred changes of a batch."""

TRIES_MAX = 50
"""Each lost race is somebody else's success; so many in a row mean that something is broken."""

LOST_MAX = 3
PAUSE_S = 0.01

CELLS_MAX = 200
"""In one sum; a day with more models than that tells those that came later as `other`."""

KEPT_MAX = 1_000
"""Sums that need not be read before they are added to, a few hundred bytes each."""

WRITERS_MAX = 32
"""As many processes as may be waiting for a lost answer at the same time."""

LINES_MAX = 1_000
"""In one report, the dearest; what conversations and users there are beyond that is told as `other`."""

DAYS_MAX = 400
"""In one report: a year and the month that it is compared with."""


@dataclass(frozen=True, slots=True)
class UsageOwner:
    """In whose name a model is asked, and what for."""

    account_id: AccountId
    agent_id: AgentId
    user_id: UserId
    conversation_id: ConversationId | None = None
    """None for what no conversation asks, as a schedule's extraction."""
    purpose: UsagePurpose = "turn"


@dataclass(frozen=True, slots=True)
class Spent:
    """A sum."""

    asked: int = 0
    """Questions."""
    usage: Usage = NO_USAGE
    nanodollars: int = 0
    unpriced: int = 0
    """Questions of models without a price: their tokens are counted, their dollars are not."""

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
"""By purpose and model."""


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One of the things that a report sums up by."""

    name: str
    """A day, an id, a purpose or a model."""
    spent: Spent


@dataclass(frozen=True, slots=True)
class UsageReport:
    since: date
    until: date
    """Both days are in it."""
    by: Dimension
    lines: tuple[UsageRow, ...]
    """Days in their order, everything else the dearest first."""
    total: Spent
    prices: str
    """The day of the prices that hold now; older questions cost what they did when they were asked."""

    def as_json(self) -> JsonObject:
        return {
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
            "by": self.by,
            "rows": [{self.by: line.name, **line.spent.as_json()} for line in self.lines],
            "total": self.total.as_json(),
            "prices": self.prices,
        }


def day_of(field: str, stated: str | None) -> date | None:
    """A day as every face states it. Refused, naming the field."""
    try:
        return None if stated is None else date.fromisoformat(stated)
    except ValueError as error:
        raise Refused(field, stated, "must be a day, as 2026-11-01") from error


def conversation_rows(
    account_id: AccountId, conversation_id: ConversationId, since: date, until: date
) -> list[Key]:
    """Where a conversation's sums of these days lie, if it has any: they go when it is deleted. What it
    used up stays in the sums of its account, agent and user."""
    days = (since + timedelta(days=number) for number in range((until - since).days + 1))
    return [_key(account_id, _day(day, f"conversation:{conversation_id}")) for day in days]


@dataclass(slots=True, eq=False)
class _Note:
    spender: UsageOwner
    model: str
    spent: Spent
    day: date
    is_over: bool = False
    error: Failure | None = field(default_factory=lambda: Unavailable("usage", "it was not noted"))
    """None once it is written."""

    @property
    def cell(self) -> str:
        return f"{self.spender.purpose} {self.model}"


@dataclass(slots=True)
class _Line:
    """Those who wait to be carried along."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[_Note] = field(default_factory=list[_Note])
    writing: threading.Lock = field(default_factory=threading.Lock)
    batches: int = 0


class Ledger:
    """Of all accounts of a home. Threads share it; so may any number of processes."""

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
        self._line = _Line()
        self._kept: dict[Key, Item] = {}
        """Sums as they were written here last: so they still are, unless others have written to them too."""

    @property
    def prices(self) -> Prices:
        """Return the prices, read when they are first needed."""
        return self._prices()

    def note(self, spender: UsageOwner, model: str, usage: Usage) -> None:
        """Durable on return. Unavailable when it is not known whether it was written."""
        note = self._made(spender, model, usage)
        with self._line.guard:
            self._line.waiting.append(note)
        with self._line.writing:
            while not note.is_over:
                self._carry()
        if note.error is not None:
            raise note.error

    def note_with(self, spender: UsageOwner, model: str, usage: Usage, written: CommitPuts) -> None:
        """The same, in one batch with what else `written` writes. Where that is refused or fails it raises
        what came of it, and the note has been written alone: what was used up was used up."""
        batch, line = [self._made(spender, model, usage)], self._line
        with line.writing:
            line.batches += 1
            try:
                self._write(batch, line.batches, written)
            except Failure:
                self._write(batch, line.batches, self._written)
                raise

    def today(self) -> date:
        return self._clock.now().date()

    def spent_on(self, account_id: AccountId, day: date) -> Spent:
        return _sum(self._cells(_key(account_id, _day(day, "account"))).values())

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
        """Of the month so far, unless stated; of one agent, user or conversation with `of`."""
        until = until or self.today()
        since = since or until.replace(day=1)
        days = _days(since, until)
        sums: dict[str, Spent] = {}
        for day in days:
            for name, spent in self._told(account_id, day, by, of):
                sums[name] = sums.get(name, NOTHING) + spent
        lines = [UsageRow(name, spent) for name, spent in sums.items()]
        if by != "day":
            lines.sort(key=lambda line: (-line.spent.nanodollars, -line.spent.asked, line.name))
            lines = _at_most(LINES_MAX, lines)
        return UsageReport(since, until, by, tuple(lines), _sum(sums.values()), self.prices.valid)

    def forget(self, account_id: AccountId) -> None:
        """Everything of an account that is deleted."""
        for item in with_prefix(self._records, _partition(account_id), ""):
            self._records.write(Delete(item.key))

    # reading

    def _told(
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
                    rule = f"cannot be summed up by {by}: who asks is not kept apart that far"
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

    def _made(self, spender: UsageOwner, model: str, usage: Usage) -> _Note:
        price = self.prices.find(model)
        spent = Spent(
            1, usage, price.of(usage) if price else 0, unpriced=0 if price is not None else 1
        )
        return _Note(spender, model, spent, self.today())

    def _written(self, changes: Sequence[Put]) -> Sequence[Counter]:
        return self._records.write(*changes)

    def _carry(self) -> None:
        """The notes that have waited longest, ours among them sooner or later."""
        line = self._line
        with line.guard:
            batch, line.waiting = line.waiting[:NOTES_MAX], line.waiting[NOTES_MAX:]
        line.batches += 1
        error: Failure | None = None
        try:
            self._write(batch, line.batches, self._written)
        except Failure as failure:
            error = failure
        finally:
            for note in batch:
                note.is_over = True
        for note in batch:
            note.error = error

    def _write(self, batch: Sequence[_Note], number: int, written: CommitPuts) -> None:
        """Conflict of what else is in the batch, not of the sums."""
        lost = 0
        changes: Sequence[Put] = ()
        for _ in range(TRIES_MAX):
            try:
                changes = self._changes(batch, number)
                if changes:
                    self._keep(changes, written(changes))
                return
            except Conflict as conflict:
                if conflict.name not in {str(put.key) for put in changes}:
                    raise
                self._kept.clear()
                self._sleep(PAUSE_S * random.random())  # noqa: S311 - spreads writers out
            except Unavailable:
                lost += 1
                if lost >= LOST_MAX:
                    raise
                self._sleep(PAUSE_S)
        raise Unavailable("usage", "others write to it all the time", remedy="try again")

    def _changes(self, batch: Sequence[_Note], number: int) -> list[Put]:
        """Empty when the batch was written already."""
        additions: dict[Key, list[_Note]] = {}
        for note in batch:
            for key in _keys(note):
                additions.setdefault(key, []).append(note)
        changes: list[Put] = []
        for key, notes in additions.items():
            item = self._kept.get(key) or self._records.get(key)
            value: JsonObject = item.value if item else {}
            if self._is_written(value, number):
                return []
            cells: JsonObject = {**value.get("cells", {})}
            for note in notes:
                known = note.cell in cells or len(cells) < CELLS_MAX
                cell = note.cell if known else f"{note.spender.purpose} other"
                before = _spent_of(cells[cell]) if cell in cells else NOTHING
                cells[cell] = _as_value(before + note.spent)
            told: JsonObject = {"cells": cells}
            if key.sort.endswith(":account"):
                told["writers"] = self._writers(value, number)
            changes.append(Put(key, told, expect=item.counter if item else ABSENT))
        return changes

    def _keep(self, changes: Sequence[Put], counters: Sequence[Counter]) -> None:
        if len(self._kept) > KEPT_MAX:
            self._kept.clear()
        for put, counter in zip(changes, counters, strict=True):
            self._kept[put.key] = Item(put.key, put.value, counter)

    @property
    def _writer(self) -> str:
        """A process of its own after a fork: its batches are numbered like those of its siblings."""
        return f"{self._name}-{os.getpid()}"

    def _is_written(self, value: JsonObject, number: int) -> bool:
        return value.get("writers", {}).get(self._writer) == number

    def _writers(self, value: JsonObject, number: int) -> JsonObject:
        others = {
            writer: latest
            for writer, latest in value.get("writers", {}).items()
            if writer != self._writer
        }
        kept = list(others.items())[-(WRITERS_MAX - 1) :]
        return {**dict(kept), self._writer: number}


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """What a principal may see of it: a user's own key its own, everyone else the account's."""

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
        """Of the month so far, unless stated; of one agent, user or conversation with `of`."""
        principal = self.principal
        if not principal.may_configure:
            own: tuple[Spending, str] = ("user", principal.user_id)
            if of not in (None, own) or by in ("agent", "user", "conversation"):
                raise Forbidden("see what others have used up")
            of = own
        return self.ledger.report(principal.account_id, since=since, until=until, by=by, of=of)


def _keys(note: _Note) -> list[Key]:
    spender, day = note.spender, note.day
    rows = [
        _day(day, "account"),
        _month(day),
        _day(day, f"agent:{spender.agent_id}"),
        _day(day, f"user:{spender.user_id}"),
    ]
    if spender.conversation_id is not None:
        rows.append(_day(day, f"conversation:{spender.conversation_id}"))
    return [_key(spender.account_id, row) for row in rows]


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


def _at_most(count: int, lines: list[UsageRow]) -> list[UsageRow]:
    """The last of them stands for all that are left out."""
    if len(lines) <= count:
        return lines
    rest = _sum(line.spent for line in lines[count - 1 :])
    return [*lines[: count - 1], UsageRow("other", rest)]


def _sum(spent: Iterable[Spent]) -> Spent:
    return sum(spent, start=NOTHING)


def _cells_of(value: JsonObject) -> Cells:
    cells: JsonObject = value.get("cells", {})
    return {cell: _spent_of(told) for cell, told in cells.items()}


def _spent_of(told: JsonObject) -> Spent:
    return Spent(told["asked"], usage_of(told), told["nanodollars"], told["unpriced"])


def _as_value(spent: Spent) -> JsonObject:
    told = spent.as_json()
    del told["dollars"]
    return {**told, "nanodollars": spent.nanodollars}
