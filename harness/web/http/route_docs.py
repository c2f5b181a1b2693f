"""What a route says of itself in the OpenAPI document: what it takes, answers and refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, ConfigDict, Field

from harness.web.http.errors import ErrorBody
from workspaces.validation import StrictModel

Schema = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]

_REFUSALS = {
    400: "What was sent breaks a rule; `field` says where.",
    401: "No key, a wrong one, or one that has expired.",
    403: "A user's key may not do this, or the request comes from a foreign page.",
    404: "There is no such thing, or it is not the caller's.",
    408: "The body did not come in time.",
    409: "Something is in the way: a name that is taken, a turn that runs, a change in the same instant.",
    412: "`If-Match` or `If-None-Match` does not hold.",
    413: "Larger than a limit that the message names.",
    415: "The body is not JSON.",
    429: "A limit of the account is reached, or too much waits already; `Retry-After` says when.",
    503: "Somebody else is at work, or a store does not answer; try again.",
}


class Query(StrictModel):
    """The query of a request. Values are text, so they are read leniently, but a key that is not known
    is refused here too."""

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
    return {s: {"model": ErrorBody, "description": _REFUSALS[s]} for s in statuses}


EVERYWHERE = (400, 401, 403, 404, 503)
"""Where a key is needed: the user that it acts as may be none, and a store may not answer."""

READING_JSON = (408, 413, 415)


def answers(
    model: type[StrictModel] | Schema,
    example: Any = None,
    *,
    status: int = 200,
    description: str = "",
) -> Responses:
    """A JSON answer: the shape it has, or its schema."""
    content: Schema = {}
    if example is not None:
        content["example"] = example
    told: Schema = {"description": description or "Done."}
    if isinstance(model, dict):
        content["schema"] = model
    else:
        told["model"] = model
    return {status: {**told, "content": {"application/json": content}}}


def takes(schema: Schema, example: Any, *, patch: bool = False) -> Schema:
    """`openapi_extra` of a route whose body is JSON."""
    types = ("application/json", "application/merge-patch+json") if patch else ("application/json",)
    content = {kind: {"schema": schema, "example": example} for kind in types}
    return {"requestBody": {"required": True, "content": content}}


def schema_of(shape: type[StrictModel], *, without: Sequence[str] = ()) -> Schema:
    """Of a shape, whole in itself, without some of its properties."""
    stated = shape.model_json_schema(by_alias=True)
    schema = _inlined(stated, stated.get("$defs", {}))
    schema.pop("$defs", None)
    for name in without:
        schema["properties"].pop(name, None)
    if "required" in schema:
        schema["required"] = [name for name in schema["required"] if name not in without]
    return schema


def patch_of(schema: Schema) -> Schema:
    """The merge patches (RFC 7396) of what a schema describes: every property may be left out, and
    those that need not be there may be taken away with null."""
    if "properties" not in schema:
        return schema
    required = schema.get("required", [])
    patched = {name: kept for name, kept in schema.items() if name not in {"required", "default"}}
    patched["properties"] = {
        name: patch_of(one) if name in required else {"anyOf": [patch_of(one), {"type": "null"}]}
        for name, one in schema["properties"].items()
    }
    return patched


def list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def object_of(properties: Mapping[str, Schema], *, optional: Sequence[str] = ()) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


TEXT: Schema = {"type": "string"}
TEXT_OR_NULL: Schema = {"anyOf": [TEXT, {"type": "null"}]}
NUMBER: Schema = {"type": "integer"}
DELETED: Schema = object_of({"deleted": {"const": True}})


def _inlined(schema: Any, definitions: Mapping[str, Schema]) -> Any:
    """With every reference replaced by what it leads to: our shapes do not contain themselves."""
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    stated = dict(cast(Schema, schema))
    reference = stated.pop("$ref", None)
    if reference is not None:
        stated = {**definitions[reference.rpartition("/")[2]], **stated}
    return {name: _inlined(one, definitions) for name, one in stated.items()}
