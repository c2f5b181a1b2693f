"""What a tool is: an input model, an output model, hints, and the text that a model reads.

A tool answers twice: as structured content that fits its output schema, and as text. The text is memory of
others, so it stands fenced between tags that say so. The strings of the structured content are fenced, too.

An answer is bounded. A tool with a list takes as many items as fit (`fitting`), and says what it left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import mcp_types as types
from pydantic import BaseModel, ConfigDict

from harness.context.fence import attribute, fenced
from harness.mcp.caller import McpCaller
from harness.runtime.async_bridge import run_in_new_thread
from harness.runtime.templates import render
from harness.tools.port import as_text
from workspaces.errors import Failure
from workspaces.validation import StrictModel, parse

ANSWER_BYTES_MAX = 32 * 1024
"""Bytes of one answer, text and structured content together. Hosts cut or spill longer ones."""

ITEMS_BYTES_MAX = 12 * 1024
"""Bytes of a list in structured content. The text says the same once more, with a few words around it."""

TEXT_BYTES_MAX = ANSWER_BYTES_MAX - ITEMS_BYTES_MAX - 4 * 1024

APP = "ui://harness/memory"
"""The page of an MCP App: it shows a tool's answer inside hosts that can."""

I = TypeVar("I", bound=StrictModel)  # noqa: E741 - the input of a tool
O = TypeVar("O", bound="ToolOutput")  # noqa: E741 - the output of a tool
T = TypeVar("T", bound=BaseModel)


class ToolInput(StrictModel):
    """The arguments of a call, under the names that the schema shows."""

    model_config = ConfigDict(
        alias_generator=None, extra="forbid", frozen=True, strict=True, populate_by_name=True
    )


class ToolOutput(BaseModel):
    """The structured content of an answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OnProgress(Protocol):
    """A callable that reports how far a call has come. Any thread may call it."""

    def __call__(self, done: float, total: float, message: str, /) -> None: ...


def unreported(done: float, total: float, message: str) -> None:
    """Report nothing."""
    del done, total, message


@dataclass(frozen=True, slots=True)
class McpCall:
    """One call: who makes it, and where its progress is reported."""

    caller: McpCaller
    progress: OnProgress = unreported


@dataclass(frozen=True, slots=True)
class Hints:
    """What hosts show about a tool before a person allows it."""

    is_writing: bool = False
    is_destructive: bool = False
    is_idempotent: bool = True

    def annotations(self, title: str) -> types.ToolAnnotations:
        return types.ToolAnnotations(
            title=title,
            read_only_hint=not self.is_writing,
            destructive_hint=self.is_destructive,
            idempotent_hint=self.is_idempotent,
            open_world_hint=False,
        )


READS = Hints()
ADDS = Hints(is_writing=True)
REPLACES = Hints(is_writing=True, is_destructive=True)


class AnyMcpTool(Protocol):
    @property
    def name(self) -> str: ...
    def described(self) -> types.Tool: ...
    async def call(self, arguments: object, call: McpCall) -> types.CallToolResult: ...


@dataclass(frozen=True, slots=True)
class McpTool(Generic[I, O]):
    name: str
    title: str
    input: type[I]
    output: type[O]
    run: Callable[[I, McpCall], O]
    """Answers in a thread. It raises Failure."""
    text: Callable[[O], str]
    """Returns the answer as a model reads it, without a fence."""
    hints: Hints = READS
    app: str | None = None
    """The page that hosts may show the answer in."""

    def described(self) -> types.Tool:
        return types.Tool(
            name=self.name,
            title=self.title,
            description=render(f"mcp/{self.name}.md").strip(),
            input_schema=_schema(self.input),
            output_schema=_schema(self.output),
            annotations=self.hints.annotations(self.title),
            _meta={"ui": {"resourceUri": self.app}} if self.app else None,
        )

    async def call(self, arguments: object, call: McpCall) -> types.CallToolResult:
        """Answer a call. A failure is an answer, too: the model reads what to do."""
        try:
            stated = parse(self.input, {} if arguments is None else arguments)
            output = await run_in_new_thread(self.run, stated, call)
        except Failure as failure:
            return refusal(as_text(failure))
        text = await asyncio.to_thread(self._shown, output)
        content = _fenced_strings(output.model_dump(mode="json", by_alias=True))
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=content,
            is_error=False,
        )

    def _shown(self, output: O) -> str:
        text = cut(fenced(self.text(output)), TEXT_BYTES_MAX)
        return f'<memory tool="{attribute(self.name)}">\n{text}\n</memory>'


def refusal(text: str) -> types.CallToolResult:
    shown = cut(fenced(text), TEXT_BYTES_MAX)
    return types.CallToolResult(content=[types.TextContent(type="text", text=shown)], is_error=True)


def fitting(items: Sequence[T], bytes_max: int = ITEMS_BYTES_MAX) -> list[T]:
    """Return the first items whose fenced JSON fits, at least one of them."""
    kept: list[T] = []
    room = bytes_max
    for item in items:
        room -= len(fenced(item.model_dump_json()).encode()) + 1
        if room < 0 and kept:
            break
        kept.append(item)
    return kept


def cut(text: str, bytes_max: int) -> str:
    """Return the text, cut at a line end if it is too long, with a line that says so."""
    data = text.encode()
    if len(data) <= bytes_max:
        return text
    kept = data[:bytes_max].decode(errors="ignore")
    whole = kept.rpartition("\n")[0] or kept
    left = len(data) - len(whole.encode())
    return f"{whole}\n({left:,} more bytes are left out: ask for less)"


def _fenced_strings(value: Any) -> Any:
    """Return JSON whose strings cannot be taken for tags of a prompt."""
    if isinstance(value, str):
        return fenced(value)
    if isinstance(value, list):
        return [_fenced_strings(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _fenced_strings(one) for key, one in cast("dict[str, Any]", value).items()}
    return value


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True)
    schema.pop("title", None)
    schema.pop("description", None)
    return {**schema, "additionalProperties": False}
