"""Client tools: an agent or an event declares them, the model calls them, and the client answers with an
event."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import Field, field_validator

from harness.messages.model_request import ToolSpec
from workspaces.errors import Refused
from workspaces.validation import StrictModel, parse

NAME_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"
"""The names that providers accept."""
DESCRIPTION_CHARACTERS_MAX = 10_000
SCHEMA_CHARACTERS_MAX = 50_000
CLIENT_TOOLS_MAX = 64
"""The most tools of one agent or event: a model that is offered more chooses badly."""


class ClientTool(StrictModel):
    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    """The name under which the model calls it."""
    description: Annotated[str, Field(min_length=1, max_length=DESCRIPTION_CHARACTERS_MAX)]
    """What it does, for the model."""
    input_schema: dict[str, Any]
    """The JSON Schema of the input, which must be an object."""

    @field_validator("input_schema")
    @classmethod
    def _check_is_object(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if schema.get("type") != "object":
            raise ValueError('must be the JSON Schema of an object: {"type": "object", …}')
        if len(json.dumps(schema)) > SCHEMA_CHARACTERS_MAX:
            raise ValueError(f"is over {SCHEMA_CHARACTERS_MAX:,} characters as JSON")
        return schema

    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.input_schema)


def client_tools_of(data: Sequence[object]) -> tuple[ClientTool, ...]:
    """Return the tools that a program declares as JSON.

    Raises: Refused if one of them is invalid or there are too many.
    """
    _check_number(len(data), "tools")
    return tuple(parse(ClientTool, one, within=f"tools.{at}") for at, one in enumerate(data))


def check_names(
    tools: Sequence[ClientTool], taken: Iterable[str], *, within: str = "tools"
) -> None:
    """Check the number and the names of tools.

    Raises: Refused if there are too many, if two have one name, or if a name is already `taken`.
    """
    _check_number(len(tools), within)
    before = set(taken)
    for at, tool in enumerate(tools):
        if tool.name in before:
            raise Refused(f"{within}.{at}.name", tool.name, "is the name of another tool")
        before.add(tool.name)


def _check_number(tools: int, within: str) -> None:
    if tools > CLIENT_TOOLS_MAX:
        raise Refused(within, tools, f"are more than {CLIENT_TOOLS_MAX} tools")
