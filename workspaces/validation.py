"""Validation of untrusted input: it becomes a typed record, or one kind of error.

A `StrictModel` is an immutable model. Its keys are camelCase outside and snake_case inside. Unknown keys
are refused, with the nearest valid key as the remedy. `parse` turns the first error of pydantic into one
`Refused` that names the field, the value and the rule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from workspaces.errors import Refused, unknown_name


class StrictModel(BaseModel):
    """A model that converts no types: `"true"` is no boolean and `1.5` no integer."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,
    )

    def as_json(self) -> dict[str, Any]:
        """Return the JSON that is shown and stored: camelCase, and only the fields that were set.

        Defaults are left out, so that a better default reaches old records.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


S = TypeVar("S", bound=StrictModel)


def parse(shape: type[S], data: object, *, within: str = "") -> S:
    """Return the input as a record. `within` names the whole input and stands before the field's name.

    Raises: Refused if the input is invalid.
    """
    if not isinstance(data, Mapping):
        raise Refused(within or shape.__name__, data, "must be an object")
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False)[0], shape, within) from error


def rule_of(message: str) -> str:
    """Return pydantic's message, phrased to follow the value and without our class names."""
    rule = _OBJECT.sub("an object", _COUNT.sub("", message))
    for start in ("Value error, ", "Input ", "String ", "List "):
        if rule.startswith(start):
            return rule.removeprefix(start)
    return rule[:1].lower() + rule[1:]


_OBJECT = re.compile(r"a valid dictionary( or instance of \w+)?")
_COUNT = re.compile(r" after validation, not \d+$")


def _refusal(error: ErrorDetails, shape: type[StrictModel], within: str) -> Refused:
    path = [str(part) for part in error["loc"]]
    field = ".".join([*([within] if within else []), *path])
    if error["type"] == "extra_forbidden":
        return unknown_name(field, path[-1], _valid_keys(shape, path[:-1]))
    if error["type"] == "missing":
        return Refused(field, None, "is required")
    return Refused(field, error["input"], rule_of(error["msg"]))


def _valid_keys(shape: type[StrictModel], path: list[str]) -> list[str]:
    """Return the keys of the object at `path`; none if the path leads through a list or a union."""
    model: Any = shape
    for part in path:
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        model = getattr(fields.get(part), "annotation", None)
        if not (isinstance(model, type) and issubclass(model, StrictModel)):
            return []
    return [field.alias or name for name, field in model.model_fields.items()]
