"""Parts of the OpenAPI document: the parameters, bodies, responses and refusals of routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, ConfigDict, Field

from harness.web.http.errors import ErrorBody
from workspaces.validation import StrictModel

Schema = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]

REFUSALS = {
    400: "The request breaks a rule; `field` says where.",
    401: "The API key is missing, invalid or expired.",
    403: "A user key may not do this, or the request comes from a page of another origin.",
    404: "There is no such resource, or the caller may not see it.",
    408: "The request body did not arrive in time.",
    409: "A conflict: the name is taken, a turn runs, or another change came first.",
    412: "Version mismatch: the file has another version than `If-Match` or `If-None-Match` names.",
    413: "The request is larger than the limit that the message names.",
    415: "The body is not JSON.",
    422: "The text holds what is forbidden or was forgotten (`forbidden_text`). Nothing was written.",
    429: "A limit of the account is reached, or the queue is full; `Retry-After` says when to retry.",
    503: "Another caller holds the resource, or a store does not answer; try again.",
}


class Query(StrictModel):
    """The query of a request. Values are text, so they are read leniently. An unknown key is refused."""

    model_config = ConfigDict(strict=False, alias_generator=None, populate_by_name=False)


def _switch(value: object) -> object:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _number(value: object) -> object:
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) < 10):
        raise ValueError("must be a whole number")
    return value


Switch = Annotated[bool, Field(strict=True), BeforeValidator(_switch)]
"""`true` or `false`, and no other spelling."""

Count = Annotated[int, Field(ge=1, le=10_000), BeforeValidator(_number)]


def refusals(*statuses: int) -> Responses:
    return {s: {"model": ErrorBody, "description": REFUSALS[s]} for s in statuses}


EVERYWHERE = (400, 401, 403, 404, 503)
"""Statuses of every route that needs a key. The user that the key acts as may not exist, and a store may
not answer."""

READING_JSON = (408, 413, 415)


class DeletionDocument(StrictModel):
    """The answer to a deletion."""

    deleted: Literal[True]


def left_out() -> Any:
    """Return the default of a field that an answer leaves out where it has no value."""
    return Field(default=None, json_schema_extra=_without_default)


def _without_default(schema: Schema) -> None:
    schema.pop("default", None)


def answers(
    model: Any, example: Any = None, *, status: int = 200, description: str = ""
) -> Responses:
    """Return the description of a JSON response: its model, or a list or a mapping of models."""
    content = {"application/json": {} if example is None else {"example": example}}
    return {status: {"model": model, "description": description or "Done.", "content": content}}


def takes(schema: Schema, example: Any, *, patch: bool = False) -> Schema:
    """Return the `openapi_extra` of a route whose body is JSON."""
    types = ("application/json", "application/merge-patch+json") if patch else ("application/json",)
    content = {kind: {"schema": schema, "example": example} for kind in types}
    return {"requestBody": {"required": True, "content": content}}


def schema_of(shape: type[StrictModel], *, without: Sequence[str] = ()) -> Schema:
    """Return the schema of a model without references, and without the properties named in `without`."""
    full = shape.model_json_schema(by_alias=True)
    schema = _inlined(full, full.get("$defs", {}))
    schema.pop("$defs", None)
    for name in without:
        schema["properties"].pop(name, None)
    if "required" in schema:
        schema["required"] = [name for name in schema["required"] if name not in without]
    return schema


def patch_of(schema: Schema) -> Schema:
    """Return the schema of merge patches (RFC 7396) for a schema.

    Every property is optional, and null removes a property that is not required.
    """
    if "properties" not in schema:
        return schema
    required = schema.get("required", [])
    patched = {name: value for name, value in schema.items() if name not in {"required", "default"}}
    patched["properties"] = {
        name: patch_of(one) if name in required else {"anyOf": [patch_of(one), {"type": "null"}]}
        for name, one in schema["properties"].items()
    }
    return patched


TEXT: Schema = {"type": "string"}
"""The schema of a header."""


def _inlined(schema: Any, definitions: Mapping[str, Schema]) -> Any:
    """Return a schema with every reference replaced by its target. No model contains itself."""
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    fields = dict(cast(Schema, schema))
    reference = fields.pop("$ref", None)
    if reference is not None:
        fields = {**definitions[reference.rpartition("/")[2]], **fields}
    return {name: _inlined(one, definitions) for name, one in fields.items()}
