"""The core blocks that a turn's prompt shows, read from revisions.

A part depends only on the revision it was read from and on the limits. A file that somebody made too long is
shown from its beginning, in whole entries, and the part says what it leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from harness.context.fence import fenced, one_line
from harness.context.part import PromptPart, Render, block_source
from harness.memory.blocks.block import (
    CORE_CHARACTERS_MAX,
    CORE_ENTRIES_MAX,
    BlockPlace,
    content_of,
    entry_starts,
)
from harness.memory.blocks.blocks import Blocks, commit_edit
from harness.messages.memory_policy import MemoryPolicy
from workspaces.errors import Failure
from workspaces.file import File
from workspaces.ids import AgentId, Version, version_of
from workspaces.revision import RevisionId
from workspaces.tree.merge_marks import MergeMark, marks_since
from workspaces.workspace.workspace import Workspace

VERSION_DIGITS = 12
"""Digits of a version that a prompt shows: no two versions of one block have the same."""


@dataclass(frozen=True, slots=True)
class CoreBlock:
    """A core block at a revision of its workspace, or the reason why it cannot be read."""

    place: BlockPlace
    revision: RevisionId | None
    content: str = ""
    version: Version | None = None
    unavailable: str | None = None

    @property
    def source(self) -> str:
        return block_source(self.place.scope)


class CoreBlocks:
    """The core blocks of one turn."""

    def __init__(self, blocks: Blocks, agent_id: AgentId, policy: MemoryPolicy) -> None:
        """Take the blocks of the turn's user. `agent_id` is the active agent."""
        self._blocks = blocks
        places: list[BlockPlace] = []
        if policy.include_user_core:
            places.append(blocks.place_of("core"))
        if policy.include_agent_core:
            places.append(blocks.place_of("core", agent_id))
        self.places = tuple(places)
        self._read: dict[BlockPlace, CoreBlock | None] = {}
        self._known: set[RevisionId] = set()

    def read(self) -> tuple[CoreBlock, ...]:
        """Return the blocks that exist, as their newest revisions have them now."""
        for place in self.places:
            before = self._read.get(place)
            try:
                self._read[place] = self._current(place, before)
            except Failure as failure:
                reason = _without_namespace(str(failure), self._blocks, place)
                self._read[place] = CoreBlock(place, None, unavailable=reason)
        return tuple(block for block in self._read.values() if block is not None)

    def is_erased(self, shown: Mapping[str, RevisionId]) -> bool:
        """Return True if a workspace's history no longer holds a revision that was shown."""
        for place in self.places:
            revision, block = shown.get(block_source(place.scope)), self._read.get(place)
            if revision is None or revision in self._known:
                continue
            if block is not None and block.unavailable is not None:
                continue
            workspace = self._blocks.opened(place)
            if workspace is None:
                continue
            if not workspace.history.holds(revision):
                return True
            self._known.add(revision)
        return False

    def merge_marks(self, shown: Mapping[str, RevisionId]) -> dict[str, list[MergeMark]]:
        """Return the places where sync has merged a block since the shown revision."""
        marks: dict[str, list[MergeMark]] = {}
        for place, block in self._read.items():
            before = shown.get(block_source(place.scope))
            if block is None or block.revision is None or before in {None, block.revision}:
                continue
            workspace = self._blocks.opened(place)
            if workspace is None:
                continue
            with suppress(Failure):  # the change is told without the marks, too
                found = marks_since(workspace.history, block.revision, before)
                marks[block.source] = [mark for mark in found if mark.path == place.path]
        return marks

    def _current(self, place: BlockPlace, before: CoreBlock | None) -> CoreBlock | None:
        workspace = self._blocks.opened(place)
        if workspace is None:
            return None
        if place not in self._read or (before is not None and before.unavailable is not None):
            commit_edit(workspace, place.path)
        revision = workspace.history.tip()
        if before is not None and before.revision == revision:
            return before
        return _at(place, workspace, revision)


def core_parts(
    blocks: Sequence[CoreBlock], characters_max: int, render: Render
) -> tuple[tuple[PromptPart, ...], int]:
    """Return a part for each block, and the characters that remain of the budget."""
    parts: list[PromptPart] = []
    for block in blocks:
        shown = _fitting(fenced(block.content), min(characters_max, CORE_CHARACTERS_MAX))
        characters_max -= len(shown.text)
        left_out = ""
        if shown.entries_left_out:
            count = shown.entries_left_out
            left_out = f"{count:,} {'entry' if count == 1 else 'entries'} left out: over the limit"
        unavailable = None if block.unavailable is None else one_line(block.unavailable)
        text = render(
            "prompt/block.md",
            scope=block.place.scope,
            version=(block.version or "")[:VERSION_DIGITS],
            text=shown.text,
            is_empty=not shown.text.strip(),
            left_out=left_out,
            unavailable=unavailable,
        )
        parts.append(
            PromptPart(
                block.source,
                is_trusted=False,
                text=text,
                revision=block.revision,
                entries_left_out=shown.entries_left_out,
                lines_left_out=shown.lines_left_out,
                unavailable=unavailable,
            )
        )
    return tuple(parts), characters_max


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The beginning of a block."""

    text: str
    entries_left_out: int = 0
    lines_left_out: int = 0


def _fitting(content: str, characters_max: int) -> _Beginning:
    """Return the content, or as many whole entries of its beginning as the limits allow."""
    starts = entry_starts(content)
    if len(content) <= characters_max and len(starts) <= CORE_ENTRIES_MAX:
        return _Beginning(content)
    lines = content.split("\n")
    bounds = [*starts, len(lines)]
    length, shown = sum(len(line) + 1 for line in lines[: bounds[0]]), 0
    for start, end in pairwise(bounds):
        length += sum(len(line) + 1 for line in lines[start:end])
        if length - 1 > characters_max or shown == CORE_ENTRIES_MAX:
            break
        shown += 1
    end = bounds[shown]
    return _Beginning(
        "\n".join(lines[:end]).rstrip() if shown else "",
        len(starts) - shown,
        sum(1 for line in lines[end:] if line.strip()),
    )


def _at(place: BlockPlace, workspace: Workspace, revision: RevisionId | None) -> CoreBlock | None:
    found = workspace.history.find(revision, place.path)
    if found is None:
        return None
    data = workspace.history.read(found)
    content = content_of(File(place.path, data).text)
    return CoreBlock(place, revision, content, version_of(data))


def _without_namespace(reason: str, blocks: Blocks, place: BlockPlace) -> str:
    """Return the reason without the name of the storage: a model knows no namespace."""
    with suppress(Failure):
        workspace = blocks.opened(place)
        if workspace is not None:
            return reason.replace(workspace.namespace, place.workspace_id)
    return reason
