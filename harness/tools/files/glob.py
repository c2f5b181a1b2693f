"""The tool `glob`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.tools.files.path_pattern import fixed_directory, matcher
from harness.tools.port import Tool
from harness.tools.tool_context import ToolContext, place_of
from workspaces.paths import broken_rule
from workspaces.validation import StrictModel

SHOWN_MAX = 500
"""The most paths in one answer. A longer list needs a narrower pattern."""


class GlobInput(StrictModel):
    pattern: Annotated[str, Field(min_length=1)]
    path: str | None = None
    workspace: str | None = None


def _glob(arguments: GlobInput, context: ToolContext, call_id: str) -> str:
    del call_id
    mount = context.mount(arguments.workspace)
    matches = matcher(arguments.pattern)
    place = place_of(arguments.path)
    above = len(place) + 1 if place else 0
    inside = _joined(place, fixed_directory(arguments.pattern))
    matching = mount.workspace.find(inside, lambda name: matches(name[above:]))
    matching.sort(key=lambda stat: (-(stat.modified or 0), stat.name))
    if not matching:
        return f"No file matches {arguments.pattern!r}" + (f" in {place}." if place else ".")
    lines = [stat.name for stat in matching[:SHOWN_MAX]]
    if len(matching) > SHOWN_MAX:
        lines.append(
            f"({len(matching) - SHOWN_MAX:,} older ones are left out: use a narrower pattern)"
        )
    return "\n".join(lines)


def _joined(place: str, fixed: str) -> str:
    """Return the directory to search, joined only as far as it is a valid path."""
    joined = f"{place}/{fixed}" if place and fixed else place or fixed
    return joined if not joined or broken_rule(joined) is None else place


GLOB = Tool("glob", GlobInput, _glob, is_writing=False)
