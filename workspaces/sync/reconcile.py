"""Compare the last agreed tree, the files here and the listing there, and return a plan. Pure functions.

Three facts are known about every path. `base`: the version and token that both sides held when they last
agreed, or nothing. `here`: the version of the file, or nothing. `there`: the token of the object, or
nothing. A token equal to the base's token means the base's bytes. Any other token means bytes that this
machine has not read yet. No time of any kind is used. `action_for` holds all the decisions, one line for
each situation:

    base  here  there
     B     B     B     nothing to do
     B     H     B     changed only here            Push          if the store still has the base
     B     –     B     deleted only here            PushDeletion  if the store still has the base
     B     B     T     changed only there           Pull          if the file here is still the base
     B     B     –     deleted only there           PullDeletion  if the file here is still the base
     B     H     T     changed on both              Compare
     B     –     T     deleted here, changed there  Pull          the edit wins
     B     H     –     changed here, deleted there  Push          the edit wins, if the store has nothing yet
     B     –     –     deleted on both              DropBaseline
     –     H     –     new here                     Push          if the store has nothing yet
     –     –     T     new there                    Pull          if there is still no file here
     –     H     T     new on both                  Compare

`Compare` reads the object. Only then is it known whether the two sides differ at all (`merge_versions`).

While a file that was deleted here is being deleted in the store, its row has a version that no file has
(`SyncedFile.being_deleted`). A file that reappears here by then counts as changed, even with the same
bytes. It is compared with the object in the store as a new file.

A *held* path is skipped. It exists, but it cannot be kept (over quota, a bad name), and must not pass
for a deleted file. A name may be new in the store and have no place here: it differs from another name
in case only, or it is a file where this machine has a directory. Such a name is refused, listed, and
left where it is.

Deletions that look like an accident raise an `Alarm`: sync does nothing until a person has confirmed
them.
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
"""Fewer deletions than this are a person tidying up, however small the workspace is."""


@dataclass(frozen=True, slots=True)
class Push:
    """An action that sends the bytes of the file here to the store."""

    path: WorkspacePath
    version: Version
    expect: Token | Wildcard


@dataclass(frozen=True, slots=True)
class PushDeletion:
    path: WorkspacePath
    expect: Token


@dataclass(frozen=True, slots=True)
class Pull:
    """An action that fetches the bytes from the store to this machine."""

    path: WorkspacePath
    expect: Version | None


@dataclass(frozen=True, slots=True)
class PullDeletion:
    path: WorkspacePath
    expect: Version


@dataclass(frozen=True, slots=True)
class Compare:
    """An action for a path where both sides have a version of their own. Reading the object shows the
    difference."""

    path: WorkspacePath


@dataclass(frozen=True, slots=True)
class DropBaseline:
    path: WorkspacePath


SyncAction = Push | PushDeletion | Pull | PullDeletion | Compare | DropBaseline


@dataclass(frozen=True, slots=True)
class Alarm:
    """A reason to suspect an accident, worded to follow "sync stopped:"."""

    reason: str


@dataclass(frozen=True, slots=True)
class SyncPlan:
    actions: tuple[SyncAction, ...]
    """Sorted with MEMORY.md last, so that a reader of it finds the files it refers to."""
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
    is_unchanged = here == {path: agreed.version for path, agreed in base.items()} and there == {
        path: agreed.token for path, agreed in base.items()
    }
    if is_unchanged:
        return SyncPlan(())  # the usual case: a shortcut with the same result as `action_for`
    for path in {**base, **here, **there}:
        agreed, ours, theirs = base.get(path), here.get(path), there.get(path)
        if agreed is not None and agreed.token == theirs and agreed.version == ours:
            continue  # unchanged, like almost every path
        action = action_for(path, agreed, ours, theirs)
        if action is not None and path not in held:
            actions.append(action)
    refused = _collisions(actions, here)
    actions = [action for action in actions if action.path not in refused]
    actions.sort(key=lambda action: (action.path == "MEMORY.md", action.path))
    return SyncPlan(tuple(actions), tuple(refused.values()), _alarm(base, here, there, held))


def action_for(
    path: WorkspacePath, base: SyncedFile | None, here: Version | None, there: Token | None
) -> SyncAction | None:
    """Return the action for one path, following the truth table at the top of this module."""
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
        return Pull(path, here)  # changed only there, or deleted here: the edit wins
    return Compare(path)  # changed on both sides


def _new(path: WorkspacePath, here: Version | None, there: Token | None) -> SyncAction | None:
    if here is None:
        return None if there is None else Pull(path, None)
    return Push(path, here, ABSENT) if there is None else Compare(path)


@dataclass(frozen=True, slots=True)
class SameVersions:
    """The outcome when both sides made the same change."""


@dataclass(frozen=True, slots=True)
class MergedVersions:
    """A text that contains both changes. It may equal the version in the store."""

    data: bytes
    overlaps: int
    clashes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeepBoth:
    """The outcome in which the store's version takes the path, and the version here is kept beside it."""

    beside: WorkspacePath


MergeOutcome = SameVersions | MergedVersions | KeepBoth


def merge_versions(
    path: WorkspacePath,
    base: bytes | None,
    here: bytes,
    there: bytes,
    *,
    later: Literal["here", "there"],
) -> MergeOutcome:
    """Merge the version here with the version in the store.

    `later` names the side whose value wins where both changed one key of the front matter.

    The version in the store comes first in the merge. Two machines may merge the same two versions one after
    the other. Both produce the same text, and the second machine finds nothing left to push.
    """
    if here == there:
        return SameVersions()
    merged = merge(path, base, there, here, later="ours" if later == "there" else "theirs")
    if merged is None:
        return KeepBoth(conflict_path(path, version_of(here)))
    return MergedVersions(merged.data, merged.overlaps, merged.clashes)


def _alarm(
    base: Mapping[WorkspacePath, SyncedFile],
    here: Mapping[WorkspacePath, Version],
    there: Mapping[WorkspacePath, Token],
    held: Collection[str],
) -> Alarm | None:
    known = base.keys() - set(held)
    for side, this_side, other_side in (
        ("this directory", here, there),
        ("the store", there, here),
    ):
        deleted = len((known - this_side.keys()) & other_side.keys())
        if deleted == 0:
            continue
        if not this_side and not held:
            return Alarm(f"{side} is empty, but {_files(len(known))} were there at the last sync")
        if deleted >= GONE_FILES_MIN and deleted * 2 > len(known):
            return Alarm(
                f"{deleted} of {_files(len(known))} are gone from {side} since the last sync"
            )
    return None


def _collisions(
    actions: Sequence[SyncAction], here: Mapping[WorkspacePath, Version]
) -> dict[str, Problem]:
    """Return names that would be new here and collide with a remaining name, or with each other."""
    new = sorted(
        action.path for action in actions if isinstance(action, Pull) and action.expect is None
    )
    if not new:
        return {}
    deleted = {action.path for action in actions if isinstance(action, PullDeletion)}
    remaining = [path for path in here if path not in deleted]
    names = {folded(prefix): prefix for path in remaining for prefix in _path_prefixes(path)}
    files = {folded(path) for path in remaining}
    refused: dict[str, Problem] = {}
    for path in new:
        collision = _collision(path, names, files)
        if collision is not None:
            refused[path] = Problem(path, "twin", collision)
            continue
        names.update({folded(prefix): prefix for prefix in _path_prefixes(path)})
        files.add(folded(path))
    return refused


def _collision(path: WorkspacePath, names: Mapping[str, str], files: Collection[str]) -> str | None:
    *parents, _ = _path_prefixes(path)
    for parent in parents:
        known = names.get(folded(parent))
        if known is not None and (known != parent or folded(parent) in files):
            return f"collides with {known!r}"
    known = names.get(folded(path))
    return None if known is None else f"collides with {known!r}"


def _path_prefixes(path: WorkspacePath) -> list[str]:
    """Return every parent directory of the path, and the path itself."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
