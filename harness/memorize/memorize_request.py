"""What callers of memorize send: one shape for HTTP, MCP and the command line.

The models are the schema that `schema` shows. Limits that have a status of their own stand in the schema and
are checked by the service.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from harness.memory.facts.fact import VALUE_CHARACTERS_MAX
from workspaces.validation import StrictModel

TAGS_MAX = 50
TAG_CHARACTERS_MAX = 100
GROUNDINGS_MAX = 50
MEMORY_KEY_CHARACTERS_MAX = 240
METADATA_BYTES_MAX = 16 * 1024
PER_PAGE, PER_PAGE_MAX = 25, 100

ID_CHARACTERS_MAX = 200

Word = Annotated[str, Field(min_length=1, max_length=ID_CHARACTERS_MAX)]
Position = Annotated[int, Field(ge=0, le=2**31)]


class SnakeModel(StrictModel):
    """A strict model whose keys are the same inside and outside."""

    model_config = ConfigDict(
        alias_generator=None, extra="forbid", frozen=True, strict=True, populate_by_name=True
    )


class GroundingRequest(SnakeModel):
    """A moment of the conversation that proves the memory."""

    message_position: Annotated[int, Field(ge=1, le=2**31)] | None = None
    """The message, counted from 1."""
    provider_message_uuid: Word | None = None
    """The message by the id that its program gave it."""
    raw_event_index: Position | None = None
    """The line of the transcript, counted from 0."""
    start_character: Position | None = None
    """The first character of the proof in the message, counted from 0."""
    end_character: Position | None = None
    """The character behind the proof."""
    quote: Annotated[str, Field(min_length=1)] | None = None
    """The words of the proof. Alone they are looked for in the whole conversation."""
    raw_start_character: Position | None = None
    raw_end_character: Position | None = None
    metadata: dict[str, Any] | None = None


class MemorizeRequest(SnakeModel):
    """One durable fact, and the conversation that it comes from."""

    conversation_id: Word
    content: Annotated[str, Field(json_schema_extra={"maxLength": VALUE_CHARACTERS_MAX})]
    """The fact, in a sentence or two."""
    tags: Annotated[
        list[Annotated[str, Field(max_length=TAG_CHARACTERS_MAX)]], Field(max_length=TAGS_MAX)
    ] = Field(default=[])
    confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    memory_key: Annotated[str, Field(min_length=1, max_length=MEMORY_KEY_CHARACTERS_MAX)] | None = (
        None
    )
    """A key of yours: the same key is the same memory."""
    agent_id: Word | None = None
    """Id or name of the agent."""
    metadata: dict[str, Any] | None = None
    groundings: Annotated[list[GroundingRequest], Field(max_length=GROUNDINGS_MAX)] = Field(
        default=[]
    )
    workspace: Word | None = None
    """Id or name of the workspace. Null: the agent's own, else the default one."""
    overwrite: bool = False
    """Replace the words of a person, if a person has edited this memory."""


MemorySort = Literal[
    "updated_at", "-updated_at", "created_at", "-created_at", "confidence", "-confidence"
]


class ResourceListRequest(SnakeModel):
    resource: Literal["memory"] = "memory"
    q: Annotated[str, Field(max_length=1000)] | None = None
    """Words that all stand in the memory, its key or its tags."""
    tags: Annotated[list[str], Field(max_length=TAGS_MAX)] = Field(default=[])
    """Only memories with all of these."""
    provider: Word | None = None
    project: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """Only conversations of this directory and of those below."""
    conversation_id: Word | None = None
    updated_after: Word | None = None
    """A date, or a date with time."""
    updated_before: Word | None = None
    sort: MemorySort = "-updated_at"
    page: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    per_page: Annotated[int, Field(ge=1, le=PER_PAGE_MAX)] = PER_PAGE


class ResourceRequest(SnakeModel):
    resource: Literal["memory"] = "memory"
    id: Word


class SchemaRequest(SnakeModel):
    resource: Literal["memory"] = "memory"
    operation: Literal["memorize", "list", "get", "delete"]


def schema_of_operation(request: SchemaRequest) -> dict[str, Any]:
    """Return the JSON schema by which an operation's input is validated."""
    shapes: dict[str, type[SnakeModel]] = {
        "memorize": MemorizeRequest,
        "list": ResourceListRequest,
        "get": ResourceRequest,
        "delete": ResourceRequest,
    }
    return shapes[request.operation].model_json_schema()
