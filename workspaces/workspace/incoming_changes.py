"""Apply what other machines changed: files come into the tree, and their history becomes part of ours.

    commit manual edits of those files → receive the other history → declare the intent
    → replace each file → record → commit what was saved meanwhile

With the other history, both lines of history become one, in which the files are as they are here now. Their
tip is used as it is if nothing differs. Else there is a revision on top, or a merge. Without their history,
the changes are one revision by the sync. A change is planned on a version of its file. If the file has
another version by now, the file is left alone. Then their history is not followed either: it would
describe a file that did not come in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from workspaces.coordination.writer_lock import HeldLock
from workspaces.errors import Failure, OverLimit, Refused
from workspaces.history.git.objects import blob_id
from workspaces.history.history import History
from workspaces.history.source import StatedOrigin
from workspaces.ids import Version
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.revision import Author, RevisionId
from workspaces.tree.merge_marks import TRAILER as MERGED
from workspaces.tree.merge_marks import trailer_of
from workspaces.tree.port import Staged
from workspaces.tree.safe_replace import Replacement, SafeReplace
from workspaces.workspace.manual_edits import ManualEdits, ReadResult

if TYPE_CHECKING:
    from workspaces.history.git.quarantine import Quarantine
    from workspaces.history.git.tree_edit import After


@dataclass(frozen=True, slots=True)
class IncomingChange:
    """A change of a file that another machine made."""

    path: WorkspacePath
    data: bytes | None
    """The new content. None: the file is deleted."""
    expect: Version | None
    """The version that the change was planned on. A file that has another version by now is left alone."""
    beside: bytes | None = None
    """Their version, if `data` is a merge of it with the version here."""
    merge_summary: str = ""
    """The text for the revision's trailer, if `data` is a merge."""
    staged: Staged | None = None
    """The staged file that holds `data` since it was downloaded."""
    origin: StatedOrigin | None = None
    """What the store says of the origin of their version."""


@dataclass(frozen=True, slots=True)
class Theirs:
    """The history of other machines, as far as it is not here. It is followed once the files here contain
    everything it says."""

    tip: RevisionId
    quarantine: Quarantine
    aside: Collection[str] = ()
    """Files that cannot be here or are held back. They count as theirs, whatever is here."""


@dataclass(slots=True)
class ApplyResult:
    """The changes that did not come in. All others are in the tree now."""

    left: list[WorkspacePath] = field(default_factory=list[WorkspacePath])
    """Files that changed here since the change was planned."""
    refused: list[Problem] = field(default_factory=list[Problem])
    """Files that cannot be here."""
    there: set[WorkspacePath] = field(default_factory=set[WorkspacePath])
    """Files that had the new content already."""
    merged_saves: set[WorkspacePath] = field(default_factory=set[WorkspacePath])
    """Files that came in and were merged with what another program saved at that moment."""
    mended: set[WorkspacePath] = field(default_factory=set[WorkspacePath])
    """Files whose new content held a forbidden text. Here they have a mark in its place, which is sent."""
    unfollowed: Failure | None = None
    """The reason why their history was not followed, if something is wrong with it."""


class IncomingChanges:
    """The incoming changes of one workspace."""

    def __init__(self, edits: ManualEdits, history: History, replacements: SafeReplace) -> None:
        self._edits = edits
        self._history = history
        self._safe_replace = replacements

    def apply(
        self, changes: Sequence[IncomingChange], *, by: Author, theirs: Theirs | None = None
    ) -> ApplyResult:
        """Apply changes that other machines made. With their history the revisions stay theirs. Without it,
        the changes are one revision by `by`."""
        with self._edits.hold(by) as held:
            return self.apply_held(held, changes, by, theirs)

    def apply_held(
        self,
        held: HeldLock,
        changes: Sequence[IncomingChange],
        by: Author,
        theirs: Theirs | None = None,
    ) -> ApplyResult:
        """Apply changes while the caller holds the writer lock."""
        paths = tuple(change.path for change in changes)
        result = ApplyResult()
        same = frozenset[WorkspacePath]()
        if theirs is not None and self._is_known(theirs.tip):
            theirs = None
        if theirs is not None:
            try:
                self._history.receive(theirs.quarantine, theirs.tip)
                same = self._commit_edits_against(theirs, frozenset(paths))
            except Failure as failure:
                result.unfollowed, theirs = failure, None
        current_files = self._edits.record(paths)
        changes = self._mended(changes, current_files, result)
        replacements = [
            replacement
            for change in changes
            if (replacement := _replacement_for(change, current_files[change.path], result))
        ]
        held.intend(by, paths)
        replaced = self._safe_replace.put(replacements)
        done, refused = replaced.done, replaced.refused
        for path, reason in refused.items():
            result.refused.append(Problem(path, "unreadable", str(reason)))
        result.left += [
            s.path for s in replacements if s.path not in done and s.path not in refused
        ]
        result.merged_saves = set(replaced.concurrent_saves)
        if theirs is not None and not result.left:
            here = done | result.there
            applied = {a.path: a for a in changes if a.path in here}
            self._follow(theirs, applied, same | refused.keys(), by)
        else:
            applied = {
                a.path: a for a in changes if a.path in done or _needs_their_version(a, result)
            }
            self._record(applied, by)
        held.fulfilled()
        self._safe_replace.restore(replaced.concurrent_saves.values())
        # Commit what else was saved meanwhile. A file that was not there before has nothing to lose:
        # the next commit of manual edits finds it.
        self._edits.record(
            replacement.path for replacement in replacements if replacement.seen is not None
        )
        return result

    def _mended(
        self,
        changes: Sequence[IncomingChange],
        current_files: Mapping[WorkspacePath, ReadResult],
        result: ApplyResult,
    ) -> Sequence[IncomingChange]:
        """Return the changes with a mark in the place of each forbidden text that they bring.

        The machine that wrote it had not heard of the rule. Its version is kept nowhere here.
        """
        gate = self._edits.protection.gate
        if not changes or not gate.version(is_fresh=True):
            return changes
        mended: list[IncomingChange] = []
        for change in changes:
            current = current_files[change.path]
            before = None if current is None or isinstance(current, Failure) else current.data
            data = change.data if change.data is None else gate.mended(before, change.data)
            beside = change.beside if change.beside is None else gate.mended(before, change.beside)
            if (data, beside) != (change.data, change.beside):
                result.mended.add(change.path)
                change = replace(change, data=data, beside=None, staged=None, origin=None)
            mended.append(change)
        return mended

    def _commit_edits_against(
        self, theirs: Theirs, arriving: Collection[WorkspacePath]
    ) -> frozenset[WorkspacePath]:
        """Commit manual edits of the files in which their history differs from ours. Return the files that
        equal theirs or count as theirs: these need no commit."""
        differing = self._history.differences(self._history.tip(), theirs.tip)
        same: set[WorkspacePath] = set()
        for path, (_, there) in differing.items():
            is_same = path not in arriving and self._edits.object_at(path) == there
            if path in theirs.aside or is_same:
                same.add(path)
        self._edits.record(path for path in differing if path not in same and path not in arriving)
        return frozenset(same)

    def _follow(
        self,
        theirs: Theirs,
        applied: Mapping[WorkspacePath, IncomingChange],
        same: Collection[str],
        by: Author,
    ) -> None:
        """Join our line of history and theirs. In the result the files are as they are here now."""
        tip = self._history.tip()
        differing: dict[WorkspacePath, After] = {
            path: ours
            for path, (_, ours) in self._history.differences(theirs.tip, tip).items()
            if path not in same
        }
        beside: dict[WorkspacePath, bytes] = {}
        recorded = self._edits.recorded(applied, theirs.tip)
        for path, change in applied.items():
            there = recorded.get(path)
            differing.pop(path, None)
            version = change.data if change.beside is None else change.beside
            # a version that their history does not explain gets a revision of its own
            if version is not None and blob_id(version) != there and _needs_revision(change):
                beside[path], there = version, blob_id(version)
            if (None if change.data is None else blob_id(change.data)) != there:
                differing[path] = change.data
        beside_by = _told(by, [applied[path] for path in beside])
        is_replaced = self._history.is_replaced_by(theirs.tip)
        own = self._mended_own(theirs.tip, differing, applied) if is_replaced else []
        self._history.follow(
            theirs.tip,
            {**differing, **{one.path: one.data for one in own}},
            by,
            beside=beside,
            beside_by=beside_by,
            is_replaced=is_replaced,
        )
        replaced = self._safe_replace.put(own)
        self._safe_replace.restore(replaced.concurrent_saves.values())

    def _mended_own(
        self,
        theirs: RevisionId,
        differing: Mapping[WorkspacePath, After],
        applied: Collection[WorkspacePath],
    ) -> list[Replacement]:
        """Return the files to mend of those that only this machine has changed. They are checked like those
        of a stranger: this machine had not heard what is forbidden when it wrote them."""
        gate = self._edits.protection.gate
        own = [path for path in differing if path not in applied]
        mended: list[Replacement] = []
        if not own or not gate.version(is_fresh=True):
            return mended
        recorded = self._edits.recorded(own, theirs)
        for path in own:
            after, there = differing[path], recorded.get(path)
            if not isinstance(after, str):
                continue
            data = self._history.read(after)
            new = gate.mended(self._history.read(there) if there else None, data)
            if new != data:
                mended.append(Replacement(path, new, data))
        return mended

    def _record(self, applied: Mapping[WorkspacePath, IncomingChange], by: Author) -> None:
        """Record the changes that came in as a revision of their own, as far as they differ from the newest
        one."""
        recorded = self._edits.recorded(applied, self._history.tip())
        beside = {path: one.beside for path, one in applied.items() if one.beside is not None}
        changes = {
            path: one.data
            for path, one in applied.items()
            if path in beside
            or recorded.get(path) != (None if one.data is None else blob_id(one.data))
        }
        if changes:
            summaries = {
                path: applied[path].merge_summary for path in changes if applied[path].merge_summary
            }
            beside_by = _told(by, [applied[path] for path in beside])
            by = _told(by, [applied[path] for path in changes if path not in beside])
            by = by.saying(MERGED, trailer_of(summaries)) if summaries else by
            self._history.record(changes, by, beside=beside, beside_by=beside_by)

    def _is_known(self, revision: RevisionId) -> bool:
        return self._history.has(revision) and self._history.descends(self._history.tip(), revision)


def _replacement_for(
    change: IncomingChange, current: ReadResult, result: ApplyResult
) -> Replacement | None:
    """Return the replacement for a change. Return None if the file already has the content, or is not the
    version that the change was planned on."""
    path = change.path
    if isinstance(current, Refused | OverLimit):
        result.refused.append(Problem(path, "unreadable", str(current)))
        return None
    if isinstance(current, Failure):
        raise current
    data = current.data if current else None
    if data == change.data:
        result.there.add(path)
        return None
    if (current.version if current else None) != change.expect:
        result.left.append(path)
        return None
    return Replacement(path, change.data, data, change.staged)


def _needs_their_version(change: IncomingChange, result: ApplyResult) -> bool:
    """Return True if the file here already contains everything of theirs. Their version is still recorded
    beside it."""
    return change.path in result.there and change.beside is not None


def _needs_revision(change: IncomingChange) -> bool:
    """Return True if their version must be in a revision that is not a merge: it is one side of a merge, or
    the store says where it comes from, and a merge of two histories says nothing of its own."""
    return change.beside is not None or change.origin is not None


def _told(by: Author, changes: Iterable[IncomingChange]) -> Author:
    """Return the author, with what the store says of the origin of these files."""
    trailers = [
        change.origin.trailer(change.path)
        for change in changes
        if change.origin is not None and (change.data is not None or change.beside is not None)
    ]
    return replace(by, trailers={**by.trailers, **dict(trailers)}) if trailers else by
