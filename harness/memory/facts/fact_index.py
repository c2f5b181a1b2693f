"""The facts of a workspace at its newest revision, without reading every file each time.

What a file says depends on its bytes alone. So each file is parsed once for each blob, and the result is kept
in the namespace's search database. A process that has read the facts of one revision reads, for a later one,
only the files that differ. Stamps and sources come from the file origins.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from harness.memory.facts.fact import (
    DIRECTORY,
    Fact,
    FactOrder,
    canonical_path,
    fact_id,
    in_order,
    is_fact_path,
)
from harness.memory.facts.fact_file import FactFile, read_fact
from harness.memory.facts.fact_table import FactTable, ParsedFile, attributes_json
from workspaces.errors import Refused
from workspaces.history.file_origin_table import FileOrigin, OriginChanges, OriginMark
from workspaces.history.git.objects import ObjectId
from workspaces.ids import Namespace, version_of
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.revision import RevisionId
from workspaces.tree.conflict_copy import is_conflict
from workspaces.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class FactList:
    """The facts of one revision."""

    revision: RevisionId | None
    by_key: Mapping[str, Fact]
    problems: tuple[Problem, ...]
    """Files that are no facts, and facts in which something is wrong."""
    _orders: dict[FactOrder, Sequence[Fact]] = field(
        default_factory=dict[FactOrder, Sequence[Fact]]
    )
    _by_id: dict[str, Fact] = field(default_factory=dict[str, Fact])

    def ordered(self, order: FactOrder) -> Sequence[Fact]:
        """Return all facts in the order of a list. Callers must not change the result."""
        if order not in self._orders:
            self._orders[order] = in_order(self.by_key.values(), order)
        return self._orders[order]

    def find(self, fact: str) -> Fact | None:
        """Return the fact with this id, or None."""
        if not self._by_id:
            self._by_id.update({one.id: one for one in self.by_key.values()})
        return self._by_id.get(fact)


class FactIndexes:
    """The fact indexes of the workspaces that a process has open. Threads may share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_workspace: WeakKeyDictionary[Workspace, FactIndex] = WeakKeyDictionary()

    def of(self, workspace: Workspace) -> FactIndex:
        with self._lock:
            index = self._by_workspace.get(workspace)
            if index is None:
                index = self._by_workspace[workspace] = FactIndex(workspace)
            return index


class FactIndex:
    """The facts of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._namespace: Namespace = workspace.namespace
        self._history = workspace.history
        self._origins = workspace.file_origins
        self._table = FactTable(workspace.file_origins.file)
        self._lock = threading.Lock()
        self._files: dict[str, tuple[ParsedFile, Fact | None]] = {}
        self._list: FactList | None = None
        self._mark: OriginMark | None = None

    def facts(self) -> FactList:
        """Return the facts of the newest revision."""
        with self._lock:
            if self._list is None or self._list.revision != self._history.tip():
                changes = self._origins.changes(DIRECTORY, self._mark)
                self._mark = None  # a failure below must not leave half of the changes
                self._take(changes)
                self._list, self._mark = self._build(changes.tip), changes.mark
            return self._list

    @property
    def paths(self) -> Sequence[str] | None:
        """Return the paths of the files in the list that was made last; None before the first."""
        with self._lock:
            return None if self._list is None else list(self._files)

    def _take(self, changes: OriginChanges) -> None:
        """Parse the files that differ from those known so far."""
        stored: Mapping[str, ParsedFile] = {}
        if changes.is_whole:
            stored = {path: parsed for path, (parsed, _) in self._files.items()}
            stored = stored or self._table.read()
            self._files = {}
        new_files: list[ParsedFile] = []
        for path, origin in changes.files.items():
            if origin is None or not _is_fact_file(path):
                self._files.pop(path, None)
                continue
            parsed = stored.get(path)
            if parsed is None or parsed.blob != origin.blob:
                parsed = self._parse(path, origin.blob)
                new_files.append(parsed)
            self._files[path] = parsed, self._fact(parsed, origin)
        if changes.is_whole:  # a few changes are left to the next process
            gone = [path for path in stored if path not in self._files]
            if new_files or gone:
                self._table.write(new_files, gone)

    def _parse(self, path: WorkspacePath, blob: ObjectId) -> ParsedFile:
        data = self._history.read(blob)
        said, problem = FactFile("", ""), None
        try:
            said = read_fact(path, data)
        except Refused as refused:
            problem = _reason(refused)
        return ParsedFile(
            path,
            blob,
            version_of(data),
            key=said.key or None,
            value=said.value,
            pinned=said.pinned,
            importance=said.importance,
            attributes=attributes_json(said.attributes),
            is_truncated=said.is_truncated,
            problem=problem or said.problem,
        )

    def _fact(self, parsed: ParsedFile, origin: FileOrigin) -> Fact | None:
        if parsed.key is None:
            return None
        return Fact(
            id=fact_id(self._namespace, parsed.key),
            path=origin.path,
            version=parsed.version,
            key=parsed.key,
            value=parsed.value,
            pinned=parsed.pinned,
            importance=parsed.importance,
            created_at=origin.created_at,
            updated_at=origin.updated_at,
            source=origin.source,
            author=origin.author,
            is_truncated=parsed.is_truncated,
            attributes=parsed.others,
        )

    def _build(self, tip: RevisionId | None) -> FactList:
        """Return the list. Of two files with one key the canonical name counts, else the first by path."""
        by_key: dict[str, Fact] = {}
        problems: list[Problem] = []
        for path in sorted(self._files):
            parsed, fact = self._files[path]
            if parsed.problem is not None:
                problems.append(Problem(path, "fact", parsed.problem))
            if fact is None:
                continue
            other = by_key.get(fact.key)
            if other is None:
                by_key[fact.key] = fact
                continue
            counts, spare = (
                (fact, other) if fact.path == canonical_path(fact.key) else (other, fact)
            )
            by_key[fact.key] = counts
            detail = (
                f"has the key of {counts.path}, which counts: give it another key, or delete it"
            )
            problems.append(Problem(spare.path, "fact", detail))
        return FactList(tip, by_key, tuple(problems))


def _is_fact_file(path: str) -> bool:
    return is_fact_path(path) and not is_conflict(WorkspacePath(path))


def _reason(refused: Refused) -> str:
    return str(refused).removeprefix(f"{refused.field}: ")
