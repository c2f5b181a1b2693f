"""Records in one DynamoDB table, for many machines.

    partition (S, hash) · sort (S, range) · counter (N) · value (S, JSON) · write_id (S)
    expires_at (N, exact) · sweep_at (N, whole seconds, the table's TTL attribute)

A single change is one conditional request. A batch is one TransactWriteItems, and a guard is a
ConditionCheck in it. Every read is consistent. DynamoDB deletes expired items within days, not seconds, so
every condition and every read checks the clock itself. `sweep_at` is only for DynamoDB's own deletion,
which counts whole seconds.

`Put` with ANY has to return a counter that it does not know. Alone it is an UpdateItem that adds one. In a
batch DynamoDB returns no values, so the counter is read first and becomes the condition. If that race is
lost, the counter is read again.

Lost answers. Every item carries the `write_id` of the call that put it. If an answer is lost, the same
request is sent again with the same ClientRequestToken, by which AWS recognises a transaction for ten
minutes. Single requests have no token and other servers ignore it. So the call also looks at the item that
violates a condition. An item with this call's `write_id` is this call's own effect: the call has
succeeded. After a lost answer, any other item may have been written on top of that effect. The call then
raises `Unavailable`, never `Conflict`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from workspaces.clock import Clock, SystemClock
from workspaces.conditions import ABSENT, ANY, Wildcard, is_met
from workspaces.errors import Conflict
from workspaces.storage.attempts import Attempts, Throttled, retried
from workspaces.storage.dynamodb.expressions import (
    LIVE,
    Attributes,
    WriteExpression,
    counting_update,
    cut_to_key_size,
    is_written_by,
    key_attributes,
    new_write_id,
    number,
    with_names,
    write_expression,
)
from workspaces.storage.dynamodb.table import ConditionFailed, Table
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
from workspaces.storage.timing import timed

READ_ROUNDS_MAX = 20
"""BatchGetItem may leave keys for the next round. This many rounds without an end are an outage."""

T = TypeVar("T")


class DynamoRecords:
    """A record store in one table, which `create_table` has made or which looks the same."""

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

    @timed("records", "get")
    def get(self, key: Key) -> Item | None:
        attributes = key_attributes(key)
        answer = retried(
            lambda: self._table.ask("get_item", Key=attributes, ConsistentRead=True), self._sleep
        )
        return self._live(answer.get("Item"))

    @timed("records", "write")
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

    @timed("records", "scan")
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
        items: list[Item] = []
        page = limit + 1  # BETWEEN includes `end`, which does not count
        while True:
            answer = retried(
                lambda page=page: self._table.ask("query", **query, Limit=page), self._sleep
            )
            for attributes in answer["Items"]:
                item = self._table.item(attributes)
                if start <= item.key.sort and (end is None or item.key.sort < end):
                    items.append(item)
            if len(items) >= limit or "LastEvaluatedKey" not in answer:
                return items[:limit]
            query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
            page = min(2 * page, SCAN_ITEMS_MAX)  # the page had expired items: skip them faster

    def close(self) -> None:
        self._table.close()

    def _query(self, partition: str, start: str, end: str | None) -> dict[str, Any]:
        """Return the arguments of a query.

        A query allows one condition on the sort key, and no bound longer than a key.

        If a bound is left out or cut short here, `scan` applies it to the returned items.
        """
        values = {":partition": {"S": partition}, ":now": number(self._now())}
        condition = "#partition = :partition"
        if start:
            values[":start"] = {"S": cut_to_key_size(start)}
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
        return with_names(
            {
                "KeyConditionExpression": condition,
                "FilterExpression": LIVE,
                "ExpressionAttributeValues": values,
                "ConsistentRead": True,
            }
        )

    def _count_up(self, put: Put, text: str) -> Counter:
        """Carry out a single `Put` with ANY. An expired item does not count: it is replaced."""
        attempts = Attempts(self._sleep)
        write_id = new_write_id()
        while True:
            request = counting_update(put, text, write_id, self._now())
            try:
                answer = self._table.ask("update_item", **request)
                return int(answer["Attributes"]["counter"]["N"])
            except ConditionFailed as failure:
                current = failure.current[0]
                # The effect of this call, whose answer was lost.
                if current is not None and is_written_by(write_id, current):
                    return int(current["counter"]["N"])
            except Throttled as error:
                attempts.pause_after(error)
                continue
            with suppress(Conflict):
                return self._write((replace(put, expect=ABSENT),), [text])[0]
            attempts.pause_after(Throttled(self._table.contended()))

    def _check(self, check: Check) -> None:
        item = self.get(check.key)
        counter = item.counter if item else None
        if not is_met(check.expect, counter):
            raise _conflict(check, counter)

    def _write(self, changes: Sequence[RecordChange], texts: Sequence[str]) -> tuple[Counter, ...]:
        attempts = Attempts(self._sleep)
        write_id = new_write_id()
        while True:
            counters = self._counters_replaced_by_any(changes)
            conditions = [counters.get(change.key, change.expect) for change in changes]
            requests = [
                write_expression(change, text, condition, write_id, self._now())
                for change, text, condition in zip(changes, texts, conditions, strict=True)
                if not (isinstance(change, Check) and change.expect is ANY)
            ]
            unmet = self._send(requests, write_id, attempts)
            if unmet is None:
                return tuple(
                    1 if isinstance(condition, Wildcard) else condition + 1
                    for change, condition in zip(changes, conditions, strict=True)
                    if isinstance(change, Put)
                )
            self._raise_conflict(changes, unmet)
            attempts.pause_after(Throttled(self._table.contended()))

    def _send(
        self, requests: Sequence[WriteExpression], write_id: str, attempts: Attempts
    ) -> dict[Key, Attributes | None] | None:
        """Return None if the batch was written, else the items whose conditions did not hold, by key."""
        token = new_write_id()
        while requests:
            try:
                self._table.send(requests, token)
                break
            except ConditionFailed as failure:
                unmet = {requests[index].key: item for index, item in failure.current.items()}
                if any(item and is_written_by(write_id, item) for item in unmet.values()):
                    break  # the effect of a lost answer
                if attempts.lost:
                    raise self._table.unknown() from failure
                return unmet
            except Throttled as error:
                attempts.pause_after(error)
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
        unread = [key_attributes(key) for key in keys]
        for _ in range(READ_ROUNDS_MAX):
            if not unread:
                return conditions
            items, unread = retried(lambda unread=unread: self._table.read(unread), self._sleep)
            for item in filter(None, map(self._live, items)):
                conditions[item.key] = item.counter
        raise self._table.contended()

    def _live(self, attributes: Attributes | None) -> Item | None:
        if attributes is None:
            return None
        item = self._table.item(attributes)
        if item.expires_at is not None and item.expires_at <= self._now():
            return None
        return item

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _conflict(change: RecordChange, counter: Counter | None) -> Conflict:
    return Conflict("record", str(change.key), expected=change.expect, actual=counter)
