"""Allowance: what an account may use, by the limits in its configuration.

    turnsPerMinute    a bucket of so many turns that fills evenly, within a minute when it was empty
    runningTurns      so many slots; a turn holds one while it runs
    dollarsPerDay, dollarsPerMonth    asked before every question, so that a long turn ends within them too

A limit that is not set costs nothing: that there is none on money was seen when the turn was admitted, and is
believed for a moment. All of it lies in the record store and holds across processes and machines. The limits
keep accounts from harm, not from cheating: clocks of machines that differ by seconds, and questions that are
under way at the same moment, may exceed them by as much.

A slot is an item that expires, and is renewed while its turn runs. What a killed process held is free at
once for the others of its machine, and a minute later for everyone.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

from harness.billing.ledger import Ledger
from harness.billing.price import NANODOLLARS
from harness.runtime.async_bridge import run_in_new_thread, run_in_thread, run_or_undo
from workspaces.accounts.account import AccountLimits, Accounts
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, Exhausted, Failure, Refused, Unavailable
from workspaces.ids import AccountId
from workspaces.localfs.process import is_dead, this_process
from workspaces.storage.records import Counter, Delete, Key, Put, RecordStore, with_prefix

MINUTE_S = 60.0

SLOT_S = 60.0
RENEW_S = 20.0
"""Two renewals may fail before a slot is given to somebody else."""

LOOK_AGAIN_S = 5.0
"""When a slot will be free nobody knows; turns take seconds."""

KNOWN_S = 1.0
"""For how long an account without a limit on money is taken for one: a limit that is set while a turn runs
holds for its questions from then on."""
KNOWN_MAX = 1_000
"""Accounts, of which little more than the name is kept."""

TRIES_MAX = 100
"""Each lost race is somebody else's success; so many in a row mean that something is broken."""


@dataclass(slots=True)
class Slot:
    key: Key
    by: str
    """Its own mark: who comes after an item that expired begins with its counter anew."""
    counter: Counter
    guard: threading.Lock = field(default_factory=threading.Lock)
    is_held: bool = True


class AccountLimiter:
    """Of all accounts of a home. Threads share it; so may any number of processes."""

    def __init__(
        self, records: RecordStore, clock: Clock, accounts: Accounts, ledger: Ledger
    ) -> None:
        self._records = records
        self._clock = clock
        self._accounts = accounts
        self._ledger = ledger
        self._one_at_a_time = threading.Lock()
        self._unlimited: dict[AccountId, float] = {}
        """When it was seen that there is no limit on money."""

    @asynccontextmanager
    async def admitted(self, account_id: AccountId) -> AsyncGenerator[None]:
        """For a turn that is about to run, around its run. Exhausted, naming the limit, while the
        account may not."""
        slot = await run_or_undo(lambda: self.admit(account_id), self.let_go)
        async with self.holding(slot):
            yield

    @asynccontextmanager
    async def holding(self, slot: Slot | None) -> AsyncGenerator[None]:
        """It stays taken, and is let go of in the end."""
        if slot is None:
            yield
            return
        keeper = asyncio.create_task(self._keep(slot))
        try:
            yield
        finally:
            keeper.cancel()
            await run_in_thread(self.let_go, slot)

    def check(self, account_id: AccountId, *, waits: bool = False) -> None:
        """Exhausted if a turn would not be admitted now; takes nothing. `waits`: another one runs before it
        anyway, so how many run now says nothing."""
        limits = self._limits(account_id)
        self._check_money(account_id, limits)
        if limits.running_turns is not None and not waits:
            self._free_slots(account_id, limits.running_turns)
        if limits.turns_per_minute is not None:
            self._after_next_turn(account_id, limits.turns_per_minute)

    def is_unlimited(self, account_id: AccountId) -> bool:
        """Whether there was no limit on money a moment ago, so that `check_money` would ask nothing more. To
        be called by an event loop: it waits for nobody."""
        seen_at = self._unlimited.get(account_id)
        return seen_at is not None and self._clock.monotonic() - seen_at <= KNOWN_S

    def was_unlimited(self, account_id: AccountId) -> bool:
        """Whether there was no limit on money when somebody looked last, however long ago."""
        return account_id in self._unlimited

    def check_money(self, account_id: AccountId, model: str) -> None:
        """Exhausted when there is none left; Refused for a model whose price nobody knows, where
        there is a limit."""
        limits = self._limits(account_id)
        if not limits.are_on_money:
            return
        limit = "dollarsPerDay" if limits.dollars_per_day is not None else "dollarsPerMonth"
        if self._ledger.prices.find(model) is None:
            raise Refused(
                "model",
                model,
                f"has no price, so the account's limit {limit} cannot be kept",
                remedy="state its price in the file that the setting `prices` names",
            )
        self._check_money(account_id, limits)

    def forget(self, account_id: AccountId) -> None:
        """Everything of an account that is deleted."""
        for item in with_prefix(self._records, f"allowance:{account_id}", ""):
            self._records.write(Delete(item.key))

    def _limits(self, account_id: AccountId) -> AccountLimits:
        looked_at = self._clock.monotonic()
        limits = self._accounts.get(account_id).config.limits
        if limits.are_on_money:
            self._unlimited.pop(account_id, None)
        else:
            if len(self._unlimited) >= KNOWN_MAX:
                self._unlimited.clear()
            self._unlimited[account_id] = looked_at
        return limits

    def admit(self, account_id: AccountId) -> Slot | None:
        """The rate comes last: what is refused for another reason does not count as a turn."""
        limits = self._limits(account_id)
        self._check_money(account_id, limits)
        with self._one_at_a_time:  # a process loses no race against itself
            slot = self._taken(account_id, limits.running_turns) if limits.running_turns else None
            try:
                if limits.turns_per_minute is not None:
                    self._count_turn(account_id, limits.turns_per_minute)
            except BaseException:
                if slot is not None:
                    self.let_go(slot)
                raise
            return slot

    # money

    def _check_money(self, account_id: AccountId, limits: AccountLimits) -> None:
        today = self._ledger.today()
        if limits.dollars_per_day is not None:
            spent = self._ledger.spent_on(account_id, today).nanodollars
            self._check_spent("dollarsPerDay", limits.dollars_per_day, spent, _midnight(today, 1))
        if limits.dollars_per_month is not None:
            spent = self._ledger.spent_in_month(account_id, today).nanodollars
            days = (today.replace(day=28) + timedelta(days=4)).replace(day=1) - today
            end = _midnight(today, days.days)
            self._check_spent("dollarsPerMonth", limits.dollars_per_month, spent, end)

    def _check_spent(self, limit: str, maximum: float, spent: int, free_at: datetime) -> None:
        if spent < round(maximum * NANODOLLARS):
            return
        free_in_s = (free_at - self._clock.now()).total_seconds()
        told = f"{spent / NANODOLLARS:.2f} of {maximum:.2f} dollars are spent"
        raise Exhausted(limit, told, maximum=maximum, left=0, free_in_s=max(1.0, free_in_s))

    # rate

    def _count_turn(self, account_id: AccountId, per_minute: int) -> None:
        for _ in range(TRIES_MAX):
            put = self._after_next_turn(account_id, per_minute)
            with suppress(Conflict):
                self._records.write(put)
                return
        raise _restless("turnsPerMinute")

    def _after_next_turn(self, account_id: AccountId, per_minute: int) -> Put:
        """`full_at` is when the bucket would be full again if nothing more were taken: it says how
        much is in it at any moment. One that is too far ahead was written before the clock was set
        back."""
        key = Key(f"allowance:{account_id}", "rate")
        item = self._records.get(key)
        now = self._clock.now().timestamp()
        stated = item.value["full_at"] if item else now
        full_at = max(stated, now) if stated <= now + 2 * MINUTE_S else now
        one = MINUTE_S / per_minute
        free_in_s = full_at + one - (now + MINUTE_S)
        if free_in_s > 1e-6:
            told = f"{per_minute} of {per_minute} turns of a minute are begun"
            raise Exhausted("turnsPerMinute", told, maximum=per_minute, left=0, free_in_s=free_in_s)
        value = {"full_at": full_at + one}
        expires_at = now + 2 * MINUTE_S
        return Put(key, value, expect=item.counter if item else ABSENT, expires_at=expires_at)

    # slots

    def _taken(self, account_id: AccountId, maximum: int) -> Slot:
        for _ in range(TRIES_MAX):
            key, counter = random.choice(self._free_slots(account_id, maximum))  # noqa: S311
            by = secrets.token_hex(8)
            value = {"process": this_process(), "by": by}
            put = Put(key, value, counter or ABSENT, self._slot_end())
            with suppress(Conflict):
                return Slot(key, by, self._records.write(put)[0])
        raise _restless("runningTurns")

    def _free_slots(self, account_id: AccountId, maximum: int) -> list[tuple[Key, Counter | None]]:
        """With the counter of what a dead process left there. Exhausted when there are none."""
        partition = f"allowance:{account_id}"
        there = {item.key: item for item in with_prefix(self._records, partition, "slot:")}
        processes = {item.value["process"] for item in there.values()}
        dead = {process for process in processes if is_dead(process)}
        free: list[tuple[Key, Counter | None]] = []
        for number in range(maximum):
            key = Key(partition, f"slot:{number:04}")
            item = there.pop(key, None)
            if item is None or item.value["process"] in dead:
                free.append((key, item.counter if item else None))
        beyond = sum(item.value["process"] not in dead for item in there.values())
        if len(free) <= beyond:  # held from a time when the limit was higher
            told = f"{maximum} of {maximum} turns are running"
            raise Exhausted("runningTurns", told, maximum=maximum, left=0, free_in_s=LOOK_AGAIN_S)
        return free

    async def _keep(self, slot: Slot) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            with suppress(Failure):  # a store that does not answer may answer the next time
                await run_in_new_thread(self._renew, slot)

    def _renew(self, slot: Slot) -> None:
        with slot.guard:
            item = self._records.get(slot.key)
            if not slot.is_held or item is None or item.value["by"] != slot.by:
                return
            put = Put(slot.key, item.value, slot.counter, self._slot_end())
            (slot.counter,) = self._records.write(put)

    def let_go(self, slot: Slot | None) -> None:
        if slot is None:
            return
        with slot.guard, suppress(Failure):  # it ends by itself
            slot.is_held = False
            item = self._records.get(slot.key)
            if item is not None and item.value["by"] == slot.by:
                self._records.write(Delete(slot.key, expect=slot.counter))

    def _slot_end(self) -> float:
        return self._clock.now().timestamp() + SLOT_S


def _midnight(today: date, days: int) -> datetime:
    return datetime.combine(today, time(), UTC) + timedelta(days=days)


def _restless(limit: str) -> Unavailable:
    return Unavailable(limit, "others take from it all the time", remedy="try again")
