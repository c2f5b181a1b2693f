"""A workspace's history: its revisions, in a git directory outside the tree.

Outside, so that no agent ever reaches its hooks or its configuration; and no program of git's ever
walks the agent's tree: a revision is made from bytes that the caller has read through the path door.
Blob, changed trees and commit are written and made durable first (`objects`), and only then the
branch moves, by compare-and-swap of its file under git's own lock name. A crash leaves objects that
nothing points at, never a branch that points at nothing. What a revision costs depends on the depth
of the changed paths and the size of their directories, not on the number of files.

For what git reads better than we could (log, diff, blame) the git program is asked (`git`).

Deliberately absent: an index, a working tree, remotes, `git add`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from workspaces.clock import Clock
from workspaces.errors import Conflict, NotFound, Refused, Unavailable
from workspaces.git import run_git
from workspaces.objects import (
    FILE_MODE,
    TREE_MODE,
    Batch,
    Entries,
    Entry,
    ObjectId,
    Objects,
    sync,
    unwritable,
)
from workspaces.paths import WorkspacePath
from workspaces.revision import (
    Author,
    FileChange,
    Revision,
    RevisionId,
    message,
    one_line,
    trailers_of,
)
from workspaces.stamp import Stamp, moment_of, next_stamp

HEAD: Final = "head"
"""The view of what is there now. Any other view is a revision's id."""

View = str

BRANCH = "refs/heads/main"
LOG_ENTRIES_MAX = 10_000

COMMITTER = "workspace-harness <harness@workspace-harness>"

_EARLIEST = Stamp("1970-01-01T00:00:00.000000Z")
_HEXADECIMAL = re.compile(r"[0-9a-f]{4,40}")
_RECORD, _FIELD = "\x1e", "\x1f"


@dataclass(frozen=True, slots=True)
class _Commit:
    id: RevisionId
    tree: ObjectId
    at: Stamp


class History:
    """One git directory. Reading is safe from any thread; `record` only under the writer lock."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._objects = Objects(directory / "objects")

    @classmethod
    def create(cls, directory: Path, clock: Clock) -> History:
        """An empty history; it appears whole or not at all."""
        unfinished = directory.with_name(f"{directory.name}.new-{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        run_git(
            "init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(unfinished)
        )
        try:
            unfinished.rename(directory)
        except OSError as error:
            raise unwritable(error) from error
        return cls(directory, clock)

    def tip(self) -> RevisionId | None:
        """The newest revision; None before the first."""
        try:
            return RevisionId((self._directory / BRANCH).read_text().strip())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unwritable(error) from error

    def resolve(self, view: View) -> RevisionId | None:
        """The revision that a view shows. An abbreviated id is completed; an unknown one NotFound."""
        if view == HEAD:
            return self.tip()
        if not _HEXADECIMAL.fullmatch(view):
            raise Refused("revision", view, "is not the hexadecimal id of a revision")
        try:
            found = self._git(
                "rev-parse", "--verify", "--quiet", "--end-of-options", view + "^{commit}"
            )
        except Unavailable:
            raise NotFound("revision", view, remedy="`harness log` lists them") from None
        return RevisionId(found.decode().strip())

    def tree(self, revision: RevisionId | None) -> dict[WorkspacePath, ObjectId]:
        """Every file of a revision, ascending by path."""
        if revision is None:
            return {}
        return dict(sorted(self._files(self._commit(revision).tree, "")))

    def find(self, revision: RevisionId | None, path: WorkspacePath) -> ObjectId | None:
        """One file of a revision, looked up along its path alone."""
        directory, _, leaf = path.rpartition("/")
        found = self._directory_at(revision, directory).get(leaf)
        return None if found is None or found.mode == TREE_MODE else found.id

    def names(self, revision: RevisionId | None, directory: str) -> list[str]:
        """What lies directly in a directory (`""` is the root); nothing where there is none."""
        return list(self._directory_at(revision, directory))

    def read(self, object_id: ObjectId) -> bytes:
        return self._objects.read(object_id)

    def record(self, changes: Mapping[WorkspacePath, bytes | None], author: Author) -> RevisionId:
        """A revision that sets these files, or with None removes them, on top of the newest one."""
        tip = self.tip()
        parent = self._commit(tip) if tip else None
        at = next_stamp(self._clock.now(), *([parent.at] if parent else []))
        told = [
            FileChange(path, self._before(tip, path), after)
            for path, after in sorted(changes.items())
        ]
        batch = self._objects.batch()
        tree = self._write_tree(parent.tree if parent else None, _nested(changes), batch)
        data = _commit_bytes(tree or batch.tree({}), tip, author, at, message(told, author, at))
        revision = RevisionId(batch.commit(data))
        batch.sync()
        self._move_branch(revision, expect=tip)
        return revision

    def log(self, *, path: WorkspacePath | None = None, limit: int = 50) -> list[Revision]:
        """Newest first; with a path only the revisions that touched it."""
        if self.tip() is None:
            return []
        shown = _FIELD.join(("%H", "%P", "%an", "%s", "%B", ""))
        out = self._git(
            "log",
            "-z",
            "--name-only",
            "--no-renames",
            f"--format={_RECORD}{shown}",
            f"--max-count={min(limit, LOG_ENTRIES_MAX)}",
            "--end-of-options",
            BRANCH,
            "--",
            *([path] if path else []),
        )
        return [_revision(text) for text in out.decode(errors="replace").split(_RECORD)[1:]]

    def _directory_at(self, revision: RevisionId | None, directory: str) -> Entries:
        if revision is None:
            return {}
        entries = self._objects.entries(self._commit(revision).tree)
        for part in directory.split("/") if directory else ():
            entry = entries.get(part)
            if entry is None or entry.mode != TREE_MODE:
                return {}
            entries = self._objects.entries(entry.id)
        return entries

    def _before(self, tip: RevisionId | None, path: WorkspacePath) -> bytes | None:
        found = self.find(tip, path)
        return self.read(found) if found else None

    def _commit(self, revision: RevisionId) -> _Commit:
        head, _, body = self._objects.read(revision).decode(errors="replace").partition("\n\n")
        tree = head.partition("\n")[0].removeprefix("tree ")
        return _Commit(revision, ObjectId(tree), Stamp(trailers_of(body).get("At", _EARLIEST)))

    def _files(self, tree: ObjectId, prefix: str) -> list[tuple[WorkspacePath, ObjectId]]:
        found: list[tuple[WorkspacePath, ObjectId]] = []
        for name, entry in self._objects.entries(tree).items():
            if entry.mode == TREE_MODE:
                found += self._files(entry.id, f"{prefix}{name}/")
            else:
                found.append((WorkspacePath(prefix + name), entry.id))
        return found

    def _write_tree(self, base: ObjectId | None, changes: _Nested, batch: Batch) -> ObjectId | None:
        """The tree `base` with the changes made; None when nothing is left in it."""
        entries: Entries = self._objects.entries(base) if base else {}
        for name, change in changes.items():
            written = self._write_entry(entries.get(name), change, batch)
            if written is None:
                entries.pop(name, None)
            else:
                entries[name] = written
        return batch.tree(entries) if entries else None

    def _write_entry(self, old: Entry | None, change: _Change, batch: Batch) -> Entry | None:
        if change is None:
            return None
        if isinstance(change, bytes):
            return Entry(FILE_MODE, batch.blob(change))
        below = old.id if old and old.mode == TREE_MODE else None
        tree = self._write_tree(below, change, batch)
        return Entry(TREE_MODE, tree) if tree else None

    def _move_branch(self, revision: RevisionId, *, expect: RevisionId | None) -> None:
        """A lock left behind by a killed process is taken away: the writer lock is held, so its
        owner cannot be alive."""
        file = self._directory / BRANCH
        lock = file.with_name(f"{file.name}.lock")
        try:
            lock.unlink(missing_ok=True)
            with lock.open("x") as stream:
                actual = self.tip()
                if actual != expect:
                    raise Conflict("history", file.name, expected=expect, actual=actual)
                stream.write(f"{revision}\n")
                stream.flush()
                os.fsync(stream.fileno())
            lock.rename(file)
            sync(file.parent)
        except OSError as error:
            raise unwritable(error) from error

    def _git(self, *arguments: str) -> bytes:
        return run_git(f"--git-dir={self._directory}", *arguments)


_Nested: TypeAlias = "dict[str, bytes | _Nested | None]"
_Change: TypeAlias = "bytes | _Nested | None"


def _nested(changes: Mapping[WorkspacePath, bytes | None]) -> _Nested:
    """`{"notes/a.md": …}` as `{"notes": {"a.md": …}}`: the shape that trees are written in. What goes
    comes first: a file may have the place of a directory now, or a directory that of a file."""
    root: _Nested = {}
    for path, after in sorted(changes.items(), key=lambda change: change[1] is not None):
        *directories, leaf = path.split("/")
        here = root
        for directory in directories:
            below = here.setdefault(directory, {})
            if not isinstance(below, dict):  # a file that goes, and a directory in its place
                below = here[directory] = {}
            here = below
        here[leaf] = after
    return root


def _commit_bytes(
    tree: ObjectId, parent: RevisionId | None, author: Author, at: Stamp, text: str
) -> bytes:
    seconds = int(moment_of(at).timestamp())
    name = one_line(author.name).translate({ord("<"): None, ord(">"): None}).strip() or "unknown"
    email = one_line(author.email).translate({ord("<"): None, ord(">"): None, ord(" "): None})
    head = [
        f"tree {tree}",
        *([f"parent {parent}"] if parent else []),
        f"author {name} <{email}> {seconds} +0000",
        f"committer {COMMITTER} {seconds} +0000",
    ]
    return "\n".join([*head, "", text]).encode()


def _revision(text: str) -> Revision:
    revision, parents, author, subject, body, names = text.split(_FIELD)
    trailers = trailers_of(body)
    return Revision(
        id=RevisionId(revision),
        parents=tuple(RevisionId(parent) for parent in parents.split()),
        at=Stamp(trailers.pop("At", _EARLIEST)),
        author=author,
        subject=subject,
        trailers=trailers,
        paths=tuple(name for name in names.strip("\n\0").split("\0") if name),
    )
