"""Arrivals: what other machines made of the files comes in, and the history that tells of it.

    settle what arrives on → receive their history → declare → swap each file in → tell → settle what was
    saved meanwhile

Told with their history, both lines of history become one, in which the files are as they are here now: theirs
as it is where nothing differs, else a revision on top or a merge. Without it, what came in is one revision by
the sync. A file that is not what its arrival was planned on is left as it is, and then their history is not
followed either: it would speak of a file that did not come.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from workspaces.errors import Failure, OverLimit, Refused
from workspaces.history.git.objects import blob_id
from workspaces.history.git.quarantine import Quarantine
from workspaces.history.git.tree_edit import After
from workspaces.history.history import History
from workspaces.ids import Version
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.revision import Author, RevisionId
from workspaces.tree.merge_marks import TRAILER as SEAMS
from workspaces.tree.merge_marks import trailer_of
from workspaces.tree.port import Staged
from workspaces.tree.safe_replace import Replacement, SafeReplace
from workspaces.workspace.manual_edits import ManualEdits, ReadResult


@dataclass(frozen=True, slots=True)
class IncomingChange:
    """What another machine made of a file."""

    path: WorkspacePath
    data: bytes | None
    """None: it goes."""
    expect: Version | None
    """What this was planned on; a file that is something else by now is left alone."""
    beside: bytes | None = None
    """What they had, where `data` is a merge of it with what is here."""
    seam: str = ""
    """What there is to be said of the merge."""
    staged: Staged | None = None
    """`data`, where it was put aside when it came."""


@dataclass(frozen=True, slots=True)
class Theirs:
    """The history that others have made, as far as it is not here: to be followed once the files here are
    at least what it says."""

    tip: RevisionId
    quarantine: Quarantine
    aside: Collection[str] = ()
    """Files that have no place here, or are held: as theirs, whatever is here."""


@dataclass(slots=True)
class ApplyResult:
    """What did not come in: everything else is there now."""

    left: list[WorkspacePath] = field(default_factory=list[WorkspacePath])
    """Somebody changed it since it was planned on."""
    refused: list[Problem] = field(default_factory=list[Problem])
    """There is no place for it here."""
    there: set[WorkspacePath] = field(default_factory=set[WorkspacePath])
    """It was there already."""
    overtaken: set[WorkspacePath] = field(default_factory=set[WorkspacePath])
    """It came in, and what somebody saved in that moment was merged into it."""
    unfollowed: Failure | None = None
    """Why their history was not followed, where something is wrong with it."""


class IncomingChanges:
    """Of one workspace."""

    def __init__(self, settlement: ManualEdits, history: History, swaps: SafeReplace) -> None:
        self._settlement = settlement
        self._history = history
        self._swaps = swaps

    def apply(
        self, arrivals: Sequence[IncomingChange], by: Author, theirs: Theirs | None = None
    ) -> ApplyResult:
        paths = tuple(arrival.path for arrival in arrivals)
        brought = ApplyResult()
        with self._settlement.hold(by) as held:
            alike = frozenset[WorkspacePath]()
            if theirs is not None and self._is_known(theirs.tip):
                theirs = None
            if theirs is not None:
                try:
                    self._history.receive(theirs.quarantine, theirs.tip)
                    alike = self._settled_against(theirs, frozenset(paths))
                except Failure as failure:
                    brought.unfollowed, theirs = failure, None
            found = self._settlement.record(paths)
            swaps = [
                swap
                for arrival in arrivals
                if (swap := _swap_for(arrival, found[arrival.path], brought))
            ]
            held.intend(by, paths)
            swapped = self._swaps.put(swaps)
            done, refused = swapped.done, swapped.refused
            for path, reason in refused.items():
                brought.refused.append(Problem(path, "unreadable", str(reason)))
            brought.left += [s.path for s in swaps if s.path not in done and s.path not in refused]
            brought.overtaken = set(swapped.overtaken)
            if theirs is not None and not brought.left:
                here = done | brought.there
                told = {a.path: a for a in arrivals if a.path in here}
                self._follow(theirs, told, alike | refused.keys(), by)
            else:
                told = {
                    a.path: a for a in arrivals if a.path in done or _is_met_halfway(a, brought)
                }
                self._tell(told, by)
            held.fulfilled()
            self._swaps.restore(swapped.overtaken.values())
            # What else was saved meanwhile. A file that was not there before has nothing to lose, and is
            # settled like any other when somebody looks at it.
            self._settlement.record(swap.path for swap in swaps if swap.seen is not None)
        return brought

    def _settled_against(
        self, theirs: Theirs, arriving: Collection[WorkspacePath]
    ) -> frozenset[WorkspacePath]:
        """What a person changed by hand where their history says something else becomes a revision; but
        what is the same as theirs, or counts as theirs, is returned."""
        differing = self._history.differences(self._history.tip(), theirs.tip)
        alike: set[WorkspacePath] = set()
        for path, (_, there) in differing.items():
            is_same = path not in arriving and self._settlement.object_at(path) == there
            if path in theirs.aside or is_same:
                alike.add(path)
        self._settlement.record(
            path for path in differing if path not in alike and path not in arriving
        )
        return frozenset(alike)

    def _follow(
        self,
        theirs: Theirs,
        told: Mapping[WorkspacePath, IncomingChange],
        alike: Collection[str],
        by: Author,
    ) -> None:
        """Our line of history and theirs become one, in which the files are as they are here now."""
        tip = self._history.tip()
        differing: dict[WorkspacePath, After] = {
            path: ours
            for path, (_, ours) in self._history.differences(theirs.tip, tip).items()
            if path not in alike
        }
        beside: dict[WorkspacePath, bytes] = {}
        recorded = self._settlement.recorded(told, theirs.tip)
        for path, arrival in told.items():
            there = recorded.get(path)
            differing.pop(path, None)
            if (None if arrival.data is None else blob_id(arrival.data)) != there:
                differing[path] = arrival.data
            if arrival.beside is not None and blob_id(arrival.beside) != there:
                beside[path] = arrival.beside
        self._history.follow(theirs.tip, differing, by, beside=beside)

    def _tell(self, told: Mapping[WorkspacePath, IncomingChange], by: Author) -> None:
        """What came in, as a revision of its own, where it says anything new."""
        recorded = self._settlement.recorded(told, self._history.tip())
        beside = {path: one.beside for path, one in told.items() if one.beside is not None}
        changes = {
            path: one.data
            for path, one in told.items()
            if path in beside
            or recorded.get(path) != (None if one.data is None else blob_id(one.data))
        }
        if changes:
            seams = {path: told[path].seam for path in changes if told[path].seam}
            by = by.saying(SEAMS, trailer_of(seams)) if seams else by
            self._history.record(changes, by, beside=beside)

    def _is_known(self, revision: RevisionId) -> bool:
        return self._history.has(revision) and self._history.descends(self._history.tip(), revision)


def _swap_for(
    arrival: IncomingChange, current: ReadResult, brought: ApplyResult
) -> Replacement | None:
    """None when there is nothing to swap: it is there already, or not what this was planned on."""
    path = arrival.path
    if isinstance(current, Refused | OverLimit):
        brought.refused.append(Problem(path, "unreadable", str(current)))
        return None
    if isinstance(current, Failure):
        raise current
    data = current.data if current else None
    if data == arrival.data:
        brought.there.add(path)
        return None
    if (current.version if current else None) != arrival.expect:
        brought.left.append(path)
        return None
    return Replacement(path, arrival.data, data, arrival.staged)


def _is_met_halfway(arrival: IncomingChange, brought: ApplyResult) -> bool:
    """What is here holds all that is there: their version is still told, beside it."""
    return arrival.path in brought.there and arrival.beside is not None
