"""One DynamoDB table as a server that can be asked: boto3 lives here, and what it raises gets a name.

Credentials, region, profile and endpoint are boto3's, from the standard AWS variables and files.
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
from workspaces.storage.dynamodb.expressions import Attributes, WriteExpression, named
from workspaces.storage.records import Item, Key

CONNECT_TIMEOUT_S = 2
READ_TIMEOUT_S = 5
CONNECTIONS_MAX = 50

TABLE_WAIT_S = 60.0
TABLE_POLL_S = 0.5

KEY_SCHEMA = [
    {"AttributeName": "partition", "KeyType": "HASH"},
    {"AttributeName": "sort", "KeyType": "RANGE"},
]
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


class ConditionFailed(Exception):
    """Conditions did not hold; `found` tells by position what is there instead."""

    def __init__(self, found: dict[int, Attributes | None]) -> None:
        super().__init__(found)
        self.found = found


class Throttled(Exception):
    """Certainly nothing happened; ask again a little later. `failure` is what it is if that was all."""

    def __init__(self, failure: Unavailable) -> None:
        super().__init__(failure)
        self.failure = failure


class AnswerLost(Throttled):
    """Asked, and not answered: it may have happened."""


class Table:
    """Everything that touches boto3: requests go out, and what comes back has a name from this file."""

    def __init__(self, table: str) -> None:
        self.name = f"DynamoDB table {table!r}"
        self._table = table
        self._clients: dict[int, Any] = {}
        self._client()

    def send(self, requests: Sequence[WriteExpression], token: str) -> None:
        match requests:
            case (WriteExpression(kind="Put") as put,):
                self.ask("put_item", **put.words)
            case (WriteExpression(kind="Delete") as delete,):
                self.ask("delete_item", **delete.words)
            case _:
                named = {"TableName": self._table}
                items = [{request.kind: request.words | named} for request in requests]
                self._ask("transact_write_items", TransactItems=items, ClientRequestToken=token)

    def read(self, keys: Sequence[Attributes]) -> tuple[list[Attributes], list[Attributes]]:
        """The items there are, without their values, and the keys still to be asked for."""
        words = named(
            {"ProjectionExpression": "#partition, #sort, #counter, #expires_at, #write_id"}
        )
        asked = {self._table: words | {"Keys": keys, "ConsistentRead": True}}
        answer = self._ask("batch_get_item", RequestItems=asked)
        ahead = answer.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
        return answer["Responses"].get(self._table, []), ahead

    def ask(self, method: str, **words: Any) -> Attributes:
        return self._ask(method, TableName=self._table, **words)

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
        found = self.ask("describe_time_to_live")["TimeToLiveDescription"]
        if found["TimeToLiveStatus"] in {"ENABLED", "ENABLING"}:
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

    def _ask(self, method: str, **words: Any) -> Attributes:
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
            return ConditionFailed({0: response.get("Item")})
        if code == "TransactionCanceledException":
            return self._cancelled(response["CancellationReasons"])
        if code in _FOR_THE_MOMENT:
            return Throttled(
                Unavailable(self.name, f"it is busy ({code})", remedy="try again in a moment")
            )
        if code in _MAY_HAVE_HAPPENED or response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
            return AnswerLost(
                Unavailable(self.name, f"it failed ({code})", remedy="try again in a moment")
            )
        if code == "ResourceNotFoundException":
            return NoTable(self.name, "it does not exist", remedy=_TABLE_REMEDY)
        if code == "ResourceInUseException":
            return Exists(self.name, "it is being made or changed", remedy="try again in a moment")
        if code in _NOT_LET_IN:
            return Unavailable(self.name, f"not let in ({code})", remedy=_CREDENTIALS_REMEDY)
        return Unavailable(self.name, f"{code}: {message}")

    def _cancelled(self, reasons: Sequence[Any]) -> Exception:
        codes = [reason.get("Code", "None") for reason in reasons]
        found: dict[int, Attributes | None] = {
            index: reason.get("Item")
            for index, (code, reason) in enumerate(zip(codes, reasons, strict=True))
            if code == "ConditionalCheckFailed"
        }
        if found:
            return ConditionFailed(found)
        named = ", ".join(sorted({code for code in codes if code != "None"}))
        failure = Unavailable(self.name, f"a batch was cancelled ({named})")
        return Throttled(failure) if _FOR_THE_MOMENT & set(codes) else failure

    def _silence(self, error: Exception) -> Exception:
        """What it means that no answer came."""
        match error:
            case EndpointConnectionError() | ConnectTimeoutError():
                return Unavailable(
                    self.name,
                    f"DynamoDB ({self._client().meta.endpoint_url}) is unreachable",
                    remedy="check the network, AWS_DEFAULT_REGION and AWS_ENDPOINT_URL_DYNAMODB",
                )
            case HTTPClientError() | ConnectionClosedError() | ResponseParserError():
                return AnswerLost(
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


class NoTable(Unavailable):
    pass


class Exists(Unavailable):
    pass


def create_table(table: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Make the table, paid per request, expiring by `sweep_at`; returns when it can be used.

    A table that is there already is left as it is, if its keys are the right ones.
    """
    server = Table(table)
    try:
        if (found := server.description()) is None:
            server.create()
        _wait_until_active(server, sleep)
        found = server.description() or {}
        if found.get("KeySchema") != KEY_SCHEMA:
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
            retries={"total_max_attempts": 1, "mode": "standard"},  # repeating is decided above
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            max_pool_connections=CONNECTIONS_MAX,
        ),
    )
