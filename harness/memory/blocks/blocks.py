"""The blocks of one user: reading, compare-and-set, and recall.

A block is judged by what its newest revision holds. An edit by hand is committed before that, so it is never
overwritten by a writer that has not seen it. The write itself then expects exactly the version that was
judged. If another writer comes in between, the block is read and judged again. Where several machines share
the files, that write is decided in S3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from harness.memory.blocks.block import (
    BLOCK_TYPES,
    Block,
    BlockPlace,
    BlockScope,
    BlockType,
    block_id,
    check_limits,
    content_of,
)
from harness.memory.blocks.condition import UNCONDITIONAL, BlockCondition
from harness.memory.workspace_sync import sync_of
from workspaces.accounts.principal import Principal
from workspaces.errors import Failure, MassDeletion, NotFound, Refused, Unavailable, WorkspaceBusy
from workspaces.file import File, as_bytes
from workspaces.history.git.objects import ObjectId, blob_id
from workspaces.history.history import View
from workspaces.home.workspaces import Workspaces, private_to_both
from workspaces.ids import AgentId, Version, version_of
from workspaces.paths import WorkspacePath
from workspaces.revision import Author, RevisionId
from workspaces.storage.records import JsonObject
from workspaces.timestamp import Stamp
from workspaces.workspace.workspace import Workspace

if TYPE_CHECKING:
    from workspaces.search.recall import RecallHit

READ_WAIT_S = 1.0
"""Seconds that a reader waits for a writer's lock to commit an edit by hand. Then it reads the newest
revision, which is what the block was before that edit."""

ScopeFilter = Literal["user", "agent", "all"]


@dataclass(frozen=True, slots=True)
class BlockWrite:
    """A write to a block."""

    block: Block
    created: bool
    """True if there was no block before."""
    revision: RevisionId | None
    """None if nothing changed, so that no revision was made."""


@dataclass(frozen=True, slots=True)
class BlockLine:
    """A line of an archival block that recall has found."""

    place: BlockPlace
    content: str
    score: float
    line_number: int
    """The line number, counted from 1."""
    updated_at: Stamp | None
    """None if the line is in no revision yet."""

    def as_json(self) -> JsonObject:
        return {
            "content": self.content,
            "score": self.score,
            "block_type": self.place.type,
            "scope": self.place.scope,
            "agent_id": self.place.agent_id,
            "path": self.place.path,
            "line_number": self.line_number,
            "updated_at": self.updated_at,
        }


class Blocks:
    """The blocks of one user of an account."""

    def __init__(
        self,
        principal: Principal,
        workspaces: Workspaces,
        *,
        agent_id_of: Callable[[str], AgentId],
        agent_ids: Callable[[], Iterable[AgentId]],
        sync_records: Callable[[], None] = lambda: None,
    ) -> None:
        """`agent_id_of` returns the id of the agent with this id or name, and raises NotFound. `agent_ids`
        returns the ids of all agents of the account, in order. `sync_records` fetches the records that other
        machines have changed."""
        self._user_id = principal.user_id
        self._workspaces = workspaces
        self._agent_id_of = agent_id_of
        self._agent_ids = agent_ids
        self._sync_records = sync_records

    def place(
        self, block_type: BlockType, scope: BlockScope | None = None, agent: str | None = None
    ) -> BlockPlace:
        """Return the place of a block. An agent alone means the scope `agent`.

        Raises: Refused if scope and agent do not fit; NotFound if there is no such agent.
        """
        scope = scope or ("user" if agent is None else "agent")
        if scope == "user":
            if agent is not None:
                raise Refused("agent_id", agent, "cannot be given with the scope `user`")
            return BlockPlace(block_type, self._user_id)
        if agent is None:
            raise Refused("agent_id", None, "is required for the scope `agent`")
        return BlockPlace(block_type, self._user_id, self._agent_id_of(agent))

    def place_of(self, block_type: BlockType, agent_id: AgentId | None = None) -> BlockPlace:
        """Return the place of a block of the user, or of the user with an agent that exists."""
        return BlockPlace(block_type, self._user_id, agent_id)

    def list(self, scope: ScopeFilter | None = None, agent: str | None = None) -> list[Block]:
        """Return the blocks of a scope that exist: core before archival, the user's before the agents'."""
        found = [
            self._current(place)
            for block_type in BLOCK_TYPES
            for place in self._places(block_type, scope, agent)
        ]
        return [block for block in found if block is not None]

    def find(self, place: BlockPlace) -> Block | None:
        """Return a block, or None if it does not exist."""
        return self._current(place)

    def get(self, place: BlockPlace) -> Block:
        """Return a block.

        Raises: NotFound.
        """
        block = self._current(place)
        if block is None:
            raise _no_block(place)
        return block

    def put(
        self, place: BlockPlace, content: str, condition: BlockCondition, *, by: Author
    ) -> BlockWrite:
        """Replace a block if the condition holds.

        Raises: OverLimit, BlockConflict; then nothing has changed.
        """
        content = content_of(content)
        check_limits(place.type, content)

        def plan(current: Block | None) -> str:
            condition.is_done(place, current, content)
            return content

        return self.edit(place, plan, by=by)

    def edit(
        self, place: BlockPlace, plan: Callable[[Block | None], str], *, by: Author
    ) -> BlockWrite:
        """Replace a block by what `plan` makes of its current state. `plan` may be called several times.

        Raises: OverLimit, and whatever `plan` raises; then nothing has changed.
        """
        if self._refresh(place) is None:
            plan(None)  # a refused write makes no workspace
        workspace = self._made(place)
        seen: list[Block | None] = [None]

        def change(before: bytes | None) -> bytes:
            current = seen[0] = _judged(place, workspace, before)
            content = plan(current)
            if current is not None and before is not None and current.content == content:
                return before
            check_limits(place.type, content)
            return as_bytes(f"{content}\n")

        written = workspace.decided.edit(place.path, change, by=by, check=_decided)
        current = seen[0]
        if written.revision is None:  # nothing to write, or another program wrote it at that moment
            block = current or self.get(place)
            return BlockWrite(block, created=False, revision=None)
        _send_history(workspace)
        at = workspace.history.commit(written.revision).at
        data = workspace.history.read(_object_of(workspace, written.revision, place.path))
        created_at = at if current is None else current.created_at
        block = _block(place, workspace, data, created_at, at)
        return BlockWrite(block, current is None, written.revision)

    def restore(self, place: BlockPlace, view: View, *, by: Author) -> BlockWrite:
        """Set a block to its content at a revision.

        Raises: NotFound if the revision has no such block; OverLimit.
        """
        workspace = self.workspace(place)
        revision = workspace.history.resolve(view)
        found = workspace.history.find(revision, place.path)
        if revision is None or found is None:
            raise NotFound("block", f"{place.name} at {view}")
        content = content_of(File(place.path, workspace.history.read(found)).text)
        return self.edit(place, lambda _: content, by=by.saying("Restored", revision))

    def delete(
        self, place: BlockPlace, condition: BlockCondition = UNCONDITIONAL, *, by: Author
    ) -> None:
        """Delete a block if the condition holds. Its history stays.

        Raises: NotFound if there is no block; BlockConflict.
        """
        workspace = self._refresh(place)
        if workspace is None:
            raise _no_block(place)

        def change(before: bytes | None) -> None:
            current = _judged(place, workspace, before)
            if current is None:
                raise _no_block(place)
            condition.check(place, current)

        workspace.decided.edit(place.path, change, by=by, check=_decided)

    def recall(self, query: str, *, agent: str | None = None, limit: int = 10) -> list[BlockLine]:
        """Return the archival lines of the user, and of one agent, that a query is about, best first.

        For an empty query, return the first lines: the user's, then the agent's.
        """
        places = [self.place("archival")]
        if agent is not None:
            places.append(self.place("archival", "agent", agent))
        for place in places:
            self._refresh(place)
        return self.recall_in(places, query, limit=limit)

    def recall_in(
        self, places: Iterable[BlockPlace], query: str, *, limit: int = 10
    ) -> list[BlockLine]:
        """Return the lines of these blocks that a query is about, best first.

        It searches the files as they are on this machine.
        """
        from harness.memory.recall import recall
        from workspaces.search.recall import Scope

        by_name = {place.name: place for place in places}
        searched: list[tuple[str, Workspace]] = []
        for name, place in by_name.items():
            workspace = self.opened(place)
            if workspace is not None:
                commit_edit(workspace, place.path)
                searched.append((name, workspace))
        scope = Scope(tuple({place.path for place in by_name.values()}))
        hits = recall(searched, query if query.strip() else "", limit=limit, scope=scope)
        return [_line(by_name[hit.workspace], hit.line) for hit in hits]

    def workspace(self, place: BlockPlace) -> Workspace:
        """Return the workspace of a block, for its history.

        Raises: NotFound if no block of this scope was ever made.
        """
        workspace = self.opened(place)
        if workspace is None:
            raise _no_block(place)
        return workspace

    def opened(self, place: BlockPlace) -> Workspace | None:
        """Return the workspace of a block, or None if it was never made."""
        return self._workspaces.private(place.workspace_id, create=False)

    def _places(
        self, block_type: BlockType, scope: ScopeFilter | None, agent: str | None
    ) -> list[BlockPlace]:
        if scope != "all":
            return [self.place(block_type, scope, agent)]
        own = self.place(block_type)
        if agent is not None:
            return [own, self.place(block_type, "agent", agent)]
        made = {record.id for record in self._workspaces.list(private=True)}
        return [own] + [
            BlockPlace(block_type, self._user_id, agent_id)
            for agent_id in self._agent_ids()
            if private_to_both(self._user_id, agent_id) in made
        ]

    def _current(self, place: BlockPlace) -> Block | None:
        """Return a block as its newest revision has it, after committing an edit of it by hand."""
        workspace = self._refresh(place)
        if workspace is None:
            return None
        commit_edit(workspace, place.path)
        try:
            origin = workspace.file_origins.origin_of(place.path)
        except NotFound:
            return None
        data = workspace.history.read(origin.blob)
        return _block(place, workspace, data, origin.created_at, origin.updated_at)

    def _refresh(self, place: BlockPlace) -> Workspace | None:
        """Return the workspace of a block, with the newest state of the block on any machine.

        Return None if no machine has made it.
        """
        workspace = self.opened(place)
        if workspace is None:
            self._sync_records()  # another machine may have made it
            workspace = self.opened(place)
        if workspace is not None and workspace.edits.remote is not None:
            if (sync := sync_of(workspace)) is not None:
                with suppress(MassDeletion):  # the sync asks about that; one file can be read
                    sync.pull()  # with the history: a stamp is the same everywhere
            workspace.edits.remote.refresh(place.path)
        return workspace

    def _made(self, place: BlockPlace) -> Workspace:
        """Return the workspace of a block. Make it if there is none."""
        workspace = self._workspaces.private(place.workspace_id, create=True)
        if workspace is None:
            raise _no_block(place)
        return workspace


def commit_edit(workspace: Workspace, path: WorkspacePath) -> None:
    """Commit an edit of a file by hand. While a process holds the workspace, its edits are not committed."""
    data: bytes | None = None
    try:
        data = workspace.read(path).data
    except NotFound:
        pass
    except Failure:  # a file that cannot be kept: the newest revision stands
        return
    with suppress(WorkspaceBusy):
        workspace.edits.committed(
            {path: None if data is None else blob_id(data)}, wait_s=READ_WAIT_S
        )


def _judged(place: BlockPlace, workspace: Workspace, before: bytes | None) -> Block | None:
    """Return the block with this present content, which is committed. The caller holds the writer lock."""
    if before is None:
        return None
    try:
        origin = workspace.file_origins.origin_of(place.path)
    except NotFound as error:  # it was deleted by hand here, and the store still has it
        reason = "its newest state is not on this machine yet"
        raise Unavailable(place.path, reason, remedy="try again") from error
    return _block(place, workspace, before, origin.created_at, origin.updated_at)


def _decided(version: Version | None) -> None:
    """Accept every version: the condition is judged with the content. A write with a check is decided in S3
    where several machines share the files."""
    del version


def _send_history(workspace: Workspace) -> None:
    """Send the revision of a write to the store, so that its stamp is known on every machine. The sync
    repeats what fails now."""
    if (sync := sync_of(workspace)) is not None:
        with suppress(Failure):
            sync.push_dirty()


def _object_of(workspace: Workspace, revision: RevisionId, path: WorkspacePath) -> ObjectId:
    found = workspace.history.find(revision, path)
    if found is None:
        raise NotFound("file", path)
    return found


def _block(
    place: BlockPlace, workspace: Workspace, data: bytes, created_at: Stamp, updated_at: Stamp
) -> Block:
    return Block(
        id=block_id(workspace.namespace, place.path),
        type=place.type,
        content=content_of(File(place.path, data).text),
        scope=place.scope,
        agent_id=place.agent_id,
        created_at=created_at,
        updated_at=updated_at,
        version=version_of(data),
    )


def _line(place: BlockPlace, hit: RecallHit) -> BlockLine:
    return BlockLine(place, hit.content, hit.score, hit.line_number, hit.updated_at)


def _no_block(place: BlockPlace) -> NotFound:
    return NotFound("block", place.name, remedy="write it first: it begins with your first write")
