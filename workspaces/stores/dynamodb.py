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

Credentials, region, profile and endpoint are boto3's, from the standard AWS variables and files.
"""

from __future__ import annotations

import json
import math
import os
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, assert_never

import boto3.session  # pyright: ignore[reportMissingTypeStubs]
from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]
from botocore.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoRegionError,
)
from botocore.parsers import ResponseParserError  # pyright: ignore[reportMissingTypeStubs]

from workspaces.clock import Clock, SystemClock
from workspaces.errors import Conflict, Refused, Unavailable
from workspaces.expect import ABSENT, ANY, Wildcard, is_met
from workspaces.records import (
    KEY_BYTES_MAX,
    SCAN_ITEMS_MAX,
    Change,
    Check,
    Condition,
    Counter,
    Delete,
    Item,
    Key,
    Put,
    check_batch,
    encoded_batch,
)

CONNECT_TIMEOUT_S = 2
READ_TIMEOUT_S = 5
CONNECTIONS_MAX = 50

TRIES_MAX = 10
"""How often one call is sent: throttled, or in another's way, it comes again a little later."""

LOST_ANSWERS_MAX = 2
"""A third silence is an outage, and each one costs READ_TIMEOUT_S."""

PAUSE_S = 0.02
PAUSE_S_MAX = 1.0

READ_ROUNDS_MAX = 20
"""BatchGetItem may leave keys for the next round; this many rounds without an end are an outage."""

TABLE_WAIT_S = 60.0
TABLE_POLL_S = 0.5

_KEY_SCHEMA = [
    {"AttributeName": "partition", "KeyType": "HASH"},
    {"AttributeName": "sort", "KeyType": "RANGE"},
]
_ATTRIBUTES = ("partition", "sort", "counter", "value", "expires_at", "sweep_at", "write_id")
_LIVE = "(attribute_not_exists(#expires_at) OR #expires_at > :now)"
_IS_ABSENT = "(attribute_not_exists(#partition) OR #expires_at <= :now)"
_IS_COUNTER = f"#counter = :counter AND {_LIVE}"
_NOT_YET = "(attribute_not_exists(#write_id) OR #write_id <> :write_id)"

_FOR_THE_MOMENT = {
    "LimitExceededException",
    "ProvisionedThroughputExceeded",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingError",
    "ThrottlingException",
    "TransactionConflict",
    "TransactionConflictException",
}
_MAY_HAVE_HAPPENED = {"InternalServerError", "ServiceUnavailable", "TransactionInProgressException"}
_NOT_LET_IN = {
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_CREDENTIALS_REMEDY = (
    "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and what they may do"
)
_TABLE_REMEDY = (
    "check the table's name and AWS_DEFAULT_REGION, or run `harness admin init-dynamodb`"
)

_Attributes = Mapping[str, Any]
Answer = TypeVar("Answer")


class DynamoRecords:
    """`table` must have been made by `create_table`, or look the same."""

    def __init__(
        self,
        table: str,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._server = _Server(table)
        self._clock = clock or SystemClock()
        self._sleep = sleep

    def get(self, key: Key) -> Item | None:
        answer = self._patiently(
            lambda: self._server.ask("get_item", Key=_key(key), ConsistentRead=True)
        )
        return self._live(answer.get("Item"))

    def write(self, *changes: Change) -> tuple[Counter, ...]:
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
                lambda page=page: self._server.ask("query", **query, Limit=page)
            )
            for attributes in answer["Items"]:
                item = self._server.item(attributes)
                if start <= item.key.sort and (end is None or item.key.sort < end):
                    found.append(item)
            if len(found) >= limit or "LastEvaluatedKey" not in answer:
                return found[:limit]
            query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
            page = min(2 * page, SCAN_ITEMS_MAX)  # expired items are in the way: skip them faster

    def close(self) -> None:
        self._server.close()

    def _query(self, partition: str, start: str, end: str | None) -> dict[str, Any]:
        """One condition on the sort key is all that a query takes, and no bound longer than a key.

        A bound that is left out or cut short here is applied by `scan` to what comes back.
        """
        values = {":partition": {"S": partition}, ":now": _number(self._now())}
        condition = "#partition = :partition"
        if start:
            values[":start"] = {"S": _at_most_a_key(start)}
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
        return _named(
            {
                "KeyConditionExpression": condition,
                "FilterExpression": _LIVE,
                "ExpressionAttributeValues": values,
                "ConsistentRead": True,
            }
        )

    def _count_up(self, put: Put, text: str) -> Counter:
        """A single `Put` with ANY. What has expired is no predecessor: it is replaced, not counted."""
        tries = _Tries(self._sleep)
        write_id = _new_write_id()
        while True:
            request = _counting(put, text, write_id, self._now())
            try:
                answer = self._server.ask("update_item", **request)
                return int(answer["Attributes"]["counter"]["N"])
            except _Unmet as unmet:
                there = unmet.found[0]
                if there is not None and _is_by(write_id, there):
                    return int(there["counter"]["N"])
            except (_ForTheMoment, _Lost) as error:
                tries.after(error)
                continue
            with suppress(Conflict):
                return self._write((replace(put, expect=ABSENT),), [text])[0]
            tries.after(_ForTheMoment(self._server.contended()))

    def _check(self, check: Check) -> None:
        item = self.get(check.key)
        counter = item.counter if item else None
        if not is_met(check.expect, counter):
            raise _conflict(check, counter)

    def _write(self, changes: Sequence[Change], texts: Sequence[str]) -> tuple[Counter, ...]:
        tries = _Tries(self._sleep)
        write_id = _new_write_id()
        while True:
            current = self._counters_replaced_by_any(changes)
            conditions = [current.get(change.key, change.expect) for change in changes]
            requests = [
                _request(change, text, condition, write_id, self._now())
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
            tries.after(_ForTheMoment(self._server.contended()))

    def _carried_out(
        self, requests: Sequence[_Request], write_id: str, tries: _Tries
    ) -> dict[Key, _Attributes | None] | None:
        """None when it happened, else what stands under the keys whose conditions did not hold."""
        token = _new_write_id()
        while requests:
            try:
                self._server.send(requests, token)
                break
            except _Unmet as unmet:
                found = {requests[index].key: there for index, there in unmet.found.items()}
                if any(there and _is_by(write_id, there) for there in found.values()):
                    break
                if tries.lost:
                    raise self._server.unknown() from unmet
                return found
            except (_ForTheMoment, _Lost) as error:
                tries.after(error)
        return None

    def _raise_conflict(
        self, changes: Sequence[Change], unmet: dict[Key, _Attributes | None]
    ) -> None:
        for change in changes:
            if change.key in unmet and change.expect is not ANY:
                item = self._live(unmet[change.key])
                raise _conflict(change, item.counter if item else None)

    def _counters_replaced_by_any(self, changes: Sequence[Change]) -> dict[Key, Condition]:
        keys = [c.key for c in changes if isinstance(c, Put) and c.expect is ANY]
        conditions: dict[Key, Condition] = dict.fromkeys(keys, ABSENT)
        ahead = [_key(key) for key in keys]
        for _ in range(READ_ROUNDS_MAX):
            if not ahead:
                return conditions
            found, ahead = self._patiently(lambda ahead=ahead: self._server.read(ahead))
            for item in filter(None, map(self._live, found)):
                conditions[item.key] = item.counter
        raise self._server.contended()

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        """A read; those may be repeated."""
        tries = _Tries(self._sleep)
        while True:
            try:
                return ask()
            except (_ForTheMoment, _Lost) as error:
                tries.after(error)

    def _live(self, attributes: _Attributes | None) -> Item | None:
        if attributes is None:
            return None
        item = self._server.item(attributes)
        if item.expires_at is not None and item.expires_at <= self._now():
            return None
        return item

    def _now(self) -> float:
        return self._clock.now().timestamp()


def create_table(table: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Make the table, paid per request, expiring by `sweep_at`; returns when it can be used.

    A table that is there already is left as it is, if its keys are the right ones.
    """
    server = _Server(table)
    try:
        if (found := server.description()) is None:
            server.create()
        _wait_until_active(server, sleep)
        found = server.description() or {}
        if found.get("KeySchema") != _KEY_SCHEMA:
            raise Refused(
                "table", table, "has other keys", remedy="choose a name that is not in use"
            )
        server.expire_by("sweep_at")
    except (_ForTheMoment, _Lost) as error:
        raise error.failure from error
    finally:
        server.close()


def _wait_until_active(server: _Server, sleep: Callable[[float], None]) -> None:
    for _ in range(int(TABLE_WAIT_S / TABLE_POLL_S)):
        if (server.description() or {}).get("TableStatus") in {"ACTIVE", "UPDATING"}:
            return
        sleep(TABLE_POLL_S)
    raise Unavailable(
        server.name, f"the table is not ready after {TABLE_WAIT_S:g} s", remedy="run it again"
    )


@dataclass(frozen=True, slots=True)
class _Request:
    """One change, in the words that single requests and transactions share."""

    kind: Literal["Put", "Delete", "ConditionCheck"]
    key: Key
    words: dict[str, Any]


class _Unmet(Exception):
    """Conditions did not hold; `found` tells by position what is there instead."""

    def __init__(self, found: dict[int, _Attributes | None]) -> None:
        super().__init__(found)
        self.found = found


class _ForTheMoment(Exception):
    """Certainly nothing happened; ask again a little later. `failure` is what it is if that was all."""

    def __init__(self, failure: Unavailable) -> None:
        super().__init__(failure)
        self.failure = failure


class _Lost(_ForTheMoment):
    """Asked, and not answered: it may have happened."""


class _Tries:
    """The patience of one call: how often it may be sent again, and how long it waits before that."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.lost = 0
        self._made = 0
        self._sleep = sleep

    def after(self, error: _ForTheMoment) -> None:
        self._made += 1
        self.lost += isinstance(error, _Lost)
        if self._made >= TRIES_MAX or self.lost > LOST_ANSWERS_MAX:
            raise error.failure from error
        pause = min(PAUSE_S_MAX, PAUSE_S * 2**self._made)
        self._sleep(pause * random.random())  # noqa: S311 - spreads writers out, keeps no secret


class _Server:
    """Everything that touches boto3: requests go out, and what comes back has a name from this file."""

    def __init__(self, table: str) -> None:
        self.name = f"DynamoDB table {table!r}"
        self._table = table
        self._clients: dict[int, Any] = {}
        self._client()

    def send(self, requests: Sequence[_Request], token: str) -> None:
        match requests:
            case (_Request(kind="Put") as put,):
                self.ask("put_item", **put.words)
            case (_Request(kind="Delete") as delete,):
                self.ask("delete_item", **delete.words)
            case _:
                named = {"TableName": self._table}
                items = [{request.kind: request.words | named} for request in requests]
                self._ask("transact_write_items", TransactItems=items, ClientRequestToken=token)

    def read(self, keys: Sequence[_Attributes]) -> tuple[list[_Attributes], list[_Attributes]]:
        """The items there are, without their values, and the keys still to be asked for."""
        words = _named(
            {"ProjectionExpression": "#partition, #sort, #counter, #expires_at, #write_id"}
        )
        asked = {self._table: words | {"Keys": keys, "ConsistentRead": True}}
        answer = self._ask("batch_get_item", RequestItems=asked)
        ahead = answer.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
        return answer["Responses"].get(self._table, []), ahead

    def ask(self, method: str, **words: Any) -> _Attributes:
        return self._ask(method, TableName=self._table, **words)

    def description(self) -> _Attributes | None:
        try:
            return self.ask("describe_table")["Table"]
        except _NoTable:
            return None

    def create(self) -> None:
        with suppress(_Exists):
            self.ask(
                "create_table",
                BillingMode="PAY_PER_REQUEST",
                KeySchema=_KEY_SCHEMA,
                AttributeDefinitions=[
                    {"AttributeName": part["AttributeName"], "AttributeType": "S"}
                    for part in _KEY_SCHEMA
                ],
            )

    def expire_by(self, attribute: str) -> None:
        found = self.ask("describe_time_to_live")["TimeToLiveDescription"]
        if found["TimeToLiveStatus"] in {"ENABLED", "ENABLING"}:
            return
        self.ask(
            "update_time_to_live",
            TimeToLiveSpecification={"AttributeName": attribute, "Enabled": True},
        )

    def item(self, attributes: _Attributes) -> Item:
        try:
            return Item(
                Key(attributes["partition"]["S"], attributes["sort"]["S"]),
                json.loads(attributes["value"]["S"]) if "value" in attributes else {},
                int(attributes["counter"]["N"]),
                float(attributes["expires_at"]["N"]) if "expires_at" in attributes else None,
            )
        except (KeyError, ValueError) as error:
            raise Unavailable(
                self.name, "it holds an item that is none of ours", remedy=_TABLE_REMEDY
            ) from error

    def contended(self) -> Unavailable:
        return Unavailable(
            self.name, "too many writers want the same item", remedy="try again in a moment"
        )

    def unknown(self) -> Unavailable:
        return Unavailable(
            self.name,
            "the answer to a write was lost, and others wrote since: whether it happened is unknown",
            remedy="read the records again before going on",
        )

    def close(self) -> None:
        if (client := self._clients.pop(os.getpid(), None)) is not None:
            client.close()

    def _ask(self, method: str, **words: Any) -> _Attributes:
        client = self._client()
        try:
            return getattr(client, method)(**words)
        except ClientError as error:
            raise self._refusal(error.response) from error
        except (BotoCoreError, ResponseParserError) as error:
            raise self._silence(error) from error

    def _client(self) -> Any:
        """One per process: a fork must not share its parent's sockets."""
        client = self._clients.get(os.getpid())
        if client is None:
            try:
                client = self._clients.setdefault(os.getpid(), _connected())
            except (BotoCoreError, ValueError) as error:  # ValueError: an endpoint that is no URL
                raise self._unconfigured(error) from error
        return client

    def _refusal(self, response: Any) -> Exception:
        """What an answer means that is a no."""
        code, message = response["Error"]["Code"], response["Error"].get("Message", "")
        if code == "ConditionalCheckFailedException":
            return _Unmet({0: response.get("Item")})
        if code == "TransactionCanceledException":
            return self._cancelled(response["CancellationReasons"])
        if code in _FOR_THE_MOMENT:
            return _ForTheMoment(
                Unavailable(self.name, f"it is busy ({code})", remedy="try again in a moment")
            )
        if code in _MAY_HAVE_HAPPENED or response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
            return _Lost(
                Unavailable(self.name, f"it failed ({code})", remedy="try again in a moment")
            )
        if code == "ResourceNotFoundException":
            return _NoTable(self.name, "it does not exist", remedy=_TABLE_REMEDY)
        if code == "ResourceInUseException":
            return _Exists(self.name, "it is being made or changed", remedy="try again in a moment")
        if code in _NOT_LET_IN:
            return Unavailable(self.name, f"not let in ({code})", remedy=_CREDENTIALS_REMEDY)
        return Unavailable(self.name, f"{code}: {message}")

    def _cancelled(self, reasons: Sequence[Any]) -> Exception:
        codes = [reason.get("Code", "None") for reason in reasons]
        found: dict[int, _Attributes | None] = {
            index: reason.get("Item")
            for index, (code, reason) in enumerate(zip(codes, reasons, strict=True))
            if code == "ConditionalCheckFailed"
        }
        if found:
            return _Unmet(found)
        named = ", ".join(sorted({code for code in codes if code != "None"}))
        failure = Unavailable(self.name, f"a batch was cancelled ({named})")
        return _ForTheMoment(failure) if _FOR_THE_MOMENT & set(codes) else failure

    def _silence(self, error: Exception) -> Exception:
        """What it means that no answer came."""
        match error:
            case EndpointConnectionError() | ConnectTimeoutError():
                return Unavailable(
                    self.name,
                    "the endpoint cannot be reached",
                    remedy="check the network, AWS_DEFAULT_REGION and AWS_ENDPOINT_URL_DYNAMODB",
                )
            case HTTPClientError() | ConnectionClosedError() | ResponseParserError():
                return _Lost(
                    Unavailable(
                        self.name,
                        "no answer came; a write may have happened",
                        remedy="read the records again before going on",
                    )
                )
            case _:
                return self._unconfigured(error)

    def _unconfigured(self, error: Exception) -> Unavailable:
        match error:
            case NoRegionError():
                return Unavailable(
                    self.name, "no region is set", remedy="set AWS_DEFAULT_REGION or a profile"
                )
            case BotoCoreError():
                return Unavailable(self.name, str(error), remedy=_CREDENTIALS_REMEDY)
            case _:
                return Unavailable(self.name, str(error), remedy="check the AWS_… variables")


class _NoTable(Unavailable):
    pass


class _Exists(Unavailable):
    pass


def _connected() -> Any:
    session: Any = boto3.session.Session()
    return session.client(
        "dynamodb",
        config=Config(
            retries={"total_max_attempts": 1, "mode": "standard"},  # repeating is decided above
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            max_pool_connections=CONNECTIONS_MAX,
        ),
    )


def _request(
    change: Change, text: str, condition: Condition, write_id: str, now: float
) -> _Request:
    words = _condition(condition, now)
    match change:
        case Put():
            counter = 1 if isinstance(condition, Wildcard) else condition + 1
            content = _content(text, write_id, change.expires_at) | {"counter": _number(counter)}
            return _Request("Put", change.key, words | {"Item": _key(change.key) | content})
        case Delete():
            return _Request("Delete", change.key, words | {"Key": _key(change.key)})
        case Check():
            return _Request("ConditionCheck", change.key, words | {"Key": _key(change.key)})
        case _:
            assert_never(change)


def _condition(condition: Condition, now: float) -> dict[str, Any]:
    if condition is ANY:
        return {}
    if condition is ABSENT:
        expression, values = _IS_ABSENT, {":now": _number(now)}
    else:
        expression = _IS_COUNTER
        values = {":now": _number(now), ":counter": {"N": str(condition)}}
    return _named(
        {
            "ConditionExpression": expression,
            "ExpressionAttributeValues": values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    )


def _counting(put: Put, text: str, write_id: str, now: float) -> dict[str, Any]:
    content = _content(text, write_id, put.expires_at)
    dropped = [name for name in ("expires_at", "sweep_at") if name not in content]
    update = "SET #counter = if_not_exists(#counter, :zero) + :one, " + ", ".join(
        f"#{name} = :{name}" for name in content
    )
    if dropped:
        update += " REMOVE " + ", ".join(f"#{name}" for name in dropped)
    return _named(
        {
            "Key": _key(put.key),
            "UpdateExpression": update,
            "ConditionExpression": f"{_LIVE} AND {_NOT_YET}",
            "ExpressionAttributeValues": {f":{name}": content[name] for name in content}
            | {":zero": _number(0), ":one": _number(1), ":now": _number(now)},
            "ReturnValues": "UPDATED_NEW",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    )


def _content(text: str, write_id: str, expires_at: float | None) -> dict[str, Any]:
    content = {"value": {"S": text}, "write_id": {"S": write_id}}
    if expires_at is not None:
        content["expires_at"] = _number(expires_at)
        content["sweep_at"] = _number(math.ceil(expires_at))
    return content


def _named(words: dict[str, Any]) -> dict[str, Any]:
    """With the names its expressions use: DynamoDB has hundreds of reserved words, and refuses a
    name that no expression uses."""
    text = " ".join(value for name, value in words.items() if name.endswith("Expression"))
    names = {f"#{name}": name for name in _ATTRIBUTES if f"#{name}" in text}
    return words | {"ExpressionAttributeNames": names}


def _key(key: Key) -> dict[str, Any]:
    return {"partition": {"S": key.partition}, "sort": {"S": key.sort}}


def _number(number: float) -> dict[str, str]:
    return {"N": repr(number)}


def _at_most_a_key(text: str) -> str:
    return text.encode()[:KEY_BYTES_MAX].decode(errors="ignore")


def _is_by(write_id: str, attributes: _Attributes) -> bool:
    return attributes.get("write_id") == {"S": write_id}


def _new_write_id() -> str:
    return secrets.token_hex(16)  # 32 characters: a ClientRequestToken has at most 36


def _conflict(change: Change, counter: Counter | None) -> Conflict:
    return Conflict("record", str(change.key), expected=change.expect, actual=counter)
