"""The tool `recall`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from harness.agents.mounts import Mount
from harness.memory.blocks.block import BLOCK_SCOPES
from harness.tools.port import Tool
from harness.tools.tool_context import ToolContext
from workspaces.search.kind import LIMIT_MAX, QUERY_CHARACTERS_MAX, MemoryKind
from workspaces.validation import StrictModel

if TYPE_CHECKING:
    from harness.memory.recall import RecallAnswer, SearchedPlace
    from workspaces.search.recall import Scope

CONTENT_CHARACTERS_MAX = 2_000
"""Characters shown of one line; `read` shows the rest."""

CHARACTERS_MAX = 32 * 1024
"""Characters of one answer: half of the limit of `read`."""


class RecallInput(StrictModel):
    query: Annotated[str, Field(max_length=QUERY_CHARACTERS_MAX)]
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = 10
    paths: list[str] = Field(default=[], max_length=20)
    kinds: list[MemoryKind] = Field(default=[], max_length=7)
    since: str | None = None
    by: str | None = None
    workspace: str | None = None
    cut: Literal["auto", "off"] = "auto"


def _recall(arguments: RecallInput, context: ToolContext, call_id: str) -> str:
    """Search all mounts that have an index here, unless one is named."""
    from harness.memory.recall import EMPTY, SearchedPlace, answer, recall_in, since_of
    from workspaces.search.recall import Scope

    del call_id
    if arguments.workspace is not None:
        mounts = [context.mount(arguments.workspace)]
    else:
        mounts = [mount for mount in context.mounts if not mount.is_distant]
    scope = Scope(
        tuple(arguments.paths),
        tuple(arguments.kinds),
        None if arguments.since is None else since_of(arguments.since),
        arguments.by,
    )
    searched = [SearchedPlace(mount.name, mount.here, scope) for mount in mounts]
    if arguments.workspace is None:
        searched += _unmounted(context, scope)
    hits = recall_in(searched, arguments.query, limit=arguments.limit)
    found = answer(hits, arguments.query, arguments.cut)
    if not found.hits:
        return EMPTY if found.nothing_known else "There are no lines here."
    return _shown(found, with_names=len(searched) > 1 or len(context.mounts) > 1)


def _unmounted(context: ToolContext, scope: Scope) -> list[SearchedPlace]:
    """Return the archival blocks of workspaces that are not mounted. Those that are mounted are searched
    whole."""
    from harness.memory.recall import SearchedPlace

    if context.blocks is None:
        return []
    mounted = {mount.namespace for mount in context.mounts}
    places: list[SearchedPlace] = []
    for name in BLOCK_SCOPES:
        place = context.blocks.place("archival", name)
        workspace = context.blocks.blocks.opened(place)
        if workspace is None or workspace.namespace in mounted:
            continue
        if scope.includes_path(place.path):
            own = replace(scope, paths=(place.path,))
            places.append(SearchedPlace(f"memory of the {name}", workspace, own))
    return places


def _shown(found: RecallAnswer, *, with_names: bool) -> str:
    from harness.memory.recall import age_of, behind_text

    shown: list[str] = []
    room = CHARACTERS_MAX
    for hit in found.hits:
        line = hit.line
        place = f"{hit.workspace}: {line.path}" if with_names else line.path
        content = line.content
        if len(content) > CONTENT_CHARACTERS_MAX:
            content = f"{content[:CONTENT_CHARACTERS_MAX]}…"
        age = age_of(line.updated_at, line.age_days)
        entry = f"{place}:{line.line_number} ({line.kind}, {age})\n{content}"
        room -= len(entry)
        if room < 0 and shown:
            break
        shown.append(entry)
    left = len(found.hits) - len(shown)
    if left:
        shown.append(f"({left} more lines: ask for less)")
    return "\n".join([*shown, *behind_text(found.cut)])


def _suits(mount: Mount, context: ToolContext) -> bool:
    """Return True if the mount has a copy on this machine, and so an index."""
    del context
    return not mount.is_distant


RECALL = Tool("recall", RecallInput, _recall, is_writing=False, suits=_suits)
