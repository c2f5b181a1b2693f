"""Read the sources of the prompt. The context package, which builds the prompt from them, is pure.

Memory is read from a revision, after manual edits were committed. So the prompt is a function of revisions
that can be named afterwards, whatever happens to the files in the meantime. Contents read from a revision are
cached: to look again costs one read of the newest revision's id.

Two kinds of manual edits are committed early: all of them before the agent can write, and those that the
prompt shows before it is built. The others need not delay the request. So at first MEMORY.md is read and the
notes are checked. If they equal the newest revision, other edits are committed after the request was sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import lru_cache
from hashlib import sha256

from harness.agents.mounts import Mount
from harness.agents.record import AgentConfig
from harness.context.memory_parts import MEMORY, Memory, memory_length, needs_ages
from harness.context.part import DATE, PromptPart, memory_of
from harness.context.prompt import MountView, Sources, prompt_parts
from harness.context.prune import Pruning
from harness.context.snapshot import Moment, SnapshotKey
from harness.memory.blocks.core_blocks import CoreBlock, CoreBlocks, core_parts
from harness.memory.facts.fact_parts import FactMemory, fact_parts
from harness.memory.facts.prompt_facts import PromptFacts
from harness.memory.memory_cache import MemoryCache, newest_first
from harness.messages.model_request import ToolSpec
from harness.runtime.templates import render
from harness.transcripts.session import Session
from workspaces.errors import Busy, Failure, Unavailable
from workspaces.history.history import HEAD, View
from workspaces.paths import WorkspacePath
from workspaces.remote.remote_workspace import RemoteWorkspace
from workspaces.revision import RevisionId
from workspaces.tree.merge_marks import MergeMark, marks_since
from workspaces.workspace.workspace import Workspace

_ASCII = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))

ViewOf = Callable[[Mount], View]

PROMPTS_KEPT = 64
"""Prompts to cache for the turns of a process. Turns build them from the same sources again and again, and a
prompt is as long as its sources."""

SETTLE_WAIT_S = 1.0
"""Seconds to wait for a workspace's writer lock. A write holds it for milliseconds. A command may hold it for
minutes, but has committed the manual edits at its start."""


def newest(mount: Mount) -> View:
    """Return the view of all revisions, by any author."""
    del mount
    return HEAD


@dataclass(frozen=True, slots=True)
class _MountMemory:
    """The memory of a mount, as of a revision."""

    revision: RevisionId | None
    memory: Memory | None
    known: set[RevisionId] = field(default_factory=set[RevisionId], compare=False)
    """Revisions that are ancestors of this one."""

    @property
    def is_unavailable(self) -> bool:
        return self.memory is not None and self.memory.unavailable is not None

    def has_lost(self, revision: RevisionId, workspace: Workspace | RemoteWorkspace) -> bool:
        """Return True if a shown revision is no longer an ancestor.

        Return False for memory that is unavailable, or that is read without its history.
        """
        is_distant = isinstance(workspace, RemoteWorkspace)
        if is_distant or self.is_unavailable or revision in self.known:
            return False
        if not workspace.history.holds(revision):
            return True
        self.known.add(revision)
        return False


class PromptSources:
    """The sources of an agent's prompt at each moment of one turn."""

    def __init__(
        self,
        config: AgentConfig,
        mounts: Sequence[Mount],
        *,
        model: str,
        memories: MemoryCache | None = None,
        policy: str = "",
        blocks: CoreBlocks | None = None,
        facts: PromptFacts | None = None,
        view_of: ViewOf = newest,
    ) -> None:
        """Take the agent's configuration and its mounts.

        `memories` caches the memory of earlier turns; with it, most manual edits may wait until `settle` is
        called. `policy` is the turn's memory policy, in a comparable form, and `blocks` are the core blocks
        that it shows. `facts` reads the facts of the agent and of the mounts.
        """
        self.model = model
        self.uncommitted: tuple[str, ...] = ()
        """Reasons why manual edits could not be committed."""
        self._has_cache = memories is not None
        self._uncommitted_workspaces: list[tuple[str, Workspace]] = []
        self._memories = memories or MemoryCache()
        self._instructions = config.system
        self._mounts = tuple(mounts)
        self._policy = policy
        self._blocks = blocks
        self._core: tuple[CoreBlock, ...] = ()
        self._facts = facts
        self._fact_memories: tuple[FactMemory, ...] = ()
        self._views = {mount.name: view_of(mount) for mount in mounts}
        self._memory_max = config.session.memory_characters_max
        self._pruning = config.session.as_pruned
        compaction = config.session.compaction
        self.characters_max = compaction.max_context_length if compaction.enabled else None
        self._memory_by_mount: dict[str, _MountMemory] = {}
        self._parts_key: tuple[date, str | None] | None = None
        self._parts: tuple[PromptPart, ...] = ()

    def parts(self, day: date, summary: str | None = None) -> tuple[PromptPart, ...]:
        """Return the parts of a snapshot taken now; `summary` covers the messages before the window."""
        moved = [self._read_again(mount) for mount in self._mounts]
        moved.append(self._read_blocks_again())
        moved.append(self._read_facts_again())
        if any(moved) or (day, summary) != self._parts_key:
            self._parts = _parts_of(self._sources(day, summary))
            self._parts_key = (day, summary)
        return self._parts

    @property
    def has_uncommitted_edits(self) -> bool:
        """True if workspaces wait for `commit_remaining_edits`."""
        return bool(self._uncommitted_workspaces)

    def commit_remaining_edits(self) -> None:
        """Commit the manual edits for which the first prompt did not wait.

        A process that holds a workspace longer than the wait has committed them when it began.
        """
        waiting, self._uncommitted_workspaces = self._uncommitted_workspaces, []
        for name, workspace in waiting:
            try:
                with suppress(Busy):
                    workspace.edits.commit(wait_s=SETTLE_WAIT_S)
            except Failure as failure:
                reason = str(failure).replace(workspace.namespace, name)
                self.uncommitted = (*self.uncommitted, f"{name}: {reason}")

    def pruning_for(self, *, prune_all: bool) -> Pruning | None:
        """Return the pruning of a request; None if everything is shown."""
        if prune_all:
            return replace(self._pruning or Pruning(), prune_all=True)
        return self._pruning

    def moment(
        self,
        at: datetime,
        entry: int,
        *,
        tools: tuple[ToolSpec, ...],
        session: Session,
        shown: Mapping[str, RevisionId],
        summary: str | None = None,
    ) -> Moment:
        """Return the state of all sources at a request whose newest message is `entry`.

        `shown` are the revisions of memory that the model has seen, by the sources of their parts.
        """
        parts = self.parts(at.date(), summary)
        trusted = tuple(part.text for part in parts if part.is_trusted and part.source != DATE)
        mounts = [_access(mount) for mount in self._mounts]
        offered = tuple(tool.ascii_text for tool in tools)
        terms = SnapshotKey(
            reset=session.id,
            compacted=session.window_key,
            mounts=_digest(mounts),
            policy=self._policy,
            gate=_digest(self._views),
            configuration=_configuration(self.model, self._memory_max, trusted, offered),
        )
        return Moment(
            at=at,
            entry=entry,
            terms=terms,
            parts=parts,
            tools=tools,
            is_erased=self._is_erased(shown),
            merges=self._merge_marks(shown),
        )

    def _read_again(self, mount: Mount) -> bool:
        """Read a mount again. Return True if its memory differs from before."""
        before = self._memory_by_mount.get(mount.name)
        is_first = before is None or before.is_unavailable
        if before is not None and mount.is_distant:
            return False  # read once in a turn, like a copy that is pulled before the turn
        try:
            memory = self._memory_of(mount, None if is_first else before, commit=is_first)
        except Failure as failure:
            reason = str(failure).replace(mount.namespace, mount.name)  # a model knows no namespace
            memory = _MountMemory(None, Memory(mount.name, None, unavailable=reason))
        self._memory_by_mount[mount.name] = memory
        return memory != before

    def _read_blocks_again(self) -> bool:
        """Read the core blocks again. Return True if one of them differs from before."""
        before = self._core
        self._core = () if self._blocks is None else self._blocks.read()
        return self._core != before

    def _read_facts_again(self) -> bool:
        """Read the facts again. Return True if they differ from before."""
        before = self._fact_memories
        if self._facts is not None:
            # a mount that cannot be read is named once
            self._fact_memories = tuple(
                one
                for one in self._facts.read(self._memory_max)
                if one.unavailable is None or not self._is_unavailable(one.mount)
            )
        return self._fact_memories != before

    def _is_unavailable(self, mount: str) -> bool:
        memory = self._memory_by_mount.get(mount)
        return memory is not None and memory.is_unavailable

    def _memory_of(
        self, mount: Mount, before: _MountMemory | None, *, commit: bool
    ) -> _MountMemory:
        """Return the mount's memory; `before` itself if it is unchanged."""
        view, workspace = self._views[mount.name], mount.workspace
        if isinstance(workspace, RemoteWorkspace):
            if view != HEAD:
                raise Unavailable(
                    "S3", "a workspace that is read in place shows its newest state only"
                )
            from harness.memory.remote_memory import remote_memory

            memory = remote_memory(mount.name, workspace)
            return _MountMemory(memory.revision if memory else None, memory)
        revision = self._revision(mount.name, workspace, view, commit=commit)
        if before is not None and revision == before.revision:
            return before
        return _MountMemory(revision, self._memories.at(mount.name, workspace, revision))

    def _revision(
        self, mount: str, workspace: Workspace, view: View, *, commit: bool
    ) -> RevisionId | None:
        """Return the revision that a view shows.

        Edits that a person makes while another process holds the workspace wait until the next time.
        """
        if view != HEAD:
            return workspace.history.resolve(view)
        if commit:
            if not (self._has_cache and self._is_fresh(mount, workspace)):
                with suppress(Busy):
                    return workspace.edits.commit()
            else:
                self._uncommitted_workspaces.append((mount, workspace))
        return workspace.history.tip()

    def _is_fresh(self, mount: str, workspace: Workspace) -> bool:
        """Return True if nothing that the prompt shows has a manual edit, as far as stats can tell."""
        if not self._memories.is_fresh(mount, workspace):
            return False
        return self._facts is None or self._facts.is_fresh(workspace)

    def _sources(self, day: date, summary: str | None) -> Sources:
        default = next((mount for mount in self._mounts if not mount.is_private), None)
        read = [self._memory_by_mount[mount.name].memory for mount in self._mounts]
        memories = [memory for memory in read if memory is not None]
        blocks, room = core_parts(self._core, self._memory_max, render)
        is_named = sum(not mount.is_private for mount in self._mounts) > 1
        facts, room = fact_parts(
            self._fact_memories, memory_length(memories), room, render, is_named=is_named
        )
        if needs_ages(memories, room):
            by_name = {mount.name: mount for mount in self._mounts}
            memories = [_with_ages(by_name[memory.mount], memory) for memory in memories]
        return Sources(
            self._instructions,
            tuple(_view(mount, is_default=mount is default) for mount in self._mounts),
            tuple(memories),
            day,
            room,
            summary=summary,
            blocks=blocks,
            facts=facts,
        )

    def _merge_marks(self, shown: Mapping[str, RevisionId]) -> dict[str, list[MergeMark]]:
        """Return the places that sync has merged since the shown revision, in workspaces with newer
        revisions."""
        marks: dict[str, list[MergeMark]] = {}
        for mount in self._mounts:
            source, workspace = memory_of(mount.name), mount.workspace
            before, now = shown.get(source), self._memory_by_mount[mount.name].revision
            if isinstance(workspace, RemoteWorkspace) or now is None or before in {None, now}:
                continue
            with suppress(Failure):  # an addition only: the delta names the changes without it too
                marks[source] = marks_since(workspace.history, now, before)
        return marks if self._blocks is None else {**marks, **self._blocks.merge_marks(shown)}

    def _is_erased(self, shown: Mapping[str, RevisionId]) -> bool:
        """Return True if a workspace's history no longer holds a revision that was shown."""
        if self._blocks is not None and self._blocks.is_erased(shown):
            return True
        if self._facts is not None and self._facts.is_erased(shown):
            return True
        return any(
            self._memory_by_mount[mount.name].has_lost(revision, mount.workspace)
            for mount in self._mounts
            if (revision := shown.get(memory_of(mount.name))) is not None
        )


@lru_cache(maxsize=PROMPTS_KEPT)
def _parts_of(sources: Sources) -> tuple[PromptPart, ...]:
    return prompt_parts(sources, render)


@lru_cache(maxsize=PROMPTS_KEPT)
def _configuration(
    model: str, memory_max: int, trusted: tuple[str, ...], offered: tuple[str, ...]
) -> str:
    """Return a digest equal to that of the JSON of all arguments, tools included."""
    encoded = _ASCII.encode([model, memory_max, trusted])
    return _hash(f"{encoded[:-1]},[{','.join(offered)}]]")


def _access(mount: Mount) -> list[object]:
    """Return the name under which a namespace is mounted, and the kind of access."""
    access: list[object] = [mount.name, mount.namespace, mount.is_writable]
    return [*access, "distant"] if mount.is_distant else access


def _with_ages(mount: Mount, memory: Memory) -> Memory:
    """Add the ages of its lines to a memory. Without ages, a lower line counts as the newer one."""
    workspace = mount.workspace
    if memory.revision is None or isinstance(workspace, RemoteWorkspace):
        return memory
    with suppress(Failure):
        by_path = {note.path: note for note in memory.notes}
        paths = newest_first(workspace, [WorkspacePath(path) for path in by_path])
        ages = tuple(workspace.origins.ages(MEMORY, memory.revision))
        return replace(memory, ages=ages, notes=tuple(by_path[path] for path in paths))
    return memory


def _view(mount: Mount, *, is_default: bool) -> MountView:
    record = mount.workspace.record
    return MountView(
        mount.name,
        mount.is_writable,
        record.description or "",
        record.config.harness.enabled,
        is_default,
    )


def _digest(value: object) -> str:
    return _hash(_ASCII.encode(value))


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
