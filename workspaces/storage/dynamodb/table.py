"""Requests to one DynamoDB table. Only this file uses boto3; it translates boto3's exceptions.

boto3 reads credentials, region, profile and endpoint from the standard AWS variables and files.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

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

from workspaces.errors import Refused, Unavailable
from workspaces.storage.attempts import AnswerLost, Throttled
from workspaces.storage.dynamodb.expressions import Attributes, WriteExpression, with_names
from workspaces.storage.records import STORE_NAME, Item, Key

CONNECT_TIMEOUT_S = 2
READ_TIMEOUT_S = 5
CONNECTIONS_MAX = 50

TABLE_WAIT_S = 60.0
TABLE_POLL_S = 0.5

KEY_SCHEMA = [
    {"AttributeName": "partition", "KeyType": "HASH"},
    {"AttributeName": "sort", "KeyType": "RANGE"},
]
_TRANSIENT = {
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
_ACCESS_DENIED = {
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
    "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and their permissions"
)
_TABLE_REMEDY = (
    "check the table's name and AWS_DEFAULT_REGION, or run `harness admin init-dynamodb`"
)


class ConditionFailed(Exception):
    """The conditions of some changes did not hold. `current` maps their positions to the existing items."""

    def __init__(self, current: dict[int, Attributes | None]) -> None:
        super().__init__(current)
        self.current = current


class Table:
    """A client of one table. It sends requests and raises the exceptions of this file."""

    def __init__(self, table: str) -> None:
        self.name = f"DynamoDB table {table!r}"
        self._table = table
        self._clients: dict[int, Any] = {}
        self._client()

    def send(self, requests: Sequence[WriteExpression], token: str) -> None:
        match requests:
            case (WriteExpression(kind="Put") as put,):
                self.ask("put_item", **put.arguments)
            case (WriteExpression(kind="Delete") as delete,):
                self.ask("delete_item", **delete.arguments)
            case _:
                table = {"TableName": self._table}
                items = [{request.kind: request.arguments | table} for request in requests]
                self._ask("transact_write_items", TransactItems=items, ClientRequestToken=token)

    def read(self, keys: Sequence[Attributes]) -> tuple[list[Attributes], list[Attributes]]:
        """Return the existing items, without their values, and the keys that are still unread."""
        arguments = with_names(
            {"ProjectionExpression": "#partition, #sort, #counter, #expires_at, #write_id"}
        )
        request = {self._table: arguments | {"Keys": keys, "ConsistentRead": True}}
        answer = self._ask("batch_get_item", RequestItems=request)
        unread = answer.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
        return answer["Responses"].get(self._table, []), unread

    def ask(self, method: str, **arguments: Any) -> Attributes:
        return self._ask(method, TableName=self._table, **arguments)

    def description(self) -> Attributes | None:
        try:
            return self.ask("describe_table")["Table"]
        except NoTable:
            return None

    def create(self) -> None:
        with suppress(Exists):
            self.ask(
                "create_table",
                BillingMode="PAY_PER_REQUEST",
                KeySchema=KEY_SCHEMA,
                AttributeDefinitions=[
                    {"AttributeName": part["AttributeName"], "AttributeType": "S"}
                    for part in KEY_SCHEMA
                ],
            )

    def expire_by(self, attribute: str) -> None:
        description = self.ask("describe_time_to_live")["TimeToLiveDescription"]
        if description["TimeToLiveStatus"] in {"ENABLED", "ENABLING"}:
            return
        self.ask(
            "update_time_to_live",
            TimeToLiveSpecification={"AttributeName": attribute, "Enabled": True},
        )

    def item(self, attributes: Attributes) -> Item:
        try:
            return Item(
                Key(attributes["partition"]["S"], attributes["sort"]["S"]),
                json.loads(attributes["value"]["S"]) if "value" in attributes else {},
                int(attributes["counter"]["N"]),
                float(attributes["expires_at"]["N"]) if "expires_at" in attributes else None,
            )
        except (KeyError, ValueError) as error:
            raise _unavailable(
                self.name,
                "it contains an item that this program did not write",
                remedy=_TABLE_REMEDY,
            ) from error

    def contended(self) -> Unavailable:
        return _unavailable(
            self.name, "too many writers change the same item", remedy="try again in a moment"
        )

    def unknown(self) -> Unavailable:
        return _unavailable(
            self.name,
            "the answer to a write was lost and other writes followed: its result is unknown",
            remedy="read the records again before continuing",
        )

    def close(self) -> None:
        if (client := self._clients.pop(os.getpid(), None)) is not None:
            client.close()

    def _ask(self, method: str, **arguments: Any) -> Attributes:
        client = self._client()
        try:
            return getattr(client, method)(**arguments)
        except ClientError as error:
            raise self._refusal(error.response) from error
        except (BotoCoreError, ResponseParserError) as error:
            raise self._no_answer(error) from error

    def _client(self) -> Any:
        """Return the client of this process. A forked child must not share its parent's sockets."""
        client = self._clients.get(os.getpid())
        if client is None:
            try:
                client = self._clients.setdefault(os.getpid(), _connected())
            except (BotoCoreError, ValueError) as error:  # ValueError: an endpoint that is no URL
                raise self._unconfigured(error) from error
        return client

    def _refusal(self, response: Any) -> Exception:
        """Return the exception for an error response."""
        code, message = response["Error"]["Code"], response["Error"].get("Message", "")
        if code == "ConditionalCheckFailedException":
            return ConditionFailed({0: response.get("Item")})
        if code == "TransactionCanceledException":
            return self._cancelled(response["CancellationReasons"])
        if code in _TRANSIENT:
            return Throttled(
                _unavailable(self.name, f"it is busy ({code})", remedy="try again in a moment")
            )
        if code in _MAY_HAVE_HAPPENED or response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
            return AnswerLost(
                _unavailable(self.name, f"it failed ({code})", remedy="try again in a moment")
            )
        if code == "ResourceNotFoundException":
            return NoTable(self.name, "it does not exist", remedy=_TABLE_REMEDY)
        if code == "ResourceInUseException":
            return Exists(
                self.name, "it is being created or changed", remedy="try again in a moment"
            )
        if code in _ACCESS_DENIED:
            return _unavailable(self.name, f"access denied ({code})", remedy=_CREDENTIALS_REMEDY)
        return _unavailable(self.name, f"{code}: {message}")

    def _cancelled(self, reasons: Sequence[Any]) -> Exception:
        codes = [reason.get("Code", "None") for reason in reasons]
        unmet: dict[int, Attributes | None] = {
            index: reason.get("Item")
            for index, (code, reason) in enumerate(zip(codes, reasons, strict=True))
            if code == "ConditionalCheckFailed"
        }
        if unmet:
            return ConditionFailed(unmet)
        named_codes = ", ".join(sorted({code for code in codes if code != "None"}))
        failure = _unavailable(self.name, f"a batch was cancelled ({named_codes})")
        return Throttled(failure) if _TRANSIENT & set(codes) else failure

    def _no_answer(self, error: Exception) -> Exception:
        """Return the exception for a request without an answer."""
        match error:
            case EndpointConnectionError() | ConnectTimeoutError():
                return _unavailable(
                    self.name,
                    f"DynamoDB ({self._client().meta.endpoint_url}) is unreachable",
                    remedy="check the network, AWS_DEFAULT_REGION and AWS_ENDPOINT_URL_DYNAMODB",
                )
            case HTTPClientError() | ConnectionClosedError() | ResponseParserError():
                return AnswerLost(
                    _unavailable(
                        self.name,
                        "no answer came; a write may have happened",
                        remedy="read the records again before continuing",
                    )
                )
            case _:
                return self._unconfigured(error)

    def _unconfigured(self, error: Exception) -> Unavailable:
        match error:
            case NoRegionError():
                return _unavailable(
                    self.name, "no region is set", remedy="set AWS_DEFAULT_REGION or a profile"
                )
            case BotoCoreError():
                return _unavailable(self.name, str(error), remedy=_CREDENTIALS_REMEDY)
            case _:
                return _unavailable(self.name, str(error), remedy="check the AWS_… variables")


def _unavailable(table: str, reason: str, *, remedy: str | None = None) -> Unavailable:
    return Unavailable(table, reason, remedy=remedy, store=STORE_NAME)


class NoTable(Unavailable):
    pass


class Exists(Unavailable):
    pass


def create_table(table: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Create the table, billed per request, with `sweep_at` as its TTL. Return when it is usable.

    An existing table with the right keys stays as it is.

    Raises: Refused if an existing table has other keys. Unavailable if the table does not become ready.
    """
    server = Table(table)
    try:
        if server.description() is None:
            server.create()
        _wait_until_active(server, sleep)
        description = server.description() or {}
        if description.get("KeySchema") != KEY_SCHEMA:
            raise Refused(
                "table", table, "has other keys", remedy="choose a name that is not in use"
            )
        server.expire_by("sweep_at")
    except (Throttled, AnswerLost) as error:
        raise error.failure from error
    finally:
        server.close()


def _wait_until_active(server: Table, sleep: Callable[[float], None]) -> None:
    for _ in range(int(TABLE_WAIT_S / TABLE_POLL_S)):
        if (server.description() or {}).get("TableStatus") in {"ACTIVE", "UPDATING"}:
            return
        sleep(TABLE_POLL_S)
    raise Unavailable(
        server.name, f"the table is not ready after {TABLE_WAIT_S:g} s", remedy="run it again"
    )


def _connected() -> Any:
    session: Any = boto3.session.Session()
    return session.client(
        "dynamodb",
        config=Config(
            retries={"total_max_attempts": 1, "mode": "standard"},  # `DynamoRecords` retries
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            max_pool_connections=CONNECTIONS_MAX,
        ),
    )
