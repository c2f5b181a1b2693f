"""A block: one file in the private workspace of its scope.

    blocks/core.md        small, and shown in every prompt
    blocks/archival.md    larger, and searched when it is needed

The file ends with one line end, which is no part of the content. Limits count the content.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, get_args

from workspaces.errors import Conflict, OverLimit
from workspaces.home.workspaces import private_to_both, private_to_user
from workspaces.ids import ID_HEX_DIGITS, AgentId, Namespace, UserId, Version, WorkspaceId
from workspaces.paths import WorkspacePath
from workspaces.storage.records import JsonObject
from workspaces.timestamp import Stamp

BlockType = Literal["core", "archival"]
BlockScope = Literal["user", "agent"]
"""`user`: the user, whatever agent answers. `agent`: the user with one agent."""

BLOCK_SCOPES: tuple[BlockScope, ...] = get_args(BlockScope)
BLOCK_TYPES: tuple[BlockType, ...] = get_args(BlockType)

CORE_CHARACTERS_MAX = 4_000
"""Characters of a core block. Every prompt holds two of them."""

CORE_ENTRIES_MAX = 20
"""Entries of a core block: more are no longer a few facts that matter every time."""

ARCHIVAL_CHARACTERS_MAX = 8_000
"""Characters of an archival block. Larger collections belong in notes."""

_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_INDENTED = re.compile(r"(?: {2}|\t)")


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """The limits of a block's content."""

    characters: int
    entries: int | None = None


LIMITS: dict[BlockType, BlockLimits] = {
    "core": BlockLimits(CORE_CHARACTERS_MAX, CORE_ENTRIES_MAX),
    "archival": BlockLimits(ARCHIVAL_CHARACTERS_MAX),
}


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """The place of a block, whether it exists or not."""

    type: BlockType
    user_id: UserId
    agent_id: AgentId | None = None
    """The agent of a block in the scope `agent`."""

    @property
    def scope(self) -> BlockScope:
        return "user" if self.agent_id is None else "agent"

    @property
    def path(self) -> WorkspacePath:
        return path_of(self.type)

    @property
    def workspace_id(self) -> WorkspaceId:
        if self.agent_id is None:
            return private_to_user(self.user_id)
        return private_to_both(self.user_id, self.agent_id)

    @property
    def name(self) -> str:
        """The name in an error."""
        return self.type if self.agent_id is None else f"{self.type} of {self.agent_id}"


@dataclass(frozen=True, slots=True)
class Block:
    """The state of a block at its newest revision."""

    id: str
    type: BlockType
    content: str
    scope: BlockScope
    agent_id: AgentId | None
    created_at: Stamp
    updated_at: Stamp
    """The stamp of the newest revision that changed the file."""
    version: Version
    """The version of the file."""

    def as_json(self) -> JsonObject:
        return {
            "id": self.id,
            "block_type": self.type,
            "content": self.content,
            "scope": self.scope,
            "agent_id": self.agent_id,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "version": self.version,
        }


class BlockConflict(Conflict):
    """A condition on a block that does not hold. `block` is the current block, or None without one."""

    def __init__(self, place: BlockPlace, reason: str, block: Block | None) -> None:
        actual = None if block is None else block.updated_at
        super().__init__("block", place.name, expected=None, actual=actual)
        self.args = (f"block {place.name!r}: {reason}",)
        self.block = block


def path_of(block_type: BlockType) -> WorkspacePath:
    return WorkspacePath(f"blocks/{block_type}.md")


def block_id(namespace: Namespace, path: WorkspacePath) -> str:
    """Return the id of a block. It is computed, so it is the same on every machine."""
    digest = sha256(f"{namespace}\0{path}".encode()).hexdigest()
    return f"blk_{digest[:ID_HEX_DIGITS]}"


def content_of(text: str) -> str:
    """Return the content of a file's text, or of what a caller sends: without the last line ends."""
    return text.rstrip("\r\n")


def entry_starts(content: str) -> list[int]:
    """Return the number of the first line of each entry, counted from 0.

    An entry is a list item with the lines that continue it, or any other line with text. Headings are no
    entries.
    """
    starts: list[int] = []
    is_item = False
    for number, line in enumerate(content.split("\n")):
        if not line.strip() or (is_item and _INDENTED.match(line)):
            continue
        is_item = _ITEM.match(line) is not None
        if is_item or not _HEADING.match(line):
            starts.append(number)
    return starts


def check_limits(block_type: BlockType, content: str) -> None:
    """Raise OverLimit if the content is larger than a block of this type may be."""
    limits = LIMITS[block_type]
    if len(content) > limits.characters:
        raise OverLimit(
            f"length of the {block_type} block",
            maximum=limits.characters,
            actual=len(content),
            unit="characters",
        )
    entries = len(entry_starts(content))
    if limits.entries is not None and entries > limits.entries:
        raise OverLimit(
            f"length of the {block_type} block",
            maximum=limits.entries,
            actual=entries,
            unit="entries",
        )
