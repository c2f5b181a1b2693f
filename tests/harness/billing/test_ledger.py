"""The usage ledger: every model request is counted once, in every report."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

import pytest

from harness.billing.ledger import (
    CELLS_MAX,
    LINES_MAX,
    AccountUsage,
    Ledger,
    UsageOwner,
    UsagePurpose,
    UsageReport,
)
from harness.billing.price import own_prices
from harness.messages.model_request import CommitPuts
from tests.conformance.race import race
from tests.harness.account_writer import MODEL, USAGE
from tests.harness.processes import ended, started
from tests.harness.stores import clock, dynamodb, dynamodb_url, store
from tests.harness.talk import forked
from workspaces.accounts.account import Person, Principal
from workspaces.clock import ManualClock, SystemClock
from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, Forbidden, Refused, Unavailable
from workspaces.ids import AccountId, AgentId, ConversationId, UserId
from workspaces.storage.faulty import FaultyRecords, StoreFault, seeded
from workspaces.storage.in_memory import MemoryRecords
from workspaces.storage.records import Item, Key, Put, RecordStore
from workspaces.storage.sqlite import SqliteRecords

__all__ = ["clock", "dynamodb", "dynamodb_url", "store"]

ACCOUNT = AccountId("acct_1")
ONE = 100 * 2_000 + 10 * 10_000 + 1000 * 100 + 30 * 2_500 + 20 * 4_000
"""Nanodollars of `USAGE` with `MODEL`: input, output, read, written for five minutes and for an hour."""


def spender(
    agent: str = "agent_1",
    user: str = "usr_1",
    conversation: str | None = "conv_1",
    purpose: UsagePurpose = "turn",
) -> UsageOwner:
    conversation_id = ConversationId(conversation) if conversation else None
    return UsageOwner(ACCOUNT, AgentId(agent), UserId(user), conversation_id, purpose)


@pytest.fixture
def ledger(store: RecordStore, clock: ManualClock) -> Ledger:
    return Ledger(store, clock, own_prices)


@pytest.fixture
def in_memory(clock: ManualClock) -> Ledger:
    return Ledger(MemoryRecords(clock), clock, own_prices)


def by_name(report: UsageReport) -> dict[str, int]:
    return {line.name: line.spent.asked for line in report.lines}


def test_recorded_usage_is_in_every_report(ledger: Ledger) -> None:
    ledger.note(spender(), MODEL, USAGE)
    ledger.note(spender(user="usr_2", conversation="conv_2"), MODEL, USAGE)
    ledger.note(spender(agent="agent_2", purpose="compaction"), "claude-opus-5-5", USAGE)
    ledger.note(spender(agent="agent_2", conversation=None, purpose="extraction"), MODEL, USAGE)
    assert by_name(ledger.report(ACCOUNT, by="day")) == {"2026-01-01": 4}
    assert by_name(ledger.report(ACCOUNT, by="agent")) == {"agent_1": 2, "agent_2": 2}
    assert by_name(ledger.report(ACCOUNT, by="user")) == {"usr_1": 3, "usr_2": 1}
    assert by_name(ledger.report(ACCOUNT, by="conversation")) == {"conv_1": 2, "conv_2": 1}
    purposes = {"turn": 2, "compaction": 1, "extraction": 1}
    assert by_name(ledger.report(ACCOUNT, by="purpose")) == purposes
    assert by_name(ledger.report(ACCOUNT, by="model")) == {MODEL: 3, "claude-opus-5-5": 1}
    total = ledger.report(ACCOUNT).total
    assert total.usage == USAGE + USAGE + USAGE + USAGE
    assert total.nanodollars == 3 * ONE + 2 * ONE  # Opus 5.5 is twice as dear in all but the cache
    assert total.nanodollars == ledger.spent_on(ACCOUNT, ledger.today()).nanodollars


def test_a_report_of_one_agent_is_divided_by_purpose_and_model(ledger: Ledger) -> None:
    ledger.note(spender(), MODEL, USAGE)
    ledger.note(spender(agent="agent_2"), MODEL, USAGE)
    ledger.note(spender(agent="agent_2", purpose="compaction"), MODEL, USAGE)
    report = ledger.report(ACCOUNT, by="purpose", of=("agent", "agent_2"))
    assert by_name(report) == {"turn": 1, "compaction": 1}
    with pytest.raises(Refused):
        ledger.report(ACCOUNT, by="user", of=("agent", "agent_2"))


def test_usage_is_counted_per_day_and_per_month(in_memory: Ledger, clock: ManualClock) -> None:
    for _ in range(40):
        in_memory.note(spender(), MODEL, USAGE)
        clock.advance(86_400)
    month = in_memory.report(ACCOUNT, since=date(2026, 1, 1), until=date(2026, 1, 31))
    assert month.total.asked == 31
    assert [line.name for line in month.lines][:2] == ["2026-01-01", "2026-01-02"]
    assert in_memory.spent_in_month(ACCOUNT, date(2026, 1, 15)).asked == 31
    assert in_memory.spent_in_month(ACCOUNT, date(2026, 2, 1)).asked == 9
    assert in_memory.report(ACCOUNT).since == date(2026, 2, 1)


def test_a_usage_report_lists_the_most_expensive_first(in_memory: Ledger) -> None:
    in_memory.note(spender(agent="agent_1"), "claude-haiku-5-5", USAGE)
    in_memory.note(spender(agent="agent_2"), "claude-opus-5-5", USAGE)
    assert [line.name for line in in_memory.report(ACCOUNT, by="agent").lines] == [
        "agent_2",
        "agent_1",
    ]


@pytest.mark.parametrize(
    ("since", "until"),
    [(date(2026, 1, 2), date(2026, 1, 1)), (date(2020, 1, 1), date(2026, 1, 1))],
)
def test_a_report_period_that_is_reversed_or_too_long_is_refused(
    in_memory: Ledger, since: date, until: date
) -> None:
    with pytest.raises(Refused) as caught:
        in_memory.report(ACCOUNT, since=since, until=until)
    assert caught.value.field == "since"


def test_usage_of_a_model_without_a_price_is_counted_as_unpriced(in_memory: Ledger) -> None:
    in_memory.note(spender(), "unheard-of", USAGE)
    total = in_memory.report(ACCOUNT).total
    assert (total.usage, total.nanodollars, total.unpriced) == (USAGE, 0, 1)


def test_usage_of_one_account_is_separate_and_can_be_deleted(ledger: Ledger) -> None:
    other = UsageOwner(AccountId("acct_2"), AgentId("agent_1"), UserId("usr_1"))
    ledger.note(spender(), MODEL, USAGE)
    ledger.note(other, MODEL, USAGE)
    ledger.forget(ACCOUNT)
    assert ledger.report(ACCOUNT, by="agent").total.asked == 0
    assert ledger.spent_in_month(ACCOUNT, ledger.today()).asked == 0
    assert ledger.report(AccountId("acct_2")).total.asked == 1


def test_models_beyond_the_limit_of_a_sum_are_counted_as_other(in_memory: Ledger) -> None:
    for number in range(CELLS_MAX + 10):
        in_memory.note(spender(), f"model-{number}", USAGE)
    report = in_memory.report(ACCOUNT, by="model")
    assert by_name(report)["other"] == 10
    assert report.total.asked == CELLS_MAX + 10


def test_a_report_of_very_many_conversations_sums_the_cheapest_as_other(
    in_memory: Ledger,
) -> None:
    for number in range(LINES_MAX + 5):
        in_memory.note(spender(conversation=f"conv_{number}"), MODEL, USAGE)
    in_memory.note(spender(conversation="conv_dear"), MODEL, USAGE)
    in_memory.note(spender(conversation="conv_dear"), MODEL, USAGE)
    report = in_memory.report(ACCOUNT, by="conversation")
    assert len(report.lines) == LINES_MAX
    assert (report.lines[0].name, report.lines[-1].name) == ("conv_dear", "other")
    assert report.lines[-1].spent.asked == 7
    assert sum(line.spent.asked for line in report.lines) == report.total.asked == LINES_MAX + 7


def test_usage_recorded_by_many_threads_is_complete(ledger: Ledger) -> None:
    def note(index: int) -> None:
        for number in range(6):
            ledger.note(spender(user=f"usr_{index}", conversation=f"conv_{number}"), MODEL, USAGE)

    race(8, note)
    total = ledger.report(ACCOUNT).total
    assert (total.asked, total.usage.input, total.nanodollars) == (48, 4800, 48 * ONE)
    assert ledger.report(ACCOUNT, by="user").total == total
    assert ledger.report(ACCOUNT, by="conversation").total == total


def test_usage_recorded_by_several_ledgers_on_one_store_is_complete(
    store: RecordStore, clock: ManualClock
) -> None:
    """As several machines."""
    ledgers = [Ledger(store, clock, own_prices) for _ in range(4)]
    race(4, lambda index: [ledgers[index].note(spender(), MODEL, USAGE) for _ in range(8)])
    assert ledgers[0].report(ACCOUNT).total.asked == 32


def test_usage_recorded_by_several_processes_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    SqliteRecords(file).close()
    writers = [started(file, ACCOUNT, "note", 40) for _ in range(3)]
    assert [ended(writer) for writer in writers] == [(0, "")] * 3
    records = SqliteRecords(file)
    ledger = Ledger(records, SystemClock(), own_prices)
    today = ledger.today()
    report = ledger.report(ACCOUNT, since=date(today.year - 1, 12, 1), until=today)
    assert (report.total.asked, report.total.nanodollars) == (120, 120 * ONE)
    records.close()


def test_a_forked_process_records_usage_of_its_own(tmp_path: Path) -> None:
    records = SqliteRecords(tmp_path / "state.db")
    ledger = Ledger(records, SystemClock(), own_prices)
    before = ledger.today()
    for _ in range(3):
        assert forked(lambda: ledger.note(spender(), MODEL, USAGE))
    assert ledger.report(ACCOUNT, since=before, until=ledger.today()).total.asked == 3
    records.close()


def test_a_lost_store_answer_neither_loses_nor_doubles_usage(clock: ManualClock) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    behind = MemoryRecords(clock)
    faulty = FaultyRecords(behind, seeded(seed, before=0.05, after=0.1))
    ledgers = [Ledger(faulty, clock, own_prices, sleep=lambda _: None) for _ in range(3)]
    noted = 0
    for number in range(300):
        ledger = ledgers[number % 3]
        try:
            ledger.note(spender(conversation=f"conv_{number % 7}"), MODEL, USAGE)
            noted += 1
        except Unavailable:
            pass  # three faults in a row: whether it was written is not known, and said so
    total = Ledger(behind, clock, own_prices).report(ACCOUNT).total.asked
    assert noted <= total <= 300


def test_a_usage_batch_whose_answer_was_lost_is_recognised_as_written(clock: ManualClock) -> None:
    behind = MemoryRecords(clock)
    plan = [*[StoreFault.NONE] * 5, StoreFault.AFTER]  # five rows are read, then the answer is lost
    ledger = Ledger(FaultyRecords(behind, iter(plan)), clock, own_prices, sleep=lambda _: None)
    ledger.note(spender(), MODEL, USAGE)
    assert ledger.report(ACCOUNT).total.asked == 1


def test_a_usage_row_is_read_again_only_after_another_ledger_changed_the_row(
    clock: ManualClock,
) -> None:
    class Counting(FaultyRecords):
        read = 0

        def get(self, key: Key) -> Item | None:
            self.read += 1
            return super().get(key)

    store = Counting(MemoryRecords(clock), itertools.repeat(StoreFault.NONE))
    ours, theirs = (Ledger(store, clock, own_prices, sleep=lambda _: None) for _ in range(2))
    read: list[int] = []
    for ledger in (ours, ours, theirs, ours, ours):
        before = store.read
        ledger.note(spender(), MODEL, USAGE)
        read.append(store.read - before)
    assert read == [5, 0, 5, 5, 0]
    assert ours.report(ACCOUNT).total.asked == 5


def test_usage_is_stored_in_one_batch_with_the_reply(ledger: Ledger, store: RecordStore) -> None:
    replies = Replies(store)
    ledger.note_with(spender(), MODEL, USAGE, replies.written(1))
    ledger.note_with(spender(), MODEL, USAGE, replies.written(2))
    assert [len(batch) for batch in replies.batches] == [6, 6]
    assert (replies.stored(), ledger.report(ACCOUNT).total.asked) == ([1, 2], 2)


def test_usage_of_a_reply_that_could_not_be_stored_is_still_counted(
    ledger: Ledger, store: RecordStore
) -> None:
    replies = Replies(store)
    ledger.note_with(spender(), MODEL, USAGE, replies.written(1))
    with pytest.raises(Conflict, match="replies / 1"):
        ledger.note_with(spender(), MODEL, USAGE, replies.written(1))
    assert ledger.report(ACCOUNT).total.asked == 2


def test_usage_and_replies_of_several_ledgers_are_both_complete(
    store: RecordStore, clock: ManualClock
) -> None:
    """As several machines: the sums are another's in the meantime, and what is stored is not."""
    replies = Replies(store)
    ledgers = [Ledger(store, clock, own_prices) for _ in range(3)]

    def reply(index: int) -> None:
        for number in range(8):
            written = replies.written(index * 8 + number)
            ledgers[index].note_with(spender(), MODEL, USAGE, written)

    race(3, reply)
    assert (replies.stored(), ledgers[0].report(ACCOUNT).total.asked) == ([*range(24)], 24)


def test_a_lost_answer_never_stores_a_reply_without_its_usage(clock: ManualClock) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    behind = MemoryRecords(clock)
    faulty = FaultyRecords(behind, seeded(seed, before=0.1, after=0.2))
    replies = Replies(faulty)
    ledgers = [Ledger(faulty, clock, own_prices, sleep=lambda _: None) for _ in range(3)]
    known: list[int] = []
    failed = 0
    for number in range(300):
        try:
            ledgers[number % 3].note_with(spender(), MODEL, USAGE, replies.written(number))
            known.append(number)
        except Unavailable:
            failed += 1
    stored = Replies(behind).stored()
    total = Ledger(behind, clock, own_prices).report(ACCOUNT).total.asked
    assert set(known) <= set(stored)
    assert len(stored) <= total <= len(stored) + failed


def test_every_waiting_caller_gets_the_error_of_a_failing_store(clock: ManualClock) -> None:
    def always() -> Iterator[StoreFault]:
        while True:
            yield StoreFault.BEFORE

    ledger = Ledger(
        FaultyRecords(MemoryRecords(clock), always()), clock, own_prices, sleep=lambda _: None
    )
    told: list[Unavailable] = []

    def note(_: int) -> None:
        try:
            ledger.note(spender(), MODEL, USAGE)
        except Unavailable as error:
            told.append(error)

    race(5, note)
    assert len(told) == 5


def test_waiting_usage_is_written_in_one_batch(clock: ManualClock) -> None:
    """While one batch is on its way, everyone who comes is in the next."""
    store = _Slow(clock)
    ledger = Ledger(store, clock, own_prices)
    first = threading.Thread(target=ledger.note, args=(spender(), MODEL, USAGE))
    first.start()
    assert store.is_writing.wait(30)
    others = [
        threading.Thread(target=ledger.note, args=(spender(), MODEL, USAGE)) for _ in range(10)
    ]
    for other in others:
        other.start()
    while len(ledger._queue.waiting) < 10:
        first.join(0.001)
    store.may_write.set()
    for thread in (first, *others):
        thread.join(30)
    assert store.batches == 2
    assert ledger.report(ACCOUNT).total.asked == 11


class Replies:
    """What is paid for: an item for each."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self.batches: list[tuple[Put, ...]] = []

    def written(self, number: int) -> CommitPuts:
        def write(noted: Sequence[Put]) -> Sequence[int]:
            batch = (*noted, Put(Key("replies", f"{number}"), {}, ABSENT))
            self.batches.append(batch)
            return self._store.write(*batch)[: len(noted)]

        return write

    def stored(self) -> list[int]:
        return sorted(int(item.key.sort) for item in self._store.scan("replies"))


class _Slow(MemoryRecords):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.is_writing, self.may_write = threading.Event(), threading.Event()
        self.batches = 0

    def write(self, *changes: object) -> tuple[int, ...]:  # type: ignore[override]
        self.is_writing.set()
        assert self.may_write.wait(30)
        self.batches += 1
        return super().write(*changes)  # type: ignore[arg-type]


def test_a_users_key_reads_only_the_usage_of_that_user(
    in_memory: Ledger, clock: ManualClock
) -> None:
    in_memory.note(spender(user="usr_1"), MODEL, USAGE)
    in_memory.note(spender(user="usr_2"), MODEL, USAGE)
    person, owner = Person(UserId("usr_2"), "Bob"), Person(UserId("usr_1"), "Ada")
    bob = AccountUsage(Principal(ACCOUNT, person, owner, may_configure=False), in_memory)
    assert bob.report().total.asked == 1
    assert bob.report(of=("user", "usr_2"), by="model").total.asked == 1
    attempts: list[Callable[[], object]] = [
        lambda: bob.report(by="user"),
        lambda: bob.report(by="conversation"),
        lambda: bob.report(of=("user", "usr_1")),
        lambda: bob.report(of=("agent", "agent_1")),
    ]
    for attempt in attempts:
        with pytest.raises(Forbidden):
            attempt()


def test_a_usage_report_as_json_states_its_period_and_grouping(in_memory: Ledger) -> None:
    in_memory.note(spender(), MODEL, USAGE)
    told = in_memory.report(ACCOUNT, by="purpose").as_json()
    row = {
        "asked": 1,
        "input": 100,
        "output": 10,
        "cacheRead": 1000,
        "cacheWrite": 50,
        "cacheWriteHour": 20,
        "dollars": ONE / 10**9,
        "unpriced": 0,
    }
    assert told == {
        "since": "2026-01-01",
        "until": "2026-01-01",
        "by": "purpose",
        "rows": [{"purpose": "turn", **row}],
        "total": row,
        "prices": own_prices().valid,
    }
