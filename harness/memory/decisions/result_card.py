"""Cards: the structured results that an agent's runs end with, each described by a YAML file.

    type: decision
    title: Decision
    fields:
      verdict: {type: enum, values: [GO, WAIT, STOP], required: true}
      reason: {type: text, required: true, max: 300}
    slots: {conclusion: verdict, thesis: reason}
    line: [verdict, reason]
    reExaminable: true
    reExamineActions: [KEEP, REVISE, DROP]
    tally: {good: [right], bad: [wrong]}

The schema of the tool that submits a result is made from the card. A decision keeps the card as it was, so
a later change of the file changes no earlier decision.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import Field, ValidationError, model_validator

from workspaces.errors import Refused
from workspaces.plain_yaml import load
from workspaces.storage.records import JsonObject
from workspaces.validation import StrictModel, rule_of

TEXT_CHARACTERS_MAX = 4_000
LIST_ITEMS_MAX = 50
FIELDS_MAX = 40
NUMBER_MAX = 1e15
"""Numbers above it lose their last digits in JSON."""

FieldType = Literal["text", "number", "integer", "boolean", "list", "enum"]

_NAME = r"^[a-z][a-z0-9_-]{0,63}$"
_Name = Annotated[str, Field(pattern=_NAME)]
_Word = Annotated[str, Field(min_length=1, max_length=100)]
_BOOLEANS = {"true": True, "false": False}


class CardField(StrictModel):
    type: FieldType
    values: Annotated[list[_Word], Field(min_length=1, max_length=100)] | None = None
    """The words of an enum."""
    required: bool = False
    max: Annotated[int, Field(ge=1, le=TEXT_CHARACTERS_MAX)] | None = None
    """The most characters of a text, or items of a list."""

    @model_validator(mode="after")
    def _check(self) -> CardField:
        if (self.type == "enum") != (self.values is not None):
            raise ValueError("needs `values` if it is an enum, and only then")
        if self.max is not None and self.type not in {"text", "list"}:
            raise ValueError("may have `max` only if it is a text or a list")
        if self.type == "list" and (self.max or 0) > LIST_ITEMS_MAX:
            raise ValueError(f"may have at most {LIST_ITEMS_MAX} items")
        return self

    @property
    def limit(self) -> int:
        return self.max or (LIST_ITEMS_MAX if self.type == "list" else TEXT_CHARACTERS_MAX)

    def json_schema(self) -> JsonObject:
        """Return the JSON Schema of a value."""
        match self.type:
            case "enum":
                return {"type": "string", "enum": list(self.values or ())}
            case "text":
                return {"type": "string", "maxLength": self.limit}
            case "list":
                items = {"type": "string", "maxLength": TEXT_CHARACTERS_MAX}
                return {"type": "array", "items": items, "maxItems": self.limit}
            case kind:
                return {"type": kind}

    def broken_rule(self, value: object) -> str | None:
        """Return the rule that a value breaks, or None."""
        match self.type:
            case "enum":
                return None if value in (self.values or ()) else f"must be one of {self.values}"
            case "text":
                return _broken_text(value, self.limit, is_required=self.required)
            case "boolean":
                return None if isinstance(value, bool) else "must be true or false"
            case "integer":
                is_number = isinstance(value, int) and not isinstance(value, bool)
                return _broken_number(value) if is_number else "must be an integer"
            case "number":
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                return _broken_number(value) if is_number else "must be a number"
            case "list":
                return self._broken_list(value)

    def _broken_list(self, value: object) -> str | None:
        if not isinstance(value, list):
            return "must be a list of texts"
        items = cast("list[object]", value)
        if len(items) > self.limit or (self.required and not items):
            return f"must hold {1 if self.required else 0} to {self.limit} items"
        rules = (_broken_text(one, TEXT_CHARACTERS_MAX, is_required=True) for one in items)
        return next((rule for rule in rules if rule), None)


class CardTally(StrictModel):
    good: Annotated[list[_Word], Field(max_length=50)] = Field(default=[])
    bad: Annotated[list[_Word], Field(max_length=50)] = Field(default=[])


class ResultCard(StrictModel):
    """A type of structured results."""

    type: _Name
    title: _Word
    fields: Annotated[dict[str, CardField], Field(min_length=1, max_length=FIELDS_MAX)]
    slots: dict[str, str] = Field(default={})
    """What a later examination is told, by the name of the slot: the field that holds it."""
    line: Annotated[list[str], Field(max_length=5)] = Field(default=[])
    """The fields of the one-line summary."""
    re_examinable: bool | Literal["until_resolved"] = False
    re_examine_actions: Annotated[list[_Word], Field(max_length=20)] = Field(default=[])
    tally: CardTally | None = None

    @model_validator(mode="after")
    def _check(self) -> ResultCard:
        for name in (*self.fields, *self.slots):
            if not re.fullmatch(_NAME, name):
                raise ValueError(f"has the name {name!r}, which is not of the form {_NAME}")
        for name in (*self.slots.values(), *self.line):
            if name not in self.fields:
                raise ValueError(f"names the unknown field {name!r}")
        return self

    def json_schema(self) -> JsonObject:
        """Return the JSON Schema of a result."""
        return {
            "type": "object",
            "properties": {name: field.json_schema() for name, field in self.fields.items()},
            "required": [name for name, field in self.fields.items() if field.required],
            "additionalProperties": False,
        }

    def checked(self, data: Mapping[str, Any]) -> JsonObject:
        """Return a valid result, in the order of the card, without empty fields.

        Raises: Refused, naming the field.
        """
        for name in data:
            if name not in self.fields:
                raise Refused(name, None, f"is unknown; the fields are {', '.join(self.fields)}")
        result: JsonObject = {}
        for name, field in self.fields.items():
            if name not in data or data[name] is None:
                if field.required:
                    raise Refused(name, None, "is required")
                continue
            rule = field.broken_rule(data[name])
            if rule is not None:
                raise Refused(name, data[name], rule)
            result[name] = data[name]
        return result

    def summary(self, data: Mapping[str, Any]) -> str:
        """Return the one-line summary of a result."""
        names = self.line or list(self.fields)[:2]
        texts = (_text(data[name]) for name in names if name in data)
        return " · ".join(" ".join(text.split()) for text in texts if text.strip())

    def slot_values(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return each slot that is not empty, then the fields that no slot names."""
        slots = [(slot, field) for slot, field in self.slots.items()]
        slots += [(name, name) for name in self.fields if name not in self.slots.values()]
        values = ((slot, _text(data[field])) for slot, field in slots if field in data)
        return [(slot, value) for slot, value in values if value.strip()]


def card_of(text: str, name: str) -> ResultCard:
    """Return the card that a YAML file describes.

    Raises: Refused or OverLimit, naming the file, the line and the rule.
    """
    return parsed_card(_typed(load(text, name=name)), name, text)


def parsed_card(data: Mapping[str, Any], name: str, text: str = "") -> ResultCard:
    """Return the card from its data.

    Raises: Refused, naming the file, the line and the rule.
    """
    try:
        return ResultCard.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = [str(part) for part in first["loc"] if not str(part).startswith("literal")]
        is_unknown = first["type"] == "extra_forbidden"
        rule = "is unknown" if is_unknown else rule_of(first["msg"])
        line = _line_of(text, path)
        place = f"{name}{f', line {line}' if line else ''}"
        raise Refused(f"{place}: {'.'.join(path) or 'card'}", None, rule) from error


def _line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the number of the line that holds the last key of a path."""
    at, found = 0, None
    lines = text.splitlines()
    for key in path:
        for number in range(at, len(lines)):
            if re.search(rf"(?:^|[\s{{,]){re.escape(key)}\s*:", lines[number]):
                at, found = number, number + 1
                break
    return found


def _typed(data: Mapping[str, Any]) -> JsonObject:
    """Return the data with the types that a card needs: the reader of YAML leaves all as text."""
    typed = dict(data)
    flag = typed.get("reExaminable")
    if isinstance(flag, str):
        typed["reExaminable"] = _BOOLEANS.get(flag, flag)
    fields = typed.get("fields")
    if isinstance(fields, dict):
        named = cast("dict[str, Any]", fields)
        typed["fields"] = {name: _typed_field(one) for name, one in named.items()}
    return typed


def _typed_field(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    field = dict(cast("dict[str, Any]", data))
    if isinstance(field.get("required"), str):
        field["required"] = _BOOLEANS.get(field["required"], field["required"])
    maximum = field.get("max")
    if isinstance(maximum, str) and re.fullmatch(r"[0-9]{1,6}", maximum):
        field["max"] = int(maximum)
    return field


def _broken_text(value: object, characters_max: int, *, is_required: bool) -> str | None:
    if not isinstance(value, str):
        return "must be a text"
    if len(value) > characters_max:
        return f"is over {characters_max:,} characters"
    return "is empty" if is_required and not value.strip() else None


def _broken_number(value: object) -> str | None:
    is_finite = abs(cast("float", value)) <= NUMBER_MAX
    return None if is_finite else f"must be between -{NUMBER_MAX:g} and {NUMBER_MAX:g}"


def _text(value: object) -> str:
    """Return a value as text for people and models."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "\n".join(f"- {one}" for one in cast("list[object]", value))
    return str(value)
