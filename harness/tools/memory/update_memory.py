"""The tool `update_memory`: change a memory block of the user by compare-and-set."""

from __future__ import annotations

from typing import Annotated, Literal, assert_never

from pydantic import Field

from harness.context.fence import fenced
from harness.memory.blocks.block import (
    LIMITS,
    Block,
    BlockConflict,
    BlockPlace,
    BlockScope,
    BlockType,
    content_of,
    entry_starts,
)
from harness.memory.blocks.blocks import BlockWrite
from harness.memory.blocks.line_edit import with_entry, with_entry_replaced, without_entry
from harness.messages.message import ToolCall
from harness.messages.model_request import ToolSpec
from harness.messages.pending_call import RequiredAnswer
from harness.runtime.async_bridge import run_in_new_thread
from harness.runtime.templates import render
from harness.tools.port import spec_of
from harness.tools.tool_context import ToolContext, ToolRevision
from workspaces.errors import Failure, OverLimit, Refused
from workspaces.validation import StrictModel, parse

NAME = "update_memory"

TEXT_CHARACTERS_MAX = 20_000
"""Longest text of a call. Every block is far shorter; the limit's error says by how much."""

_Text = Annotated[str, Field(max_length=TEXT_CHARACTERS_MAX)]


class UpdateMemoryInput(StrictModel):
    block: BlockType
    operation: Literal["add", "replace", "remove", "rewrite"]
    entry: _Text | None = None
    text: _Text | None = None
    version: Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")] | None = None
    scope: BlockScope = "user"


class UpdateMemory:
    """The tool. It is offered to every agent whose private memory is not off."""

    name = NAME

    def spec(self, context: ToolContext) -> ToolSpec:
        del context
        return spec_of(NAME, UpdateMemoryInput, (), False)

    def is_offered(self, context: ToolContext) -> bool:
        return context.blocks is not None and context.blocks.is_writable

    def required_answer(self, call: ToolCall, context: ToolContext) -> RequiredAnswer | None:
        """Return the approval that the call needs, or None. A call that must fail needs none."""
        if context.blocks is None or not context.blocks.is_asked_for:
            return None
        try:
            arguments = parse(UpdateMemoryInput, call.input)
            _check(arguments)
        except Failure:
            return None
        return RequiredAnswer(call.id, "approval", _workspace_name(arguments.scope))

    def may_write(self, call: ToolCall, context: ToolContext) -> bool:
        del call, context
        return True

    async def answer(self, call: ToolCall, context: ToolContext) -> str:
        arguments = parse(UpdateMemoryInput, call.input)
        _check(arguments)
        return await run_in_new_thread(_update, arguments, context, call.id)


def _update(arguments: UpdateMemoryInput, context: ToolContext, call_id: str) -> str:
    blocks = context.blocks
    if blocks is None:
        raise Refused("block", arguments.block, "cannot be written: private memory is off")
    place = blocks.place(arguments.block, arguments.scope)
    seen: list[Block | None] = [None]

    def plan(current: Block | None) -> str:
        seen[0] = current
        return _planned(arguments, place, current)

    try:
        written = blocks.blocks.edit(place, plan, by=context.author(call_id))
    except BlockConflict as conflict:
        raise _told(arguments, str(conflict.args[0]), conflict.block) from conflict
    except (Refused, OverLimit) as failure:
        raise _told(arguments, str(failure), seen[0]) from failure
    if written.revision is not None:
        revision = ToolRevision(_workspace_name(arguments.scope), written.revision)
        context.changes.append(revision)
    return _done(written)


def _check(arguments: UpdateMemoryInput) -> None:
    """Raise Refused if an operation lacks what it needs."""
    if arguments.operation in ("replace", "remove") and not (arguments.entry or "").strip():
        raise Refused("entry", arguments.entry, f"is required to {arguments.operation} an entry")
    if arguments.operation in ("add", "replace") and not (arguments.text or "").strip():
        raise Refused("text", arguments.text, f"is required to {arguments.operation} an entry")
    if arguments.operation == "rewrite" and arguments.text is None:
        raise Refused("text", None, "is required: the whole new content")


def _planned(arguments: UpdateMemoryInput, place: BlockPlace, current: Block | None) -> str:
    """Return the new content of the block.

    Raises: BlockConflict if the block is not the version that the model has read; Refused.
    """
    version, text = arguments.version, arguments.text or ""
    if version is not None and (current is None or not current.version.startswith(version)):
        state = "it does not exist" if current is None else "it has changed since you read it"
        raise BlockConflict(place, state, current)
    content = "" if current is None else current.content
    match arguments.operation:
        case "add":
            return with_entry(content, text)
        case "replace":
            return with_entry_replaced(content, arguments.entry or "", text)
        case "remove":
            return without_entry(content, arguments.entry or "")
        case "rewrite":
            if current is not None and version is None:
                raise BlockConflict(place, "state the version that you have read", current)
            return content_of(text)
        case _:
            assert_never(arguments.operation)


def _told(arguments: UpdateMemoryInput, reason: str, block: Block | None) -> Refused:
    """Return the failure for the model: the reason, and the block as it is now."""
    message = render(
        "turn/block-unchanged.md",
        reason=reason,
        scope=arguments.scope,
        block=arguments.block,
        version=None if block is None else block.version[:12],
        content="" if block is None else fenced(block.content),
    )
    return Refused("block", arguments.block, reason, message=message)


def _done(written: BlockWrite) -> str:
    block, limits = written.block, LIMITS[written.block.type]
    room = f"{len(block.content):,} of {limits.characters:,} characters"
    if limits.entries is not None:
        room += f", {len(entry_starts(block.content))} of {limits.entries} entries"
    state = "Updated" if written.revision is not None else "It says so already"
    return (
        f"{state}: {block.type} memory, scope {block.scope}, version {block.version[:12]} ({room})."
    )


def _workspace_name(scope: BlockScope) -> str:
    """Return the name under which an agent sees the workspace of a scope."""
    return "_user" if scope == "user" else "_user-agent"


UPDATE_MEMORY = UpdateMemory()
