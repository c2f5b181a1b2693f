"""The arguments of DynamoDB requests: conditions, expressions, attributes."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from workspaces.conditions import ABSENT, ANY, Wildcard
from workspaces.storage.records import (
    KEY_BYTES_MAX,
    Check,
    Condition,
    Delete,
    Key,
    Put,
    RecordChange,
)

_ATTRIBUTES = ("partition", "sort", "counter", "value", "expires_at", "sweep_at", "write_id")
LIVE = "(attribute_not_exists(#expires_at) OR #expires_at > :now)"
_IS_ABSENT = "(attribute_not_exists(#partition) OR #expires_at <= :now)"
_IS_COUNTER = f"#counter = :counter AND {LIVE}"
_NOT_YET = "(attribute_not_exists(#write_id) OR #write_id <> :write_id)"

Attributes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WriteExpression:
    """A change, as the arguments that single requests and transactions share."""

    kind: Literal["Put", "Delete", "ConditionCheck"]
    key: Key
    arguments: dict[str, Any]


def write_expression(
    change: RecordChange, text: str, condition: Condition, write_id: str, now: float
) -> WriteExpression:
    arguments = _condition(condition, now)
    match change:
        case Put():
            counter = 1 if isinstance(condition, Wildcard) else condition + 1
            content = _content(text, write_id, change.expires_at) | {"counter": number(counter)}
            return WriteExpression(
                "Put", change.key, arguments | {"Item": key_attributes(change.key) | content}
            )
        case Delete():
            return WriteExpression(
                "Delete", change.key, arguments | {"Key": key_attributes(change.key)}
            )
        case Check():
            return WriteExpression(
                "ConditionCheck", change.key, arguments | {"Key": key_attributes(change.key)}
            )
        case _:
            assert_never(change)


def _condition(condition: Condition, now: float) -> dict[str, Any]:
    if condition is ANY:
        return {}
    if condition is ABSENT:
        expression, values = _IS_ABSENT, {":now": number(now)}
    else:
        expression = _IS_COUNTER
        values = {":now": number(now), ":counter": {"N": str(condition)}}
    return with_names(
        {
            "ConditionExpression": expression,
            "ExpressionAttributeValues": values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    )


def counting_update(put: Put, text: str, write_id: str, now: float) -> dict[str, Any]:
    content = _content(text, write_id, put.expires_at)
    dropped = [name for name in ("expires_at", "sweep_at") if name not in content]
    update = "SET #counter = if_not_exists(#counter, :zero) + :one, " + ", ".join(
        f"#{name} = :{name}" for name in content
    )
    if dropped:
        update += " REMOVE " + ", ".join(f"#{name}" for name in dropped)
    return with_names(
        {
            "Key": key_attributes(put.key),
            "UpdateExpression": update,
            "ConditionExpression": f"{LIVE} AND {_NOT_YET}",
            "ExpressionAttributeValues": {f":{name}": content[name] for name in content}
            | {":zero": number(0), ":one": number(1), ":now": number(now)},
            "ReturnValues": "UPDATED_NEW",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    )


def _content(text: str, write_id: str, expires_at: float | None) -> dict[str, Any]:
    content = {"value": {"S": text}, "write_id": {"S": write_id}}
    if expires_at is not None:
        content["expires_at"] = number(expires_at)
        content["sweep_at"] = number(math.ceil(expires_at))
    return content


def with_names(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the attribute names that their expressions use.

    DynamoDB has hundreds of reserved words, and refuses a name that no expression uses.
    """
    text = " ".join(value for name, value in arguments.items() if name.endswith("Expression"))
    names = {f"#{name}": name for name in _ATTRIBUTES if f"#{name}" in text}
    return arguments | {"ExpressionAttributeNames": names}


def key_attributes(key: Key) -> dict[str, Any]:
    return {"partition": {"S": key.partition}, "sort": {"S": key.sort}}


def number(number: float) -> dict[str, str]:
    return {"N": repr(number)}


def cut_to_key_size(text: str) -> str:
    return text.encode()[:KEY_BYTES_MAX].decode(errors="ignore")


def is_written_by(write_id: str, attributes: Attributes) -> bool:
    return attributes.get("write_id") == {"S": write_id}


def new_write_id() -> str:
    return secrets.token_hex(16)  # 32 characters: a ClientRequestToken has at most 36
