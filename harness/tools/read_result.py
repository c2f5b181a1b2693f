"""The tool `read_result`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.agents.mounts import Mount
from harness.tools.port import Tool
from harness.tools.tool_context import ToolContext
from workspaces.errors import NotFound
from workspaces.validation import StrictModel

CHARACTERS_MAX = 64 * 1024
"""What one answer may cost of the context. By characters and not by lines: an output may be one line."""


class ReadResultInput(StrictModel):
    id: Annotated[str, Field(min_length=1, max_length=200)]
    offset: Annotated[int, Field(ge=0)] = 0


def _read_result(given: ReadResultInput, desk: ToolContext, call_id: str) -> str:
    del call_id
    if desk.results is None:
        raise NotFound("result", given.id)
    text = desk.results.read(given.id)
    if given.offset >= len(text) and text:
        return f"The result has {len(text):,} characters; there is none from {given.offset:,} on."
    end = given.offset + CHARACTERS_MAX
    left = len(text) - end
    more = f"\n({left:,} more characters: read on with offset {end})" if left > 0 else ""
    return text[given.offset : end] + more


def _suits(mount: Mount, desk: ToolContext) -> bool:
    del mount
    return desk.results is not None


READ_RESULT = Tool("read_result", ReadResultInput, _read_result, is_writing=False, suits=_suits)
