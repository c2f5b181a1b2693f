"""The facts of one workspace as rows: list, put, change, delete. Every write is a write of the fact's file.

Two writers meet as they do at files: a write carries the version that was read, and is planned anew on the
version that came first. So two keys, or a person's edit and a row's change, are both kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar

from harness.memory.facts.fact import (
    DIRECTORY,
    Fact,
    FactOrder,
    FactScopeName,
    canonical_path,
    check_importance,
    check_key,
    check_value,
    hashed_path,
    is_fact_id,
    is_fact_path,
)
from harness.memory.facts.fact_file import FactFile, read_fact, write_fact
from harness.memory.facts.fact_index import FactIndexes, FactList
from harness.memory.facts.fact_secrets import refuse_secrets
from harness.memory.similar import Match, Similar
from workspaces.durability import HERE, Durable
from workspaces.errors import AlreadyExists, Busy, Conflict, Failure, NotFound, Refused
from workspaces.history.revert import Files
from workspaces.history.source import Source, source_by
from workspaces.ids import AgentId, Version, WorkspaceId, version_of
from workspaces.paths import WorkspacePath, folded
from workspaces.problem import Problem
from workspaces.revision import SYNC, Author, Revision
from workspaces.storage.contention import until_written
from workspaces.workspace.decided_files import VersionCheck
from workspaces.workspace.workspace import Workspace

EDITS_WAIT_S = 0.1
"""Seconds that a reader waits for the writer lock, to commit manual edits first. A write holds it for
milliseconds; a command holds it for longer, and has committed the edits before it began."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FactScope:
    """Whose facts these are."""

    name: FactScopeName
    workspace_id: WorkspaceId
    agent_id: AgentId | None = None

    @property
    def order(self) -> FactOrder:
        return self.name


@dataclass(frozen=True, slots=True)
class FactWritten:
    fact: Fact
    is_new: bool
    durable: Durable = HERE


@dataclass(frozen=True, slots=True)
class FactChange:
    """The change of a fact. None leaves a part as it is."""

    value: str | None = None
    pinned: bool | None = None
    importance: int | None = None
    adopts: bool = False
    """The caller says that the source is manual, and so takes over what a model wrote."""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further keys of the front matter to set; None removes one."""


@dataclass(frozen=True, slots=True)
class FactEntry:
    """A fact to set among others. None leaves the pin or the importance of a fact that exists."""

    key: str
    value: str
    pinned: bool | None = None
    importance: int | None = None


def check_entry(entry: FactEntry) -> FactEntry:
    """Return the entry as it is stored.

    Raises: Refused, OverLimit.
    """
    value, importance = check_value(entry.value), _importance(entry.importance)
    return replace(entry, key=check_key(entry.key), value=value, importance=importance)


FactFate = Literal["new", "changed", "same", "kept"]
"""What became of an entry. Kept: the fact is a person's, and the entry is a model's."""


class _Moved(Exception):
    """The file does not hold the fact any more, or another one than was read."""


class Facts:
    """The facts of one workspace. A private workspace is made when its first fact is written."""

    def __init__(
        self,
        scope: FactScope,
        open_workspace: Callable[[bool], Workspace | None],
        indexes: FactIndexes,
        author: Author,
        *,
        may_hold_secrets: bool = False,
    ) -> None:
        """`open_workspace` returns the workspace. Called with False, it returns None if there is none yet.
        `author` is the author of writes that name none."""
        self.scope = scope
        self._may_hold_secrets = may_hold_secrets
        self._open = open_workspace
        self._indexes = indexes
        self._author = author

    def list(self, *, source: Source | None = None, pinned: bool | None = None) -> list[Fact]:
        """Return the facts, pinned ones first, then by importance."""
        return self.list_with_problems(source=source, pinned=pinned)[0]

    def list_with_problems(
        self, *, source: Source | None = None, pinned: bool | None = None
    ) -> tuple[list[Fact], Sequence[Problem]]:
        """Return the facts as `list` does, and the problems, from one look at the files."""
        facts = self._read()
        if facts is None:
            return [], ()
        found = [
            fact
            for fact in facts.ordered(self.scope.order)
            if source in (None, fact.source) and pinned in (None, fact.pinned)
        ]
        return found, facts.problems

    def problems(self) -> Sequence[Problem]:
        """Return the files in `facts/` that are no facts, or in which something is wrong."""
        facts = self._read()
        return () if facts is None else facts.problems

    def get(self, reference: str) -> Fact:
        """Return the fact with this id or key.

        Raises: NotFound.
        """
        facts = self._read()
        return _found(facts, reference)

    def put(
        self,
        key: str,
        value: str,
        *,
        pinned: bool | None = None,
        importance: int | None = None,
        attributes: Mapping[str, Any] | None = None,
        by: Author | None = None,
        check: VersionCheck | None = None,
    ) -> FactWritten:
        """Set the fact with this key. Without `pinned` or `importance` a fact that exists keeps its own. A
        person who sets a fact that a model wrote takes it over. `attributes` are further keys of the front
        matter to set; None removes one.

        Raises: Refused, OverLimit; WorkspaceBusy while a command holds the workspace.
        """
        check_key(key)
        value = self._checked(key, value)
        change = FactChange(
            value, pinned, _importance(importance), adopts=True, attributes=attributes or {}
        )
        by = by or self._author

        def put(facts: FactList, workspace: Workspace) -> FactWritten:
            known = facts.by_key.get(key)
            path = known.path if known is not None else _free_path(workspace, key)
            return self._edit(workspace, path, _Edit(key, change, may_create=True), by, check)

        return self._repeat(key, put, create=True)

    def put_all(
        self, entries: Sequence[FactEntry], *, by: Author, dry_run: bool = False
    ) -> Sequence[FactFate]:
        """Set facts with different keys as one revision, and say what became of each. Values of a writer who
        is no person leave a person's facts as they are; their pins and importances are a second revision, by
        the author of this view.

        Raises: Refused or OverLimit for an entry that is no fact, before anything is written; WorkspaceBusy.
        """
        checked = [check_entry(entry) for entry in entries]
        for entry in checked:
            self._refuse_secrets(entry.key, entry.value, f"value of {entry.key}")
        is_person = source_by(by.source) == "manual"
        workspace = self._open(not dry_run)
        if workspace is None:  # nothing is there, and a trial makes nothing
            return ["new" for _ in checked]

        @until_written("the facts", lost=(_Moved, AlreadyExists))
        def write() -> Sequence[FactFate]:
            facts = self._committed(workspace)
            batch = _Batch(facts, workspace, checked, keeps_manual=not is_person)
            fates = batch.fates()
            if not dry_run:
                workspace.change(list(batch.edits), batch.content, by=by)
            return fates

        fates = write()
        if dry_run:
            return fates
        written = [entry for entry, fate in zip(checked, fates, strict=True) if fate != "kept"]
        for entry in written:
            if is_person:
                self._adopt(workspace, entry.key, by)
        if not is_person:
            self._weigh(workspace, written)
        return fates

    def _adopt(self, workspace: Workspace, key: str, by: Author) -> None:
        """Make a fact a person's that a model wrote and that already says what the person says."""
        fact = self._indexes.of(workspace).facts().by_key.get(key)
        if fact is not None and fact.source != "manual":
            with suppress(Conflict, NotFound):  # somebody has just changed it, and stands for that
                workspace.adopt(fact.path, by=by, expect=fact.version)

    @until_written("the facts", lost=(_Moved,))
    def _weigh(self, workspace: Workspace, entries: Sequence[FactEntry]) -> None:
        """Set pins and importances, which only a person sets."""
        facts = self._committed(workspace)
        edits = {
            known.path: _Edit(entry.key, FactChange(None, entry.pinned, entry.importance))
            for entry in entries
            if (known := facts.by_key.get(entry.key)) is not None
        }
        workspace.change(list(edits), partial(_contents, edits), by=self._author)

    def change(
        self,
        reference: str,
        change: FactChange,
        *,
        by: Author | None = None,
        check: VersionCheck | None = None,
    ) -> FactWritten:
        """Change the fact with this id or key.

        Raises: NotFound; Conflict if a model wrote the value and the caller does not take it over; Refused,
        OverLimit, WorkspaceBusy.
        """
        value = None if change.value is None else self._checked("", change.value)
        change = replace(change, value=value, importance=_importance(change.importance))
        by = by or self._author

        def change_now(facts: FactList, workspace: Workspace) -> FactWritten:
            known = _found(facts, reference)
            is_read_only = known.source != "manual" and source_by(by.source) == "manual"
            if change.value is not None and is_read_only and not change.adopts:
                if check is not None:
                    check(known.version)
                raise ReadOnlyFact(known)
            # the source above belongs to this version
            seen = known.version if change.value is not None else None
            edit = _Edit(known.key, change, seen=seen)
            return self._edit(workspace, known.path, edit, by, check)

        return self._repeat(reference, change_now)

    def delete(
        self, reference: str, *, by: Author | None = None, check: VersionCheck | None = None
    ) -> Durable:
        """Delete the fact with this id or key. Its last version stays in the history.

        Raises: NotFound, WorkspaceBusy.
        """

        def delete(facts: FactList, workspace: Workspace) -> Durable:
            known = _found(facts, reference)

            def remove(before: bytes | None) -> None:
                if before is None or _read(known.path, before).key != known.key:
                    raise _Moved(known.path)

            author = by or self._author
            return workspace.decided.edit(known.path, remove, by=author, check=check).durable

        return self._repeat(reference, delete)

    def history(self, reference: str, *, limit: int = 50) -> Sequence[Revision]:
        """Return the revisions of a fact's file, newest first.

        Raises: NotFound.
        """
        workspace = self._open(False)
        fact = self.get(reference)
        return [] if workspace is None else workspace.log(fact.path, limit=limit)

    def similar(self, text: str) -> Sequence[Match[Fact]]:
        """Return the facts whose values say nearly the same words, the most similar first."""
        index: Similar[Fact] = Similar()
        for fact in self.list():
            index.put(fact, fact.value)
        return index.find(text)

    def _checked(self, key: str, value: str) -> str:
        """Return the value as it is stored.

        Raises: Refused if it is no value, or if key or value hold a secret; OverLimit.
        """
        value = check_value(value)
        self._refuse_secrets(key, value, "value")
        return value

    def _refuse_secrets(self, key: str, value: str, name: str) -> None:
        if not self._may_hold_secrets:
            refuse_secrets("key", key)
            refuse_secrets(name, value)

    def _read(self) -> FactList | None:
        """Return the facts, with what a person has just saved. While a command holds the workspace, return
        those of the newest revision."""
        workspace = self._open(False)
        return None if workspace is None else self._committed(workspace)

    def _committed(self, workspace: Workspace) -> FactList:
        with suppress(Busy):
            workspace.edits.commit(wait_s=EDITS_WAIT_S)
        if workspace.decided.is_register:
            _bring_all(workspace)
        return self._indexes.of(workspace).facts()

    def _repeat(
        self, reference: str, act: Callable[[FactList, Workspace], T], *, create: bool = False
    ) -> T:
        """Return the result of `act` on the present facts. Repeat it if the file was another one by then."""
        workspace = self._open(create)
        if workspace is None:
            raise NotFound("fact", reference)
        # A write commits a person's edit of its own file. All others matter only if that was no use.
        facts = self._indexes.of(workspace).facts()
        if not workspace.decided.is_register or reference in facts.by_key:
            with suppress(NotFound, _Moved):
                return act(facts, workspace)

        @until_written("the fact", lost=(_Moved,))
        def act_on_committed() -> T:
            return act(self._committed(workspace), workspace)

        return act_on_committed()

    def _edit(
        self,
        workspace: Workspace,
        path: WorkspacePath,
        edit: _Edit,
        by: Author,
        check: VersionCheck | None,
    ) -> FactWritten:
        """Write what changes of a fact's file."""

        def content(before: bytes | None) -> bytes:
            return edit.content(path, before)

        try:
            written = workspace.decided.edit(path, content, by=by, check=check)
        except AlreadyExists as taken:  # a file whose name differs only in case
            raise _Moved(path) from taken
        fact = self._now(workspace, edit.key)
        is_adopted = edit.change.adopts and source_by(by.source) == "manual"
        if (
            is_adopted and fact.source != "manual"
        ):  # the body stays: a revision says who stands for it
            with suppress(Conflict):  # somebody has just changed it, and stands for that
                workspace.adopt(path, by=by, expect=fact.version)
            fact = self._now(workspace, edit.key)
        return FactWritten(fact, is_new=written.created, durable=written.durable)

    def _now(self, workspace: Workspace, key: str) -> Fact:
        """Return a fact that was just written. Another process may have removed it since."""
        fact = self._indexes.of(workspace).facts().by_key.get(key)
        if fact is None:
            raise NotFound("fact", key)
        return fact


@dataclass(frozen=True, slots=True)
class _Edit:
    """The change of one fact's file, as a function of what the file holds."""

    key: str
    change: FactChange
    may_create: bool = False
    seen: Version | None = None
    """The version that the change was decided on, if that matters."""

    def content(self, path: WorkspacePath, before: bytes | None) -> bytes:
        """Return the file's new bytes.

        Raises: _Moved if the file does not hold the fact.
        """
        change = self.change
        if before is None:
            if not self.may_create or change.value is None:
                raise _Moved(path)
            pinned, importance = bool(change.pinned), change.importance or 0
            return write_fact(
                None,
                key=self.key,
                value=change.value,
                pinned=pinned,
                importance=importance,
                attributes=change.attributes,
            )
        known = _read(path, before)
        if known.key != self.key or self.seen not in (None, version_of(before)):
            raise _Moved(path)
        value = None if change.value == known.value and not known.is_truncated else change.value
        pinned = known.pinned if change.pinned is None else change.pinned
        importance = known.importance if change.importance is None else change.importance
        is_same = (pinned, importance) == (known.pinned, known.importance) and all(
            known.attributes.get(name) == told for name, told in change.attributes.items()
        )
        if value is None and is_same:
            return before
        return write_fact(
            before,
            key=self.key,
            value=value,
            pinned=pinned,
            importance=importance,
            attributes=change.attributes,
        )


class _Batch:
    """The edits of several facts' files, decided on one list of facts."""

    def __init__(
        self,
        facts: FactList,
        workspace: Workspace,
        entries: Sequence[FactEntry],
        *,
        keeps_manual: bool,
    ) -> None:
        self.edits: dict[WorkspacePath, _Edit] = {}
        self._new: set[WorkspacePath] = set()
        self._fates: list[FactFate] = []
        taken = {folded(path) for path in workspace.tree.scan().files}
        for entry in entries:
            known = facts.by_key.get(entry.key)
            if known is not None and keeps_manual and known.source == "manual":
                self._fates.append("kept")
                continue
            pinned, importance = (None, None) if keeps_manual else (entry.pinned, entry.importance)
            change = FactChange(entry.value, pinned, importance, adopts=True)
            if known is None:
                path = canonical_path(entry.key)
                if folded(path) in taken:
                    path = hashed_path(entry.key)
                if folded(path) in taken:
                    raise _no_room(entry.key, path)
                taken.add(folded(path))
                self._new.add(path)
                self.edits[path] = _Edit(entry.key, change, may_create=True)
                self._fates.append("new")
            else:
                self.edits[known.path] = _Edit(entry.key, change, seen=known.version)
                wanted = (
                    entry.value,
                    known.pinned if entry.pinned is None else entry.pinned,
                    known.importance if entry.importance is None else entry.importance,
                )
                is_same = wanted == (known.value, known.pinned, known.importance)
                is_same = is_same and (keeps_manual or known.source == "manual")
                self._fates.append("same" if is_same else "changed")

    def fates(self) -> Sequence[FactFate]:
        return self._fates

    def content(self, now: Files) -> Files:
        """Return the new bytes of the files that change.

        Raises: _Moved if a file is another one than was read.
        """
        if any(now[path] is not None for path in self._new):
            raise _Moved(DIRECTORY)
        return _contents(self.edits, now)


def _contents(edits: Mapping[WorkspacePath, _Edit], now: Files) -> Files:
    after = {path: edits[path].content(path, before) for path, before in now.items()}
    return {path: data for path, data in after.items() if data != now[path]}


class ReadOnlyFact(Conflict):
    """A model wrote the value, and the caller did not say that it takes the fact over."""

    code = "read_only"

    def __init__(self, fact: Fact) -> None:
        super().__init__("fact", fact.key, expected="manual", actual=fact.source)
        self.args = (f"the value of {fact.key!r} is read-only: its source is {fact.source}",)
        self.remedy = 'send "source": "manual" with it to take the fact over, or set the key anew'


def _found(facts: FactList | None, reference: str) -> Fact:
    fact = None
    if facts is not None:
        fact = facts.find(reference) if is_fact_id(reference) else facts.by_key.get(reference)
    if fact is None:
        raise NotFound("fact", reference)
    return fact


def _read(path: WorkspacePath, data: bytes) -> FactFile:
    try:
        return read_fact(path, data)
    except Refused as refused:
        raise _Moved(path) from refused


def _bring_all(workspace: Workspace) -> None:
    """Bring the facts here that other servers have written, as far as they are in the store."""
    tree = workspace.tree.scan()
    here = {path: one.version for path, one in tree.files.items() if is_fact_path(path)}
    listed = workspace.decided.list()
    there = {entry.path: entry.version for entry in listed if is_fact_path(entry.path)}
    for path in sorted({*here, *there}):
        if path not in here or here[path] != there.get(path):
            with suppress(NotFound):
                workspace.decided.edit(path, _unchanged, by=SYNC)


def _unchanged(before: bytes | None) -> bytes | None:
    return before


def _importance(importance: int | None) -> int | None:
    return None if importance is None else check_importance(importance)


def _free_path(workspace: Workspace, key: str) -> WorkspacePath:
    """Return the path of a new fact. Another file may have the canonical name, or one that differs from it
    only in case: then the name with the key's hash serves."""
    path = canonical_path(key)
    if not _is_taken(workspace, path):
        return path
    other = hashed_path(key)
    if other == path or _is_taken(workspace, other):
        raise _no_room(key, path)
    return other


def _no_room(key: str, path: WorkspacePath) -> Refused:
    return Refused(
        "key", key, f"cannot be stored: {path} is another file", remedy="rename that file"
    )


def _is_taken(workspace: Workspace, path: WorkspacePath) -> bool:
    directory, _, name = path.rpartition("/")
    if workspace.history.named_alike(workspace.history.tip(), directory, name):
        return True
    try:
        workspace.read(path)
    except NotFound:
        return False
    except Failure:
        return True
    return True
