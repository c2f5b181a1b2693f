"""The tools on memories that there are: list, show, forget; and the schema of each operation."""

from __future__ import annotations

from typing import Any

from harness.mcp.tool import READS, REPLACES, McpCall, McpTool, ToolOutput, fitting
from harness.mcp.tools.memorize.shown_memory import ShownMemory, shown_memory
from harness.memorize.memorize_request import (
    ResourceListRequest,
    ResourceRequest,
    SchemaRequest,
    schema_of_operation,
)

LISTED_GROUNDINGS_BYTES = 600
"""Bytes of the groundings of a memory in a list. `resource_get` shows more."""


class PageOutput(ToolOutput):
    page: int
    per_page: int
    total: int


class ResourceListOutput(ToolOutput):
    data: list[ShownMemory]
    meta: PageOutput
    left_out: int
    """Memories of this page that did not fit."""


class ResourceGetOutput(ToolOutput):
    memory: ShownMemory


class ResourceDeleteOutput(ToolOutput):
    deleted: bool
    id: str


class SchemaOutput(ToolOutput):
    input_schema: dict[str, Any]


def _list(arguments: ResourceListRequest, call: McpCall) -> ResourceListOutput:
    page = call.caller.services.memorizer.memories.list(arguments)
    shown = fitting([shown_memory(one, LISTED_GROUNDINGS_BYTES) for one in page.memories])
    return ResourceListOutput(
        data=shown,
        meta=PageOutput(page=page.page, per_page=page.per_page, total=page.total),
        left_out=len(page.memories) - len(shown),
    )


def _get(arguments: ResourceRequest, call: McpCall) -> ResourceGetOutput:
    memory = call.caller.services.memorizer.memories.get(arguments.id)
    return ResourceGetOutput(memory=shown_memory(memory))


def _delete(arguments: ResourceRequest, call: McpCall) -> ResourceDeleteOutput:
    caller = call.caller
    memory = caller.services.memorizer.memories.delete(arguments.id, caller.author)
    return ResourceDeleteOutput(deleted=True, id=memory.fact.id)


def _schema(arguments: SchemaRequest, call: McpCall) -> SchemaOutput:
    del call
    return SchemaOutput(input_schema=schema_of_operation(arguments))


def _list_text(output: ResourceListOutput) -> str:
    lines = [
        f"- {one.id} {one.updated_at[:10]} {one.content}"
        + (f" [{', '.join(one.tags)}]" if one.tags else "")
        for one in output.data
    ]
    if output.left_out:
        lines.append(f"({output.left_out} more of this page are left out: ask for a smaller one)")
    meta = output.meta
    lines.append(f"(page {meta.page}, {meta.total} in all)")
    return "\n".join(lines)


def _get_text(output: ResourceGetOutput) -> str:
    memory = output.memory
    lines = [
        f"{memory.id} {memory.key} ({memory.source}, {memory.updated_at[:10]})",
        memory.content,
        f"from {memory.provider} {memory.conversation_id}",
    ]
    return "\n".join([*lines, *(f"- proof: {one.quote}" for one in memory.groundings)])


def _delete_text(output: ResourceDeleteOutput) -> str:
    return f"Forgotten: {output.id}. Its conversation stays in the archive."


def _schema_text(output: SchemaOutput) -> str:
    return str(output.input_schema.get("title", "The schema is in the structured content."))


RESOURCE_LIST = McpTool(
    "resource_list",
    "List memories",
    input=ResourceListRequest,
    output=ResourceListOutput,
    run=_list,
    text=_list_text,
    hints=READS,
)
RESOURCE_GET = McpTool(
    "resource_get",
    "Show a memory",
    input=ResourceRequest,
    output=ResourceGetOutput,
    run=_get,
    text=_get_text,
    hints=READS,
)
RESOURCE_DELETE = McpTool(
    "resource_delete",
    "Forget a memory",
    input=ResourceRequest,
    output=ResourceDeleteOutput,
    run=_delete,
    text=_delete_text,
    hints=REPLACES,
)
SCHEMA = McpTool(
    "schema",
    "Show the schema of an operation",
    input=SchemaRequest,
    output=SchemaOutput,
    run=_schema,
    text=_schema_text,
    hints=READS,
)
