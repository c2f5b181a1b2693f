"""What the metadata of an object says about its file: when it changed, and who is to be believed for it.

A machine may receive a file before the history that explains it. Then these words are the file's origin
(`workspaces/history/source.py`), so its stamp and its source are the same on every machine at once:

    stamp     of the revision that gave the file its present bytes
    created   the same, if that revision made the file
    source    of the body
    author    the id of whoever wrote the body

They are read from the newest revisions here, without a request. If the revision that wrote the body is
older than that, or a merge that mixed two bodies, only the stamp is said, and the history tells the rest
when it arrives.

The stamp alone also decides which value wins when both sides set the same key of a front matter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from workspaces.history.git.commit import Commit
from workspaces.history.history import History
from workspaces.history.source import (
    AUTHOR_CHARACTERS_MAX,
    Source,
    StatedOrigin,
    adopted_path,
    body_of,
    parse_stated,
    source_by,
    source_of,
    stated_origin,
)
from workspaces.paths import WorkspacePath
from workspaces.revision import Author, RevisionId
from workspaces.storage.blobs import Meta
from workspaces.timestamp import Stamp

REVISIONS_MAX = 50
"""Revisions to walk back in search of the change. A change older than that no longer counts with its own
stamp."""

FEW = 8
"""Files that are looked up one by one in a revision. For more, two revisions are compared as a whole."""


@dataclass(frozen=True, slots=True)
class ObjectOrigin:
    """The origin of a file that goes to the store."""

    stamp: Stamp
    created: Stamp | None = None
    source: Source | None = None
    """None if it is not known who wrote the body."""
    author: str = ""

    @property
    def words(self) -> Meta:
        """Return the words for the object's metadata."""
        words = {"stamp": str(self.stamp)}
        if self.created is not None:
            words["created"] = str(self.created)
        if self.source is not None:
            words["source"] = self.source
            author = self.author[:AUTHOR_CHARACTERS_MAX].strip()
            if author and author.isascii() and author.isprintable():  # else no header can carry it
                words["author"] = author
        return words


@dataclass(slots=True)
class _Search:
    """What is known of one file while the revisions are walked."""

    stamp: Stamp | None = None
    created: Stamp | None = None
    source: Source | None = None
    author: str = ""

    def believe(self, source: Source, author: str) -> None:
        if self.source is None:
            self.source, self.author = source, author


def origin_in(meta: Meta) -> StatedOrigin | None:
    """Return the origin that the metadata of an object states, or None if it states no valid one."""
    stamp = meta.get("stamp", "")
    created, source = meta.get("created", stamp), meta.get("source", "")
    return parse_stated(stamp, created, source, meta.get("author", ""))


def origin_to_come(history: History, path: WorkspacePath, data: bytes, by: Author) -> ObjectOrigin:
    """Return the origin of a file that the next revision, by this author, will have."""
    stamp, before = history.next_stamp(), history.find(history.tip(), path)
    if before is None:
        return ObjectOrigin(stamp, stamp, source_by(by.source), by.id)
    if body_of(path, history.read(before)) == body_of(path, data):  # the body stays whose it is
        return replace(origins_of(history, [path])[path], stamp=stamp, created=None)
    return ObjectOrigin(stamp, None, source_by(by.source), by.id)


def origins_of(
    history: History, paths: Collection[WorkspacePath]
) -> Mapping[WorkspacePath, ObjectOrigin]:
    """Return the origins of files of the newest revision, as far as the last revisions tell."""
    tip = history.tip()
    if tip is None:
        return {}
    searches = {path: _Search() for path in paths}
    waiting: dict[RevisionId, set[WorkspacePath]] = {tip: set(paths)}
    for _ in range(REVISIONS_MAX):
        if not waiting:
            break
        revision = max(waiting, key=lambda one: history.commit(one).place)
        for path, parent in _step(history, revision, waiting.pop(revision), searches):
            waiting.setdefault(parent, set()).add(path)
    for revision, unfinished in waiting.items():  # older than that: its stamp is close enough
        for path in unfinished:
            searches[path].stamp = searches[path].stamp or history.commit(revision).at
    return {
        path: ObjectOrigin(one.stamp, one.created, one.source, one.author)
        for path, one in searches.items()
        if one.stamp is not None
    }


def may_have_front_matter(data: bytes) -> bool:
    """Return True if the bytes may contain a front matter."""
    return data.startswith(b"---")


def _step(
    history: History,
    revision: RevisionId,
    paths: Collection[WorkspacePath],
    searches: Mapping[WorkspacePath, _Search],
) -> Iterator[tuple[WorkspacePath, RevisionId]]:
    """Learn what one revision tells of files that it has. Yield those of which a parent tells more, and
    that parent."""
    commit = history.commit(revision)
    adopted = adopted_path(commit.trailers)
    if adopted is not None and adopted in paths:
        searches[adopted].believe("manual", commit.author_id)
    left = set(paths)
    for parent in commit.parents:
        changed = _changed(history, parent, revision, left)
        yield from ((path, parent) for path in left - changed)
        left = changed
    for path in left:
        parent = _change(history, commit, path, searches[path])
        if parent is not None:
            yield path, parent


def _changed(
    history: History, parent: RevisionId, revision: RevisionId, paths: set[WorkspacePath]
) -> set[WorkspacePath]:
    if len(paths) > FEW:
        return paths & history.differences(parent, revision).keys()
    return {path for path in paths if history.find(parent, path) != history.find(revision, path)}


def _change(
    history: History,
    commit: Commit,
    path: WorkspacePath,
    search: _Search,
) -> RevisionId | None:
    """Learn from a revision that changed a file. Return the parent to go on with, if the body was there."""
    stated = stated_origin(commit.trailers, path)
    if stated is not None:  # it came before its history, and said this
        if search.stamp is None:
            search.stamp, search.created = stated.updated_at, stated.created_at
        search.believe(stated.source, stated.author)
        return None
    before = {
        parent: blob
        for parent in commit.parents
        if (blob := history.find(parent, path)) is not None
    }
    if search.stamp is None:
        search.stamp = commit.at
        search.created = None if before else commit.at
    state = history.find(commit.id, path)
    if search.source is not None or state is None:
        return None
    body = body_of(path, history.read(state)) if before else None
    for parent, blob in before.items():
        if body_of(path, history.read(blob)) == body:
            return parent
    if len(commit.parents) <= 1:  # a merge that mixed two bodies: only the history knows
        search.believe(source_of(commit.trailers), commit.author_id)
    return None
