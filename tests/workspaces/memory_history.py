"""A history in memory, of one machine: what `Workspace` and `Replication` need of one, and no more.

Revisions are named by what they are, as git's are; bundles are pickled.
"""

from __future__ import annotations

import pickle
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from hashlib import sha1
from typing import Any

from workspaces.clock import Clock
from workspaces.errors import Unavailable
from workspaces.history.git.objects import ObjectId, blob_id
from workspaces.history.git.rewrite import Redaction, RewrittenHistory
from workspaces.history.source import stamps_before
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.timestamp import Stamp, moment_of, next_stamp


@dataclass(frozen=True)
class Commit:
    id: str
    parents: tuple[str, ...]
    at: Stamp
    tree: dict[WorkspacePath, ObjectId]
    trailers: dict[str, str]
    author_id: str

    @property
    def place(self) -> tuple[int, Stamp]:
        return int(moment_of(self.at).timestamp()), self.at


class MemoryHistory:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.objects: dict[ObjectId, bytes] = {}
        self.commits: dict[str, Commit] = {}
        self.made: set[str] = set()
        """Whatever was the newest revision here at some time."""
        self._tip: str | None = None
        self._lines: dict[str, frozenset[str]] = {}

    is_there = True
    is_replaced = False

    def tip(self) -> str | None:
        return self._tip

    def has(self, revision: str) -> bool:
        return revision in self.commits

    def descends(self, revision: str | None, ancestor: str | None) -> bool:
        return ancestor is None or (revision is not None and ancestor in self.line(revision))

    def commit(self, revision: str) -> Commit:
        present = self.present_ids(self._tip) if self._tip and revision not in self.commits else {}
        present_id = present.get(revision, revision)
        if present_id not in self.commits:  # of a history that was replaced
            raise Unavailable("history", "a revision is missing")
        return self.commits[present_id]

    def tree(self, revision: str | None) -> dict[WorkspacePath, ObjectId]:
        return dict(self.commit(revision).tree) if revision else {}

    def differences(self, older: str | None, newer: str | None) -> dict[WorkspacePath, Any]:
        one, other = self.tree(older), self.tree(newer)
        pairs = {path: (one.get(path), other.get(path)) for path in {**one, **other}}
        return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}

    def find(self, revision: str | None, path: WorkspacePath) -> ObjectId | None:
        return self.commits[revision].tree.get(path) if revision else None

    def names(self, revision: str | None, directory: str) -> list[str]:
        paths = self.commits[revision].tree if revision else {}
        start = f"{directory}/" if directory else ""
        return [p.removeprefix(start).split("/")[0] for p in paths if p.startswith(start)]

    def read(self, object_id: ObjectId) -> bytes:
        if object_id not in self.objects:
            raise Unavailable("history", "an object is missing")
        return self.objects[object_id]

    def keep(self, data: bytes) -> ObjectId:
        self.objects[blob_id(data)] = data
        return blob_id(data)

    def log(self, *, path: WorkspacePath | None = None, limit: int = 50) -> list[Commit]:
        return [self.commits[self._tip]] if self._tip else []

    def record(
        self,
        changes: Any,
        author: Author,
        *,
        beside: Any = None,
        beside_by: Author | None = None,
        at: Stamp | None = None,
    ) -> str:
        parents = (self._tip,) if self._tip else ()
        if beside:
            parents = (*parents, self._made(beside, parents, beside_by or author))
        return self._moved(self._made(changes, parents, author, at))

    def follow(
        self,
        theirs: str,
        differing: Any,
        author: Author,
        *,
        beside: Any = None,
        beside_by: Author | None = None,
        is_replaced: bool = False,
    ) -> str:
        onto = self._made(beside, (theirs,), beside_by or author) if beside else theirs
        if is_replaced:
            self.is_replaced = True
            present = self.present_ids(theirs)
            self.made = {present[one] for one in self.made if one in present}
        if self._tip is None or is_replaced or self.descends(theirs, self._tip):
            return self._moved(self._made(differing, (onto,), author) if differing else onto)
        return self._moved(self._merged(differing, self._tip, onto, author))

    def is_replaced_by(self, theirs: str) -> bool:
        if self._tip is None or self.descends(theirs, self._tip):
            return False
        new = (self.commits[one] for one in self.line(theirs) - self.line(self._tip))
        return any("Was" in one.trailers or "Forgot" in one.trailers for one in new)

    def rewrite(self, redaction: Redaction, *, is_dry: bool = False) -> RewrittenHistory | None:
        del is_dry
        if self._tip is None:
            return None
        renamed: dict[str, str] = {}
        paths: set[str] = set()
        for one in sorted(self.line(self._tip), key=lambda one: len(self.line(one))):
            commit = self.commits[one]
            parents = tuple(renamed.get(of, of) for of in commit.parents)
            changed: dict[WorkspacePath, bytes | None] = {}
            for path, blob in commit.tree.items():
                redacted = redaction.file(path, self.objects[blob])
                if redacted is not None:
                    changed[path] = redacted.data
            if changed or parents != commit.parents:
                was = f"{commit.trailers.get('Was', '')} {one}".strip()
                trailers = {**commit.trailers, "Was": was}
                rewritten = replace(
                    commit, parents=parents, tree=dict(commit.tree), trailers=trailers
                )
                renamed[one] = self._added(rewritten, changed)
                paths |= changed.keys()
        tip = renamed.get(self._tip, self._tip)
        return RewrittenHistory(tip, (), renamed, frozenset(paths))  # pyright: ignore[reportArgumentType]

    def replace(self, tip: str, *, expect: str) -> None:
        assert self._tip == expect
        self.is_replaced = True
        present = self.present_ids(tip)
        self.made = {present[one] for one in self.made}
        self._moved(tip)

    def erase_replaced(self) -> None:
        line = self.line(self._tip) if self._tip else frozenset[str]()
        blobs = self.reachable()
        self.commits = {one: commit for one, commit in self.commits.items() if one in line}
        self.objects = {of: data for of, data in self.objects.items() if of in blobs}
        self._lines.clear()

    def end_erasure(self) -> None:
        self.is_replaced = False

    def present_ids(self, tip: str) -> dict[str, str]:
        """The revisions that a newest one has grown from, by each id that they ever had."""
        line = self.line(tip)
        past = {
            was: one for one in line for was in self.commits[one].trailers.get("Was", "").split()
        }
        return {**past, **{one: one for one in line}}

    def ahead(self) -> list[Commit]:
        """None: it has no date of git's to look by."""
        return []

    def next_stamp(self) -> Stamp:
        parents = (self.commits[self._tip].at,) if self._tip else ()
        return next_stamp(self._clock.now(), *parents)

    def bundles(self, tip: str, known: Any) -> Iterator[tuple[str, bytes]]:
        there = set[str]().union(*(self.line(one) for one in known))
        wanted = [self.commits[one] for one in self.line(tip) - there]
        blobs = {of for commit in wanted for of in commit.tree.values()}
        yield tip, pickle.dumps((tip, wanted, {of: self.objects[of] for of in blobs}))

    def quarantine(self) -> Quarantine:
        return Quarantine(self)

    def receive(self, quarantine: Quarantine, revision: str) -> None:
        self.commits.update(quarantine.commits)
        self.objects.update(quarantine.objects)
        self.line(revision)

    def line(self, revision: str) -> frozenset[str]:
        """It, and all that it has grown from."""
        found = self._lines.get(revision)
        if found is None:
            parents = self.commits[revision].parents
            found = frozenset((revision,)).union(*(self.line(one) for one in parents))
            self._lines[revision] = found
        return found

    def reachable(self) -> set[ObjectId]:
        line = self.line(self._tip) if self._tip else frozenset[str]()
        return {of for one in line for of in self.commits[one].tree.values()}

    def _moved(self, tip: str) -> str:
        self.made.add(tip)
        self._tip = tip
        return tip

    def _made(
        self, changes: Any, parents: tuple[str, ...], by: Author, at: Stamp | None = None
    ) -> str:
        now = self._clock.now() if at is None else moment_of(at)
        received = stamps_before(by.trailers)
        at = next_stamp(now, *(self.commits[one].at for one in parents), *received)
        trailers = {**by.trailers, "Source": by.source}
        base = self.tree(parents[0] if parents else None)
        return self._added(Commit("", parents, at, base, trailers, by.id), changes)

    def _merged(self, changes: Any, ours: str, onto: str, by: Author) -> str:
        parents = tuple(sorted((ours, onto)))
        at = max(self.commits[one].at for one in parents)
        made = Commit("", parents, at, self.tree(onto), {"Source": by.source}, by.id)
        return self._added(made, changes)

    def _added(self, made: Commit, changes: Any) -> str:
        tree = made.tree
        for path, after in changes.items():
            if after is None:
                tree.pop(path, None)
            elif isinstance(after, str):
                tree[path] = ObjectId(after)
            else:
                tree[path] = blob_id(after)
                self.objects[tree[path]] = after
        bits = (made.parents, made.at, sorted(tree.items()), sorted(made.trailers.items()))
        name = sha1(repr(bits).encode(), usedforsecurity=False).hexdigest()
        self.commits[name] = replace(made, id=name, tree=tree)
        return name


class Quarantine:
    def __init__(self, history: MemoryHistory) -> None:
        self._history = history
        self.commits: dict[str, Commit] = {}
        self.objects: dict[ObjectId, bytes] = {}

    def take(self, data: bytes) -> str:
        tip, commits, objects = pickle.loads(data)
        self.commits.update({commit.id: commit for commit in commits})
        self.objects.update(objects)
        known = {**self._history.commits, **self.commits}
        assert all(one in known for commit in commits for one in commit.parents), "not whole"
        return tip

    def check(self) -> None:
        pass

    def files(self, revision: str, wanted: Any) -> Generator[tuple[WorkspacePath, bytes]]:
        tree, objects = self.commits[revision].tree, {**self._history.objects, **self.objects}
        for path in wanted & tree.keys():
            yield path, objects[tree[path]]

    def close(self) -> None:
        self.commits.clear()
        self.objects.clear()
