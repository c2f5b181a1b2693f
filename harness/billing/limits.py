"""The limits of an account: turns a minute, turns at once, and money, as its configuration sets them.

    turnsPerMinute    a bucket of so many turns that fills evenly, within a minute when it was empty
    runningTurns      so many slots; a turn holds one while it runs
    dollarsPerDay, dollarsPerMonth    checked before every model request, so that a long turn stops too

A limit that is not set costs no time. If an account had no limit on money when its turn was admitted, this is
not checked again for a moment. All state lies in the record store and holds across processes and machines.
The limits protect accounts from harm, not from cheating. Clocks of machines that differ by seconds may exceed
a limit by that much, and so may requests that run at the same moment.

A slot is an item that expires, and is renewed while its turn runs. Slots of a killed process are free at once
for other processes of its machine, and a minute later for every process.
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
from workspaces.errors import Exhausted, Failure, Refused
from workspaces.ids import AccountId
from workspaces.localfs.process import is_dead, this_process
from workspaces.storage.contention import until_written
from workspaces.storage.records import Counter, Delete, Key, Put, RecordStore, with_prefix

MINUTE_S = 60.0

SLOT_S = 60.0
RENEW_S = 20.0
"""Seconds between two renewals. Two renewals may fail before another turn can take the slot."""

LOOK_AGAIN_S = 5.0
"""Seconds to wait for a slot. The moment when one becomes free is unknown; turns take seconds."""

KNOWN_S = 1.0
"""Seconds for which an account is taken to have no limit on money.

A limit that is set while a turn runs holds for the turn's requests after this time.
"""
KNOWN_MAX = 1_000
"""The most accounts that are remembered, each with little more than its name."""


@dataclass(slots=True)
class Slot:
    """A slot that a running turn holds."""

    key: Key
    by: str
    """Unique id of the holder.

    The counter restarts when an expired item is created again, so the counter alone does not identify the
    holder.
    """
    counter: Counter
    guard: threading.Lock = field(default_factory=threading.Lock)
    is_held: bool = True


class AccountLimiter:
    """The limits of all accounts of a home. Threads and any number of processes may share it."""

    def __init__(
        self, records: RecordStore, clock: Clock, accounts: Accounts, ledger: Ledger
    ) -> None:
        self._records = records
        self._clock = clock
        self._accounts = accounts
        self._ledger = ledger
        self._one_at_a_time = threading.Lock()
        self._unlimited: dict[AccountId, float] = {}
        """When each account was last seen without a limit on money."""

    @asynccontextmanager
    async def admitted(self, account_id: AccountId) -> AsyncGenerator[None]:
        """Admit a turn, and hold its slot while the body runs.

        Raises: Exhausted, naming the limit, while the account has reached one.
        """
        slot = await run_or_undo(lambda: self.admit(account_id), self.let_go)
        async with self.holding(slot):
            yield

    @asynccontextmanager
    async def holding(self, slot: Slot | None) -> AsyncGenerator[None]:
        """Keep a slot while the body runs, and release it at the end."""
        if slot is None:
            yield
            return
        renewal = asyncio.create_task(self._keep_renewing(slot))
        try:
            yield
        finally:
            renewal.cancel()
            await run_in_thread(self.let_go, slot)

    def check(self, account_id: AccountId, *, waits: bool = False) -> None:
        """Check that a turn would be admitted now. Takes nothing.

        With `waits`, another turn runs before this one anyway, so the number of running turns is not checked.

        Raises: Exhausted, naming the limit, if the turn would not be admitted.
        """
        limits = self._limits(account_id)
        self._check_money(account_id, limits)
        if limits.running_turns is not None and not waits:
            self._free_slots(account_id, limits.running_turns)
        if limits.turns_per_minute is not None:
            self._after_next_turn(account_id, limits.turns_per_minute)

    def is_unlimited(self, account_id: AccountId) -> bool:
        """Return True if the account had no limit on money a moment ago, so that `check_money` has nothing to
        check.

        An event loop may call this: it never waits.
        """
        seen_at = self._unlimited.get(account_id)
        return seen_at is not None and self._clock.monotonic() - seen_at <= KNOWN_S

    def check_money(self, account_id: AccountId, model: str) -> None:
        """Check that the account has money left for a request to this model.

        Raises: Exhausted when there is none left; Refused for a model without a price, where there is a
        limit.
        """
        limits = self._limits(account_id)
        if not limits.are_on_money:
            return
        limit = "dollarsPerDay" if limits.dollars_per_day is not None else "dollarsPerMonth"
        if self._ledger.prices.find(model) is None:
            raise Refused(
                "model",
                model,
                f"has no price, so the account's limit {limit} cannot be checked",
                remedy="add its price to the file that the setting `prices` names",
            )
        self._check_money(account_id, limits)

    def forget(self, account_id: AccountId) -> None:
        """Delete the state of an account that is being deleted."""
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
        """Take a slot and count the turn.

        The rate is checked last, so that a turn refused for another reason does not count.

        Raises: Exhausted, naming the limit.
        """
        limits = self._limits(account_id)
        self._check_money(account_id, limits)
        with self._one_at_a_time:  # a process never loses a race against itself
            slot = (
                self._take_slot(account_id, limits.running_turns) if limits.running_turns else None
            )
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
        reason = f"{spent / NANODOLLARS:.2f} of {maximum:.2f} dollars are spent"
        raise Exhausted(limit, reason, maximum=maximum, left=0, free_in_s=max(1.0, free_in_s))

    # rate

    @until_written("turnsPerMinute")
    def _count_turn(self, account_id: AccountId, per_minute: int) -> None:
        self._records.write(self._after_next_turn(account_id, per_minute))

    def _after_next_turn(self, account_id: AccountId, per_minute: int) -> Put:
        """Return the write that counts one more turn.

        `full_at` is when the bucket would be full again if no more were taken, and so gives its level at any
        moment. A value too far in the future was written before the clock was set back.

        Raises: Exhausted when the bucket is empty.
        """
        key = Key(f"allowance:{account_id}", "rate")
        item = self._records.get(key)
        now = self._clock.now().timestamp()
        stored = item.value["full_at"] if item else now
        full_at = max(stored, now) if stored <= now + 2 * MINUTE_S else now
        one = MINUTE_S / per_minute
        free_in_s = full_at + one - (now + MINUTE_S)
        if free_in_s > 1e-6:
            reason = f"{per_minute} of {per_minute} turns were started in this minute"
            raise Exhausted(
                "turnsPerMinute", reason, maximum=per_minute, left=0, free_in_s=free_in_s
            )
        value = {"full_at": full_at + one}
        expires_at = now + 2 * MINUTE_S
        return Put(key, value, expect=item.counter if item else ABSENT, expires_at=expires_at)

    # slots

    @until_written("runningTurns")
    def _take_slot(self, account_id: AccountId, maximum: int) -> Slot:
        key, counter = random.choice(self._free_slots(account_id, maximum))  # noqa: S311
        by = secrets.token_hex(8)
        value = {"process": this_process(), "by": by}
        put = Put(key, value, counter or ABSENT, self._slot_end())
        return Slot(key, by, self._records.write(put)[0])

    def _free_slots(self, account_id: AccountId, maximum: int) -> list[tuple[Key, Counter | None]]:
        """Return the free slots, each with the counter of the item that a dead process left there.

        Raises: Exhausted when no slot is free.
        """
        partition = f"allowance:{account_id}"
        items = {item.key: item for item in with_prefix(self._records, partition, "slot:")}
        processes = {item.value["process"] for item in items.values()}
        dead = {process for process in processes if is_dead(process)}
        free: list[tuple[Key, Counter | None]] = []
        for number in range(maximum):
            key = Key(partition, f"slot:{number:04}")
            item = items.pop(key, None)
            if item is None or item.value["process"] in dead:
                free.append((key, item.counter if item else None))
        beyond = sum(item.value["process"] not in dead for item in items.values())
        if len(free) <= beyond:  # slots beyond the limit are held since the limit was higher
            reason = f"{maximum} of {maximum} turns are running"
            raise Exhausted("runningTurns", reason, maximum=maximum, left=0, free_in_s=LOOK_AGAIN_S)
        return free

    async def _keep_renewing(self, slot: Slot) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            with suppress(Failure):  # the store does not answer: the next renewal tries again
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
        with slot.guard, suppress(Failure):  # the store does not answer: the slot expires
            slot.is_held = False
            item = self._records.get(slot.key)
            if item is not None and item.value["by"] == slot.by:
                self._records.write(Delete(slot.key, expect=slot.counter))

    def _slot_end(self) -> float:
        return self._clock.now().timestamp() + SLOT_S


def _midnight(today: date, days: int) -> datetime:
    return datetime.combine(today, time(), UTC) + timedelta(days=days)
