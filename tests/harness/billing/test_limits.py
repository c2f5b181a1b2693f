"""The limits of an account: turns per minute, running turns and money."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.billing.ledger import Ledger, UsageOwner
from harness.billing.limits import MINUTE_S, RENEW_S, SLOT_S, AccountLimiter
from harness.billing.price import own_prices
from harness.messages.model_request import Usage
from tests.harness.account_writer import MODEL
from tests.harness.processes import ended, started
from tests.harness.stores import clock, dynamodb, dynamodb_url, store
from workspaces.accounts.account import AccountRecord, Accounts
from workspaces.clock import ManualClock, SystemClock
from workspaces.errors import Exhausted, Refused
from workspaces.ids import AgentId
from workspaces.storage.in_memory import MemoryRecords
from workspaces.storage.records import RecordStore, with_prefix
from workspaces.storage.sqlite import SqliteRecords

__all__ = ["clock", "dynamodb", "dynamodb_url", "store"]

DOLLAR = Usage(500_000)
"""With `MODEL`."""


class House:
    """An account with limits, and several allowances as of several machines."""

    def __init__(self, records: RecordStore, clock: Any, **limits: float) -> None:
        self.records = records
        self.clock = clock
        self.accounts = Accounts(records, clock)
        stated = {"name": "one", "config": {"limits": limits}}
        self.account: AccountRecord = self.accounts.add(stated)
        self.ledger = Ledger(records, clock, own_prices)

    def allowance(self) -> AccountLimiter:
        return AccountLimiter(self.records, self.clock, self.accounts, self.ledger)

    def spend(self, usage: Usage = DOLLAR) -> None:
        spender = UsageOwner(self.account.id, AgentId("agent_1"), self.account.owner_id)
        self.ledger.note(spender, MODEL, usage)

    def begin(self, allowance: AccountLimiter | None = None) -> None:
        """A turn that is over at once. Exhausted."""

        async def turn() -> None:
            async with (allowance or self.allowance()).admitted(self.account.id):
                pass

        asyncio.run(turn())


Open = Callable[..., House]


@pytest.fixture
def house(store: RecordStore, clock: ManualClock) -> Open:
    return lambda **limits: House(store, clock, **limits)


@pytest.fixture
def in_memory(clock: ManualClock) -> Open:
    return lambda **limits: House(MemoryRecords(clock), clock, **limits)


def test_an_account_without_limits_writes_no_allowance_records(in_memory: Open) -> None:
    one = in_memory()
    for _ in range(20):
        one.begin()
    assert with_prefix(one.records, f"allowance:{one.account.id}", "") == []


def test_turns_per_minute_limits_how_many_turns_begin(house: Open, clock: ManualClock) -> None:
    one = house(turnsPerMinute=6)
    for _ in range(6):
        one.begin()
    with pytest.raises(Exhausted) as caught:
        one.begin()
    told = caught.value
    assert (told.code, told.limit, told.maximum, told.left) == (
        "limit_reached",
        "turnsPerMinute",
        6,
        0,
    )
    assert told.free_in_s == pytest.approx(MINUTE_S / 6, abs=0.001)
    assert "turnsPerMinute" in (told.remedy or "")
    clock.advance(told.free_in_s)
    one.begin()
    with pytest.raises(Exhausted):
        one.begin()
    clock.advance(MINUTE_S)
    for _ in range(6):
        one.begin()


def test_a_clock_set_back_does_not_block_turns(in_memory: Open, clock: ManualClock) -> None:
    one = in_memory(turnsPerMinute=1)
    one.begin()
    clock.jump(-3600)
    one.begin()
    with pytest.raises(Exhausted):
        one.begin()


def test_running_turns_limits_how_many_turns_run_at_once(house: Open) -> None:
    one = house(runningTurns=3)

    async def turns() -> None:
        allowances = [one.allowance() for _ in range(4)]
        held = [allowance.admitted(one.account.id) for allowance in allowances]
        for turn in held[:3]:
            await turn.__aenter__()
        with pytest.raises(Exhausted) as caught:
            await held[3].__aenter__()
        assert caught.value.limit == "runningTurns"
        assert caught.value.free_in_s > 0
        await held[0].__aexit__(None, None, None)
        async with allowances[3].admitted(one.account.id):
            pass
        for turn in held[1:3]:
            await turn.__aexit__(None, None, None)

    asyncio.run(turns())
    for _ in range(4):
        one.begin()


def test_running_turns_are_limited_when_many_turns_begin_at_once(house: Open) -> None:
    one = house(runningTurns=4)

    async def turns() -> int:
        allowances = [one.allowance() for _ in range(3)]
        most, running, refused = 0, 0, 0
        over = asyncio.Event()

        async def turn(number: int) -> None:
            nonlocal most, running, refused
            try:
                async with allowances[number % 3].admitted(one.account.id):
                    running += 1
                    most = max(most, running)
                    await over.wait()
            except Exhausted:
                refused += 1
            if refused == 8:
                over.set()

        await asyncio.gather(*(turn(number) for number in range(12)))
        return most

    assert asyncio.run(turns()) == 4


def test_a_failed_or_cancelled_turn_releases_its_slot(in_memory: Open) -> None:
    one = in_memory(runningTurns=1)

    async def turns() -> None:
        allowance = one.allowance()
        with pytest.raises(RuntimeError):
            async with allowance.admitted(one.account.id):
                raise RuntimeError
        began = asyncio.Event()

        async def endless() -> None:
            async with allowance.admitted(one.account.id):
                began.set()
                await asyncio.Event().wait()

        running = asyncio.create_task(endless())
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        async with allowance.admitted(one.account.id):
            pass

    asyncio.run(turns())


def test_a_turn_cancelled_during_admission_leaves_no_slot_taken(in_memory: Open) -> None:
    one = in_memory(runningTurns=1)

    async def turns() -> None:
        for _ in range(20):
            entering = asyncio.create_task(one.allowance().admitted(one.account.id).__aenter__())
            await asyncio.sleep(0)
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering

    asyncio.run(turns())
    one.begin()


def test_a_slot_that_is_not_renewed_becomes_free(house: Open, clock: ManualClock) -> None:
    """As of a machine that vanished."""
    one = house(runningTurns=1)
    vanished = one.allowance().admit(one.account.id)
    assert vanished is not None
    with pytest.raises(Exhausted):
        one.begin()
    clock.advance(SLOT_S)
    one.begin()


def test_a_renewed_slot_stays_taken(in_memory: Open, clock: ManualClock) -> None:
    one = in_memory(runningTurns=1)
    allowance = one.allowance()
    slot = allowance.admit(one.account.id)
    assert slot is not None
    for _ in range(6):
        clock.advance(RENEW_S)
        allowance._renew(slot)
    with pytest.raises(Exhausted):
        one.begin()
    allowance.let_go(slot)
    one.begin()


def test_a_late_slot_holder_cannot_release_the_slot_of_its_successor(
    in_memory: Open, clock: ManualClock
) -> None:
    one = in_memory(runningTurns=1)
    late, next_one = one.allowance(), one.allowance()
    slept = late.admit(one.account.id)
    clock.advance(SLOT_S)
    taken = next_one.admit(one.account.id)
    assert slept is not None
    assert taken is not None
    late._renew(slept)
    late.let_go(slept)
    with pytest.raises(Exhausted):
        one.begin()


def test_a_lowered_limit_counts_the_turns_already_running(in_memory: Open) -> None:
    one = in_memory(runningTurns=40)
    allowance = one.allowance()
    slots = [allowance.admit(one.account.id) for _ in range(4)]
    patch = {"config": {"limits": {"runningTurns": 2}}}
    one.accounts.patch(one.account.id, patch)
    with pytest.raises(Exhausted):
        one.begin()
    for slot in slots[:3]:
        allowance.let_go(slot)
    one.begin()


@pytest.mark.parametrize("limit", ["dollarsPerDay", "dollarsPerMonth"])
def test_a_spending_limit_refuses_turns_until_the_day_or_month_ends(
    house: Open, clock: ManualClock, limit: str
) -> None:
    one = house(**{limit: 2})
    clock.advance(3600)
    one.spend()
    one.begin()
    one.spend()
    with pytest.raises(Exhausted) as caught:
        one.begin()
    assert caught.value.limit == limit
    assert "2.00 of 2.00 dollars" in str(caught.value)
    days = 1 if limit == "dollarsPerDay" else 31
    assert caught.value.free_in_s == days * 86_400 - 3600
    clock.advance(caught.value.free_in_s)
    one.begin()


def test_a_turn_refused_over_the_spending_limit_is_not_counted_against_other_limits(
    in_memory: Open,
) -> None:
    one = in_memory(dollarsPerDay=1, turnsPerMinute=1, runningTurns=1)
    one.spend()
    with pytest.raises(Exhausted, match="dollarsPerDay"):
        one.begin()
    one.accounts.patch(one.account.id, {"config": {"limits": {"dollarsPerDay": None}}})
    one.begin()
    with pytest.raises(Exhausted, match="turnsPerMinute"):
        one.begin()


def test_checking_the_limits_takes_no_turn(in_memory: Open) -> None:
    one = in_memory(turnsPerMinute=1, runningTurns=1)
    for _ in range(3):
        one.allowance().check(one.account.id)
    one.begin()
    with pytest.raises(Exhausted):
        one.allowance().check(one.account.id)


@pytest.mark.parametrize(
    "limits",
    [
        {"turnsPerMinute": 0},
        {"turnsPerMinute": 1.5},
        {"runningTurns": "many"},
        {"dollarsPerDay": -1},
        {"dollarsPerDay": float("nan")},
        {"dollarsPerWeek": 1},
    ],
)
def test_an_invalid_limit_is_refused_by_name(in_memory: Open, limits: dict[str, Any]) -> None:
    with pytest.raises(Refused) as caught:
        in_memory(**limits)
    assert caught.value.field == f"config.limits.{next(iter(limits))}"


def test_processes_share_the_limits_of_an_account(tmp_path: Path) -> None:
    records = SqliteRecords(tmp_path / "state.db")
    one = House(records, SystemClock(), turnsPerMinute=1, runningTurns=1)
    file = tmp_path / "state.db"
    holder = started(file, one.account.id, "hold")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "running\n"
    with pytest.raises(Exhausted, match="runningTurns"):
        one.begin()
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=60)
    one.accounts.patch(one.account.id, {"config": {"limits": {"turnsPerMinute": None}}})
    one.begin()  # what it held is free at once
    records.close()


def test_turns_of_several_processes_together_stay_within_the_limits(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    records = SqliteRecords(file)
    one = House(records, SystemClock(), turnsPerMinute=20, runningTurns=5)
    before = SystemClock().monotonic()
    starters = [started(file, one.account.id, "begin", 30) for _ in range(3)]
    begun = [ended(starter) for starter in starters]
    minutes = (SystemClock().monotonic() - before) / MINUTE_S
    assert [code for code, _ in begun] == [0] * 3
    assert 20 <= sum(int(out) for _, out in begun) <= 20 + 20 * minutes + 1
    records.close()
