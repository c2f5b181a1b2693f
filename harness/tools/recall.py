"""The tool `recall`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.agents.mounts import Mount
from harness.memory.recall import Hit, recall, since_of
from harness.tools.port import Tool
from harness.tools.tool_context import ToolContext
from workspaces.search.kind import MemoryKind
from workspaces.search.recall import LIMIT_MAX, QUERY_CHARACTERS_MAX, Scope
from workspaces.validation import StrictModel

CONTENT_CHARACTERS_MAX = 2_000
"""Of one line; `read` shows the rest."""

CHARACTERS_MAX = 32 * 1024
"""Of one answer: half of what `read` may show."""


class RecallInput(StrictModel):
    query: Annotated[str, Field(max_length=QUERY_CHARACTERS_MAX)]
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = 10
    paths: list[str] = Field(default=[], max_length=20)
    kinds: list[MemoryKind] = Field(default=[], max_length=7)
    since: str | None = None
    by: str | None = None
    workspace: str | None = None


def _recall(given: RecallInput, desk: ToolContext, call_id: str) -> str:
    """In all mounts, unless one is named."""
    del call_id
    if given.workspace is not None:
        mounts = [desk.mount(given.workspace)]
    else:
        mounts = [mount for mount in desk.mounts if not mount.is_distant]
    hits = recall(
        [(mount.name, mount.here) for mount in mounts],
        given.query,
        limit=given.limit,
        scope=Scope(
            tuple(given.paths),
            tuple(given.kinds),
            None if given.since is None else since_of(given.since),
            given.by,
        ),
    )
    if not hits:
        return "Nothing was found. Try other words, or fewer limits."
    return _shown(hits, with_names=len(desk.mounts) > 1)


def _shown(hits: list[Hit], *, with_names: bool) -> str:
    shown: list[str] = []
    room = CHARACTERS_MAX
    for hit in hits:
        line = hit.line
        place = f"{hit.workspace}: {line.path}" if with_names else line.path
        when = line.updated_at[:10] if line.updated_at else "not in a revision yet"
        content = line.content
        if len(content) > CONTENT_CHARACTERS_MAX:
            content = f"{content[:CONTENT_CHARACTERS_MAX]}…"
        entry = f"{place}:{line.line_number} ({when})\n{content}"
        room -= len(entry)
        if room < 0 and shown:
            break
        shown.append(entry)
    left = len(hits) - len(shown)
    return "\n".join([*shown, *([f"({left} more lines: ask for less)"] if left else [])])


def _suits(mount: Mount, desk: ToolContext) -> bool:
    """What has no copy here has no index."""
    del desk
    return not mount.is_distant


RECALL = Tool("recall", RecallInput, _recall, is_writing=False, suits=_suits)
