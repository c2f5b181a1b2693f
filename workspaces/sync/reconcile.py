"""Pure: the last agreed tree, the files here and the listing there → what is to be done, and whether to ask.

Of every path three things are known. `base`: what both sides held when they last agreed, or nothing.
`here`: the version of the file, or nothing. `there`: the token of the object, or nothing. A token that
is the base's means the base's bytes; any other means bytes that nobody here has read yet. No time of any
kind is looked at. All there is to decide stands in `action_for`, one line a situation:

    base  here  there
     B     B     B     nothing to do
     B     H     B     changed only here            Push          if there is still the base
     B     –     B     deleted only here            PushDeletion  if there is still the base
     B     B     T     changed only there           Pull          if here is still the base
     B     B     –     deleted only there           PullDeletion  if here is still the base
     B     H     T     changed on both              Meet
     B     –     T     deleted here, changed there  Pull          the edit wins
     B     H     –     changed here, deleted there  Push          the edit wins: if there is still nothing
     B     –     –     deleted on both              Forget
     –     H     –     new here                     Push          if there is still nothing
     –     –     T     new there                    Pull          if here is still nothing
     –     H     T     new on both                  Meet

`Compare` reads what is there, and only then is known whether the two sides differ at all (`met`).

While a file that is gone here is being deleted there, its row has a version that no file has
(`Agreed.going`): what is here again by then counts as changed, though it be the same bytes, and meets
whatever is there as new.

What is *held* is not looked at: a file that is there but cannot be kept (over quota, a bad name) must not
pass for a deleted one. A name that is new there and has no place here (a twin of another in case only,
a file where here is a directory) is refused, listed, and left where it is.

Deletions that look like an accident are an `Alarm`: nothing is done until a person has said so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from workspaces.conditions import ABSENT, Wildcard
from workspaces.ids import Version, version_of
from workspaces.paths import WorkspacePath, folded
from workspaces.problem import Problem
from workspaces.storage.blobs import Token
from workspaces.sync.baseline import SyncedFile
from workspaces.tree.conflict_copy import conflict_path
from workspaces.tree.merge import merge

GONE_FILES_MIN = 3
"""Fewer than this many deletions are somebody tidying up, however small the workspace is."""


@dataclass(frozen=True, slots=True)
class Push:
    """Bytes from here to there."""

    path: WorkspacePath
    version: Version
    expect: Token | Wildcard


@dataclass(frozen=True, slots=True)
class PushDeletion:
    path: WorkspacePath
    expect: Token


@dataclass(frozen=True, slots=True)
class Pull:
    """Bytes from there to here."""

    path: WorkspacePath
    expect: Version | None


@dataclass(frozen=True, slots=True)
class PullDeletion:
    path: WorkspacePath
    expect: Version


@dataclass(frozen=True, slots=True)
class Compare:
    """Both sides have something of their own: what, is not known before it is read."""

    path: WorkspacePath


@dataclass(frozen=True, slots=True)
class DropBaseline:
    path: WorkspacePath


SyncAction = Push | PushDeletion | Pull | PullDeletion | Compare | DropBaseline


@dataclass(frozen=True, slots=True)
class Alarm:
    """What looks like an accident, put to follow "sync stopped:"."""

    reason: str


@dataclass(frozen=True, slots=True)
class SyncPlan:
    actions: tuple[SyncAction, ...]
    """MEMORY.md last: who reads it finds what it speaks of."""
    refused: tuple[Problem, ...] = ()
    alarm: Alarm | None = None


def reconcile(
    base: Mapping[WorkspacePath, SyncedFile],
    here: Mapping[WorkspacePath, Version],
    there: Mapping[WorkspacePath, Token],
    *,
    held: Collection[str] = (),
) -> SyncPlan:
    actions: list[SyncAction] = []
    is_same = here == {path: agreed.version for path, agreed in base.items()} and there == {
        path: agreed.token for path, agreed in base.items()
    }
    if is_same:
        return SyncPlan(())  # as almost always: what `action_for` would say of each path, sooner
    for path in {**base, **here, **there}:
        agreed, ours, theirs = base.get(path), here.get(path), there.get(path)
        if agreed is not None and agreed.token == theirs and agreed.version == ours:
            continue  # as almost every path
        action = action_for(path, agreed, ours, theirs)
        if action is not None and path not in held:
            actions.append(action)
    refused = _without_place(actions, here)
    actions = [action for action in actions if action.path not in refused]
    actions.sort(key=lambda action: (action.path == "MEMORY.md", action.path))
    return SyncPlan(tuple(actions), tuple(refused.values()), _alarm(base, here, there, held))


def action_for(
    path: WorkspacePath, base: SyncedFile | None, here: Version | None, there: Token | None
) -> SyncAction | None:
    """The truth table."""
    if base is None:
        return _new(path, here, there)
    if there == base.token:
        if here == base.version:
            return None
        if here is None:
            return PushDeletion(path, base.token)  # deleted only here
        return Push(path, here, base.token)  # changed only here
    if there is None:
        if here is None:
            return DropBaseline(path)  # deleted on both sides
        if here == base.version:
            return PullDeletion(path, here)  # deleted only there
        return Push(path, here, ABSENT)  # changed here, deleted there: the edit wins
    if here is None or here == base.version:
        return Pull(path, here)  # changed there, and here not changed or deleted: the edit wins
    return Compare(path)  # changed on both sides


def _new(path: WorkspacePath, here: Version | None, there: Token | None) -> SyncAction | None:
    if here is None:
        return None if there is None else Pull(path, None)
    return Push(path, here, ABSENT) if there is None else Compare(path)


@dataclass(frozen=True, slots=True)
class SameVersions:
    """Both sides had made the same change."""


@dataclass(frozen=True, slots=True)
class MergedVersions:
    """One text in which both changes are made; possibly the one that is there already."""

    data: bytes
    overlaps: int
    clashes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeepBoth:
    """Theirs takes the path; ours is kept beside it."""

    beside: WorkspacePath


Met = SameVersions | MergedVersions | KeepBoth


def merge_versions(
    path: WorkspacePath,
    base: bytes | None,
    here: bytes,
    there: bytes,
    *,
    later: Literal["here", "there"],
) -> Met:
    """What becomes of two versions. `later`: whose value stands where both changed one key of the front
    matter.

    What is there comes first in the merge, so that two machines that merge the same two versions one
    after the other make the same text, and the second finds nothing left to push."""
    if here == there:
        return SameVersions()
    found = merge(path, base, there, here, later="ours" if later == "there" else "theirs")
    if found is None:
        return KeepBoth(conflict_path(path, version_of(here)))
    return MergedVersions(found.data, found.overlaps, found.clashes)


def _alarm(
    base: Mapping[WorkspacePath, SyncedFile],
    here: Mapping[WorkspacePath, Version],
    there: Mapping[WorkspacePath, Token],
    held: Collection[str],
) -> Alarm | None:
    known = base.keys() - set(held)
    for side, mine, other in (("this directory", here, there), ("the store", there, here)):
        gone = len((known - mine.keys()) & other.keys())
        if gone == 0:
            continue
        if not mine and not held:
            return Alarm(f"{side} is empty, but {_files(len(known))} were there at the last sync")
        if gone >= GONE_FILES_MIN and gone * 2 > len(known):
            return Alarm(f"{gone} of {_files(len(known))} are gone from {side} since the last sync")
    return None


def _without_place(
    actions: Sequence[SyncAction], here: Mapping[WorkspacePath, Version]
) -> dict[str, Problem]:
    """Names that would be new here and collide with one that stays, or with each other."""
    new = sorted(one.path for one in actions if isinstance(one, Pull) and one.expect is None)
    if not new:
        return {}
    going = {action.path for action in actions if isinstance(action, PullDeletion)}
    staying = [path for path in here if path not in going]
    names = {folded(one): one for path in staying for one in _on_the_way(path)}
    files = {folded(path) for path in staying}
    refused: dict[str, Problem] = {}
    for path in new:
        collision = _collision(path, names, files)
        if collision is not None:
            refused[path] = Problem(path, "twin", collision)
            continue
        names.update({folded(one): one for one in _on_the_way(path)})
        files.add(folded(path))
    return refused


def _collision(path: WorkspacePath, names: Mapping[str, str], files: Collection[str]) -> str | None:
    *above, _ = _on_the_way(path)
    for one in above:
        known = names.get(folded(one))
        if known is not None and (known != one or folded(one) in files):
            return f"has no place beside {known!r}"
    known = names.get(folded(path))
    return None if known is None else f"has no place beside {known!r}"


def _on_the_way(path: WorkspacePath) -> list[str]:
    """Every directory on the way, and the path."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
