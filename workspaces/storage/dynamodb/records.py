"""Records in one DynamoDB table: for many machines.

    partition (S, hash) · sort (S, range) · counter (N) · value (S, JSON) · write_id (S)
    expires_at (N, exact) · sweep_at (N, whole seconds, the table's TTL attribute)

A single change is one conditional request, a batch is one TransactWriteItems, and a guard is its
ConditionCheck. Every read is consistent. DynamoDB deletes what has expired within days, not seconds, so
every condition and every read asks the clock itself; `sweep_at` is only for the sweeper, which counts
whole seconds.

`Put` with ANY has to return a counter it does not know. Alone it is an UpdateItem that adds one; in a
batch, where DynamoDB returns no values, the counter is read first and becomes the condition, and losing
that race means reading again.

Lost answers. Every item carries the `write_id` of the call that put it. When an answer did not come, the
same request goes out again: with the same ClientRequestToken, by which AWS knows a transaction for ten
minutes, and, because single requests have no token and other servers ignore it, with a look at what
stands in the way: an item with this call's `write_id` is this call's own effect, and the call has
succeeded. Anything else in the way after a lost answer may stand on top of that effect: the call then
says `Unavailable`, never `Conflict`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from workspaces.clock import Clock, SystemClock
from workspaces.conditions import ABSENT, ANY, Wildcard, is_met
from workspaces.errors import Conflict
from workspaces.storage.dynamodb.expressions import (
    LIVE,
    Attributes,
    WriteExpression,
    at_most_a_key,
    counting,
    is_by,
    key_words,
    named,
    new_write_id,
    number,
    request_of,
)
from workspaces.storage.dynamodb.table import AnswerLost, ConditionFailed, Table, Throttled
from workspaces.storage.idle_hook import about_to_wait
from workspaces.storage.records import (
    KEY_BYTES_MAX,
    SCAN_ITEMS_MAX,
    Check,
    Condition,
    Counter,
    Item,
    Key,
    Put,
    RecordChange,
    check_batch,
    encoded_batch,
)

TRIES_MAX = 10
"""How often one call is sent: throttled, or in another's way, it comes again a little later."""

LOST_ANSWERS_MAX = 2
"""A third silence is an outage, and each one costs READ_TIMEOUT_S."""

PAUSE_S = 0.02
PAUSE_S_MAX = 1.0

READ_ROUNDS_MAX = 20
"""BatchGetItem may leave keys for the next round; this many rounds without an end are an outage."""

T = TypeVar("T")


class DynamoRecords:
    """`table` must have been made by `create_table`, or look the same."""

    def __init__(
        self,
        table: str,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._table = Table(table)
        self._clock = clock or SystemClock()
        self._sleep = sleep

    def get(self, key: Key) -> Item | None:
        answer = self._patiently(
            lambda: self._table.ask("get_item", Key=key_words(key), ConsistentRead=True)
        )
        return self._live(answer.get("Item"))

    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        check_batch(changes)
        texts = encoded_batch(changes)
        match changes:
            case (Put(expect=Wildcard.ANY) as put,):
                return (self._count_up(put, texts[0]),)
            case (Check() as check,):
                self._check(check)
                return ()
            case _:
                return self._write(changes, texts)

    def scan(
        self,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        backwards: bool = False,
        limit: int = SCAN_ITEMS_MAX,
    ) -> list[Item]:
        limit = min(limit, SCAN_ITEMS_MAX)
        if limit <= 0 or (end is not None and end <= start):
            return []
        query = self._query(partition, start, end)
        query["ScanIndexForward"] = not backwards
        found: list[Item] = []
        page = limit + 1  # BETWEEN takes `end` along, which does not count
        while True:
            answer = self._patiently(
                lambda page=page: self._table.ask("query", **query, Limit=page)
            )
            for attributes in answer["Items"]:
                item = self._table.item(attributes)
                if start <= item.key.sort and (end is None or item.key.sort < end):
                    found.append(item)
            if len(found) >= limit or "LastEvaluatedKey" not in answer:
                return found[:limit]
            query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
            page = min(2 * page, SCAN_ITEMS_MAX)  # expired items are in the way: skip them faster

    def close(self) -> None:
        self._table.close()

    def _query(self, partition: str, start: str, end: str | None) -> dict[str, Any]:
        """One condition on the sort key is all that a query takes, and no bound longer than a key.

        A bound that is left out or cut short here is applied by `scan` to what comes back.
        """
        values = {":partition": {"S": partition}, ":now": number(self._now())}
        condition = "#partition = :partition"
        if start:
            values[":start"] = {"S": at_most_a_key(start)}
        if end is not None and len(end.encode()) <= KEY_BYTES_MAX:
            values[":end"] = {"S": end}
        match (":start" in values, ":end" in values):
            case True, True:
                condition += " AND #sort BETWEEN :start AND :end"
            case True, False:
                condition += " AND #sort >= :start"
            case False, True:
                condition += " AND #sort < :end"
            case _:
                pass
        return named(
            {
                "KeyConditionExpression": condition,
                "FilterExpression": LIVE,
                "ExpressionAttributeValues": values,
                "ConsistentRead": True,
            }
        )

    def _count_up(self, put: Put, text: str) -> Counter:
        """A single `Put` with ANY. What has expired is no predecessor: it is replaced, not counted."""
        tries = _Tries(self._sleep)
        write_id = new_write_id()
        while True:
            request = counting(put, text, write_id, self._now())
            try:
                answer = self._table.ask("update_item", **request)
                return int(answer["Attributes"]["counter"]["N"])
            except ConditionFailed as unmet:
                there = unmet.found[0]
                if there is not None and is_by(write_id, there):
                    return int(there["counter"]["N"])
            except (Throttled, AnswerLost) as error:
                tries.after(error)
                continue
            with suppress(Conflict):
                return self._write((replace(put, expect=ABSENT),), [text])[0]
            tries.after(Throttled(self._table.contended()))

    def _check(self, check: Check) -> None:
        item = self.get(check.key)
        counter = item.counter if item else None
        if not is_met(check.expect, counter):
            raise _conflict(check, counter)

    def _write(self, changes: Sequence[RecordChange], texts: Sequence[str]) -> tuple[Counter, ...]:
        tries = _Tries(self._sleep)
        write_id = new_write_id()
        while True:
            current = self._counters_replaced_by_any(changes)
            conditions = [current.get(change.key, change.expect) for change in changes]
            requests = [
                request_of(change, text, condition, write_id, self._now())
                for change, text, condition in zip(changes, texts, conditions, strict=True)
                if not (isinstance(change, Check) and change.expect is ANY)
            ]
            unmet = self._carried_out(requests, write_id, tries)
            if unmet is None:
                return tuple(
                    1 if isinstance(condition, Wildcard) else condition + 1
                    for change, condition in zip(changes, conditions, strict=True)
                    if isinstance(change, Put)
                )
            self._raise_conflict(changes, unmet)
            tries.after(Throttled(self._table.contended()))

    def _carried_out(
        self, requests: Sequence[WriteExpression], write_id: str, tries: _Tries
    ) -> dict[Key, Attributes | None] | None:
        """None when it happened, else what stands under the keys whose conditions did not hold."""
        token = new_write_id()
        while requests:
            about_to_wait()
            try:
                self._table.send(requests, token)
                break
            except ConditionFailed as unmet:
                found = {requests[index].key: there for index, there in unmet.found.items()}
                if any(there and is_by(write_id, there) for there in found.values()):
                    break
                if tries.lost:
                    raise self._table.unknown() from unmet
                return found
            except (Throttled, AnswerLost) as error:
                tries.after(error)
        return None

    def _raise_conflict(
        self, changes: Sequence[RecordChange], unmet: dict[Key, Attributes | None]
    ) -> None:
        for change in changes:
            if change.key in unmet and change.expect is not ANY:
                item = self._live(unmet[change.key])
                raise _conflict(change, item.counter if item else None)

    def _counters_replaced_by_any(self, changes: Sequence[RecordChange]) -> dict[Key, Condition]:
        keys = [c.key for c in changes if isinstance(c, Put) and c.expect is ANY]
        conditions: dict[Key, Condition] = dict.fromkeys(keys, ABSENT)
        ahead = [key_words(key) for key in keys]
        for _ in range(READ_ROUNDS_MAX):
            if not ahead:
                return conditions
            found, ahead = self._patiently(lambda ahead=ahead: self._table.read(ahead))
            for item in filter(None, map(self._live, found)):
                conditions[item.key] = item.counter
        raise self._table.contended()

    def _patiently(self, ask: Callable[[], T]) -> T:
        """A read; those may be repeated."""
        tries = _Tries(self._sleep)
        while True:
            try:
                return ask()
            except (Throttled, AnswerLost) as error:
                tries.after(error)

    def _live(self, attributes: Attributes | None) -> Item | None:
        if attributes is None:
            return None
        item = self._table.item(attributes)
        if item.expires_at is not None and item.expires_at <= self._now():
            return None
        return item

    def _now(self) -> float:
        return self._clock.now().timestamp()


class _Tries:
    """The patience of one call: how often it may be sent again, and how long it waits before that."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.lost = 0
        self._made = 0
        self._sleep = sleep

    def after(self, error: Throttled) -> None:
        self._made += 1
        self.lost += isinstance(error, AnswerLost)
        if self._made >= TRIES_MAX or self.lost > LOST_ANSWERS_MAX:
            raise error.failure from error
        pause = min(PAUSE_S_MAX, PAUSE_S * 2**self._made)
        self._sleep(pause * random.random())  # noqa: S311 - spreads writers out, keeps no secret


def _conflict(change: RecordChange, counter: Counter | None) -> Conflict:
    return Conflict("record", str(change.key), expected=change.expect, actual=counter)
