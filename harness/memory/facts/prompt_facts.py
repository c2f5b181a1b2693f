"""Read the facts that a prompt shows: of each mounted workspace, and of the agent if its memory is on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from harness.context.part import facts_of
from harness.memory.facts.fact import DIRECTORY, Fact, fact_id, is_fact_path
from harness.memory.facts.fact_file import FactFile, read_fact
from harness.memory.facts.fact_index import FactIndexes
from harness.memory.facts.fact_parts import AGENT, ROWS_MAX, FactMemory, FactRow
from workspaces.errors import Busy, Failure, Refused
from workspaces.history.history import HEAD, View
from workspaces.paths import WorkspacePath
from workspaces.remote.remote_workspace import RemoteWorkspace
from workspaces.revision import RevisionId
from workspaces.tree.conflict_copy import is_conflict
from workspaces.workspace.workspace import Workspace

REMOTE_FILES_MAX = 100
"""Fact files that are read of a workspace in S3: some seconds of requests, sixteen at a time."""

ROW_CHARACTERS_MIN = 10
"""No line of a prompt is shorter. So no prompt shows more facts than its characters divided by this."""

EDITS_WAIT_S = 0.1

HidesFact = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class MountedFacts:
    """A mounted workspace whose facts a prompt shows."""

    name: str
    workspace: Workspace | RemoteWorkspace
    view: View = HEAD


class PromptFacts:
    """The facts in an agent's prompt, at each moment of one turn."""

    def __init__(
        self,
        indexes: FactIndexes,
        agents: Sequence[Workspace],
        mounts: Sequence[MountedFacts],
        hides: HidesFact | None = None,
    ) -> None:
        """`agents` are the workspaces of the agent and of its user with it, if the agent's memory is on.
        `hides` returns True for the key of an agent's fact that is shown elsewhere."""
        self._hides = hides
        self._indexes = indexes
        self._agents = tuple(agents)
        self._mounts = tuple(mounts)
        self._remote: dict[str, FactMemory] = {}
        """What was read in S3: once in a turn."""
        self._is_committed = False

    def is_fresh(self, workspace: Workspace) -> bool:
        """Return True if no fact has a manual edit since the newest revision, as far as stats can tell."""
        paths = self._indexes.of(workspace).paths
        return paths is not None and workspace.edits.is_clean(_ANY_FACT, DIRECTORY, paths)

    def read(self, characters_max: int) -> tuple[FactMemory, ...]:
        """Return the facts as they are now, the agent's first. Workspaces without facts are left out."""
        rows_max = characters_max // ROW_CHARACTERS_MIN
        found = [self._agents_facts(rows_max), *(self._mounts_facts(one) for one in self._mounts)]
        return tuple(one for one in found if one.count or one.unread or one.unavailable)

    def is_erased(self, shown: Mapping[str, RevisionId]) -> bool:
        """Return True if a workspace's history no longer holds a revision of facts that was shown."""
        for mount in self._mounts:
            revision = shown.get(facts_of(mount.name))
            if revision is None or isinstance(mount.workspace, RemoteWorkspace):
                continue
            if not mount.workspace.history.holds(revision):
                return True
        return False

    def _agents_facts(self, rows_max: int) -> FactMemory:
        rows: list[FactRow] = []
        count, revision = 0, None
        try:
            for workspace in self._agents:
                if not self._is_committed:
                    with suppress(Busy):
                        workspace.edits.commit(wait_s=EDITS_WAIT_S)
                facts = self._indexes.of(workspace).facts()
                ordered = self._shown(facts.ordered("agent"))
                rows += map(_row, ordered[: rows_max - len(rows)])
                count += len(ordered)
                revision = revision or facts.revision
        except Failure as failure:
            return FactMemory(AGENT, unavailable=_reason(failure, self._agents, AGENT))
        self._is_committed = True
        return FactMemory(AGENT, tuple(rows), count, revision)

    def _shown(self, facts: Sequence[Fact]) -> Sequence[Fact]:
        hides = self._hides
        return facts if hides is None else [fact for fact in facts if not hides(fact.key)]

    def _mounts_facts(self, mount: MountedFacts) -> FactMemory:
        workspace = mount.workspace
        try:
            if isinstance(workspace, RemoteWorkspace):
                if mount.name not in self._remote:
                    self._remote[mount.name] = _remote_facts(mount.name, workspace)
                return self._remote[mount.name]
            if mount.view != HEAD:
                return _facts_at(mount.name, workspace, mount.view)
            facts = self._indexes.of(workspace).facts()
            rows = tuple(map(_row, facts.ordered("workspace")[:ROWS_MAX]))
            return FactMemory(mount.name, rows, len(facts.by_key), facts.revision)
        except Failure as failure:
            return FactMemory(mount.name, unavailable=_reason(failure, [workspace], mount.name))


_ANY_FACT = WorkspacePath("MEMORY.md")
"""A file that `is_clean` compares as well."""


def _row(fact: Fact) -> FactRow:
    return FactRow(fact.id, fact.key, fact.value)


def _facts_at(name: str, workspace: Workspace, view: View) -> FactMemory:
    """Return the facts of an earlier revision."""
    revision = workspace.history.resolve(view)
    blobs = workspace.history.below(revision, DIRECTORY)
    files = ((path, workspace.history.read(blob)) for path, blob in blobs.items())
    rows = _rows(workspace, files)
    return FactMemory(name, rows[:ROWS_MAX], len(rows), revision)


def _remote_facts(name: str, workspace: RemoteWorkspace) -> FactMemory:
    """Return the facts of a workspace that is read in S3. The version of the newest file stands for a
    revision."""
    files = workspace.find(DIRECTORY, is_fact_path)
    files.sort(key=lambda stat: (-(stat.modified or 0), stat.name))
    taken = files[:REMOTE_FILES_MAX]
    glances = workspace.glance(taken)
    texts = [
        (WorkspacePath(stat.name), data)
        for stat, data in zip(taken, glances, strict=True)
        if data is not None
    ]
    rows = _rows(workspace, texts)
    return FactMemory(name, rows[:ROWS_MAX], len(rows), unread=len(files) - len(texts))


def _rows(
    workspace: Workspace | RemoteWorkspace, files: Iterable[tuple[WorkspacePath, bytes]]
) -> tuple[FactRow, ...]:
    """Return the rows of these files: pinned first, then by importance. Files that are no facts are left
    out."""
    found: dict[str, FactFile] = {}
    for path, data in files:
        if not is_fact_path(path) or is_conflict(path):
            continue
        with suppress(Refused):
            fact = read_fact(path, data)
            found.setdefault(fact.key, fact)
    ordered = sorted(found.values(), key=lambda fact: (not fact.pinned, -fact.importance))
    return tuple(
        FactRow(fact_id(workspace.namespace, fact.key), fact.key, fact.value) for fact in ordered
    )


def _reason(failure: Failure, workspaces: Sequence[Workspace | RemoteWorkspace], name: str) -> str:
    """Return the reason without namespaces, which a model does not know."""
    reason = str(failure)
    for workspace in workspaces:
        reason = reason.replace(workspace.namespace, name)
    return reason
