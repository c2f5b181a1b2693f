"""Gathering what the prompt is made of: the reading half of the context, which itself is pure.

Memory is read from a revision, after what a person changed by hand became one: so the prompt is a
function of revisions that can be named afterwards, whatever happens to the files meanwhile. What was read
from a revision is kept: to look again costs asking which revision is the newest.

A person's changes become revisions before the agent can write, and those that the prompt shows before it
is made; the others need not keep the provider waiting. So at first MEMORY.md is read and the notes are
glanced at: if they are what the newest revision says, the rest is settled after the request was sent.
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
from harness.context.memory_parts import MEMORY, Memory, needs_ages
from harness.context.part import DATE, PromptPart, memory_of
from harness.context.prompt import MountView, Sources, prompt_parts
from harness.context.prune import Pruning
from harness.context.snapshot import Moment, SnapshotKey
from harness.memory.memory_cache import MemoryCache, newest_first
from harness.memory.remote_memory import remote_memory
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
"""Of the turns of a process: they are put together from the same again and again, and are as long as what
they are made of."""

SETTLE_WAIT_S = 1.0
"""A write holds a workspace for milliseconds. A command may hold it for minutes, and has settled what
people changed when it began."""


def newest(mount: Mount) -> View:
    """Everything that is there, whoever wrote it."""
    del mount
    return HEAD


@dataclass(frozen=True, slots=True)
class _Found:
    """What a mount remembers, as of a revision."""

    revision: RevisionId | None
    memory: Memory | None
    known: set[RevisionId] = field(default_factory=set[RevisionId], compare=False)
    """Revisions that this one has grown from."""

    @property
    def is_unavailable(self) -> bool:
        return self.memory is not None and self.memory.unavailable is not None

    def has_lost(self, revision: RevisionId, workspace: Workspace | RemoteWorkspace) -> bool:
        """Whether a revision that was shown is none of those. Not asked of what cannot be read, nor of
        what is read without its history."""
        is_distant = isinstance(workspace, RemoteWorkspace)
        if is_distant or self.is_unavailable or revision in self.known:
            return False
        if not workspace.history.holds(revision):
            return True
        self.known.add(revision)
        return False


class PromptSources:
    """What an agent's prompt is made of, as of each moment that it is asked for. For one turn."""

    def __init__(
        self,
        config: AgentConfig,
        mounts: Sequence[Mount],
        *,
        model: str,
        memories: MemoryCache | None = None,
        policy: str = "",
        view_of: ViewOf = newest,
    ) -> None:
        """`memories`: what was read for the turns before, so that most of what is to be settled may wait
        until `settle` is called; `policy`: what was asked about memory for this turn, in a form that can be
        compared."""
        self.model = model
        self.unsettled: tuple[str, ...] = ()
        """Why what people changed by hand did not become revisions, where it did not."""
        self._may_wait = memories is not None
        self._owed: list[tuple[str, Workspace]] = []
        self._memories = memories or MemoryCache()
        self._instructions = config.system
        self._mounts = tuple(mounts)
        self._policy = policy
        self._views = {mount.name: view_of(mount) for mount in mounts}
        self._memory_max = config.session.memory_characters_max
        self._pruning = config.session.as_pruned
        compaction = config.session.compaction
        self.characters_max = compaction.max_context_length if compaction.enabled else None
        self._found: dict[str, _Found] = {}
        self._seen_at: tuple[date, str | None] | None = None
        self._parts: tuple[PromptPart, ...] = ()

    def parts(self, day: date, summary: str | None = None) -> tuple[PromptPart, ...]:
        """Those that a snapshot taken now would hold; `summary`: of what was said before the window."""
        moved = [self._look(mount) for mount in self._mounts]
        if any(moved) or (day, summary) != self._seen_at:
            self._parts = _parts_of(self._sources(day, summary))
            self._seen_at = (day, summary)
        return self._parts

    @property
    def owes(self) -> bool:
        """Whether something waits for `settle`."""
        return bool(self._owed)

    def settle(self) -> None:
        """What people changed by hand beside memory becomes revisions now, where the first prompt did not
        wait for it. Whoever holds the workspace longer has done so when they began."""
        owed, self._owed = self._owed, []
        for name, workspace in owed:
            try:
                with suppress(Busy):
                    workspace.commit_edits(wait_s=SETTLE_WAIT_S)
            except Failure as failure:
                reason = str(failure).replace(workspace.namespace, name)
                self.unsettled = (*self.unsettled, f"{name}: {reason}")

    def pruning_for(self, *, prune_all: bool) -> Pruning | None:
        """None: everything is shown."""
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
        """How things are at a request whose newest message is `entry`, to whoever was `shown` these
        revisions of memory, each by the source of its part."""
        parts = self.parts(at.date(), summary)
        trusted = tuple(part.text for part in parts if part.is_trusted and part.source != DATE)
        mounts = [_access(mount) for mount in self._mounts]
        offered = tuple(tool.ascii_text for tool in tools)
        terms = SnapshotKey(
            reset=session.id,
            compacted=str(session.window_from),
            mounts=_digest(mounts),
            policy=self._policy,
            gate=_digest(self._views),
            configuration=_configuration(self.model, self._memory_max, trusted, offered),
        )
        return Moment(at, entry, terms, parts, tools, self._is_erased(shown), self._seams(shown))

    def _look(self, mount: Mount) -> bool:
        """Whether there is something else to be seen than before."""
        before = self._found.get(mount.name)
        is_first = before is None or before.is_unavailable
        if before is not None and mount.is_distant:
            return False  # like a copy, which is pulled before the turn and not between its steps
        try:
            found = self._remembered(mount, None if is_first else before, settle=is_first)
        except Failure as failure:
            reason = str(failure).replace(mount.namespace, mount.name)  # a model knows no hash
            found = _Found(None, Memory(mount.name, None, unavailable=reason))
        self._found[mount.name] = found
        return found != before

    def _remembered(self, mount: Mount, before: _Found | None, *, settle: bool) -> _Found:
        """`before`, if that is how it still is."""
        view, workspace = self._views[mount.name], mount.workspace
        if isinstance(workspace, RemoteWorkspace):
            if view != HEAD:
                raise Unavailable(
                    "S3", "a workspace that is read there shows its newest state only"
                )
            memory = remote_memory(mount.name, workspace)
            return _Found(memory.revision if memory else None, memory)
        revision = self._revision(mount.name, workspace, view, settle=settle)
        if before is not None and revision == before.revision:
            return before
        return _Found(revision, self._memories.at(mount.name, workspace, revision))

    def _revision(
        self, mount: str, workspace: Workspace, view: View, *, settle: bool
    ) -> RevisionId | None:
        """The one that a view shows. What a person is changing by hand while somebody else holds the
        workspace is left for the next time."""
        if view != HEAD:
            return workspace.history.resolve(view)
        if settle:
            if not (self._may_wait and self._memories.is_fresh(mount, workspace)):
                with suppress(Busy):
                    return workspace.commit_edits()
            else:
                self._owed.append((mount, workspace))
        return workspace.tip()

    def _sources(self, day: date, summary: str | None) -> Sources:
        default = next((mount for mount in self._mounts if not mount.is_private), None)
        found = [self._found[mount.name].memory for mount in self._mounts]
        memories = [memory for memory in found if memory is not None]
        if needs_ages(memories, self._memory_max):
            by_name = {mount.name: mount for mount in self._mounts}
            memories = [_with_ages(by_name[memory.mount], memory) for memory in memories]
        return Sources(
            self._instructions,
            tuple(_view(mount, is_default=mount is default) for mount in self._mounts),
            tuple(memories),
            day,
            self._memory_max,
            summary,
        )

    def _seams(self, shown: Mapping[str, RevisionId]) -> dict[str, list[MergeMark]]:
        """Where sync has merged since then, in workspaces that have grown."""
        found: dict[str, list[MergeMark]] = {}
        for mount in self._mounts:
            source, workspace = memory_of(mount.name), mount.workspace
            before, now = shown.get(source), self._found[mount.name].revision
            if isinstance(workspace, RemoteWorkspace) or now is None or before in {None, now}:
                continue
            with suppress(Failure):  # they are an addition: what changed is told without them too
                found[source] = marks_since(workspace.history, now, before)
        return found

    def _is_erased(self, shown: Mapping[str, RevisionId]) -> bool:
        """A revision that was shown, and that its workspace's history does not know any more."""
        return any(
            self._found[mount.name].has_lost(revision, mount.workspace)
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
    """As the digest of the JSON of all of it, tools too."""
    told = _ASCII.encode([model, memory_max, trusted])
    return _hash(f"{told[:-1]},[{','.join(offered)}]]")


def _access(mount: Mount) -> list[object]:
    """Under which name what is reached, and how."""
    access: list[object] = [mount.name, mount.namespace, mount.is_writable]
    return [*access, "distant"] if mount.is_distant else access


def _with_ages(mount: Mount, memory: Memory) -> Memory:
    """Without ages, should they be unavailable: then the lower line counts as the newer."""
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
