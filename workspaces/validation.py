"""Strangers' input into typed records: one way, one kind of refusal.

A `Shape` is an immutable model whose keys are camelCase outside and snake_case inside; unknown keys
are refused, with the nearest valid one as the remedy. `parse` turns whatever pydantic finds first
into one `Refused` that names the field, the value and the rule.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from workspaces.errors import Refused

NAME_CHARACTERS_MAX = 200
"""Of a name that is compared with valid ones; every valid one is far shorter."""


class StrictModel(BaseModel):
    """Strict: `"true"` is no boolean and `1.5` no integer."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,
    )

    def as_json(self) -> dict[str, Any]:
        """What is shown and stored: camelCase, and only what was said, so that a default that
        becomes better reaches old records."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


S = TypeVar("S", bound=StrictModel)


def parse(shape: type[S], data: object, *, within: str = "") -> S:
    """`within` is the name that the whole input goes by, put before the field's."""
    if not isinstance(data, Mapping):
        raise Refused(within or shape.__name__, data, "must be an object")
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False)[0], shape, within) from error


def nearest(name: str, valid: list[str]) -> str | None:
    """Return the valid name that `name` may be a slip of, if there is one."""
    if len(name) > NAME_CHARACTERS_MAX:
        return None  # comparing takes time that grows with its length, and it is no slip
    found = difflib.get_close_matches(name, valid, n=1, cutoff=0.6)
    return found[0] if found else None


def unknown_name(field: str, name: str, valid: list[str]) -> Refused:
    """The refusal of a name that is not one of `valid`: it helps with the nearest."""
    near = nearest(name, valid)
    remedy = f"did you mean {near!r}?" if near else f"valid: {', '.join(sorted(valid))}"
    return Refused(field, name, "is unknown", remedy=remedy)


def rule_of(message: str) -> str:
    """Pydantic's sentence, put so that it follows the value and names nothing of ours."""
    told = _OBJECT.sub("an object", _COUNT.sub("", message))
    for start in ("Value error, ", "Input ", "String ", "List "):
        if told.startswith(start):
            return told.removeprefix(start)
    return told[:1].lower() + told[1:]


_OBJECT = re.compile(r"a valid dictionary( or instance of \w+)?")
_COUNT = re.compile(r" after validation, not \d+$")


def _refusal(found: ErrorDetails, shape: type[StrictModel], within: str) -> Refused:
    where = [str(part) for part in found["loc"]]
    field = ".".join([*([within] if within else []), *where])
    if found["type"] == "extra_forbidden":
        return unknown_name(field, where[-1], _valid_keys(shape, where[:-1]))
    if found["type"] == "missing":
        return Refused(field, None, "is required")
    return Refused(field, found["input"], rule_of(found["msg"]))


def _valid_keys(shape: type[StrictModel], path: list[str]) -> list[str]:
    """The keys of the object at `path`; nothing where the path leads through a list or a union."""
    here: Any = shape
    for part in path:
        fields = {field.alias or name: field for name, field in here.model_fields.items()}
        here = getattr(fields.get(part), "annotation", None)
        if not (isinstance(here, type) and issubclass(here, StrictModel)):
            return []
    return [field.alias or name for name, field in here.model_fields.items()]
