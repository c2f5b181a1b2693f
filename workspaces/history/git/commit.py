"""The bytes of a git commit, which stores a revision."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from workspaces.history.git.objects import ObjectId
from workspaces.revision import Author, RevisionId, one_line, trailers_of
from workspaces.timestamp import Stamp, moment_of, stamp_of

COMMITTER = "workspace-harness <harness@workspace-harness>"

EARLIEST = Stamp("1970-01-01T00:00:00.000000Z")
"""The stamp of a revision that has none, because another program made it."""

REVISIONS_AHEAD_MAX = 1_000

COMMITTED_MAX = 2**40
"""Upper limit of a commit date: some 35 000 years. Git's own limit is far larger. Later revisions count on
from a parent's date and must not reach git's limit."""

_DATE = re.compile(r" ([0-9]{1,18}) [+-][0-9]{4}$", re.ASCII)

_PLAIN = re.compile(
    rb"tree ([0-9a-f]{40})\n"
    rb"(?:parent [0-9a-f]{40}\n)*"
    rb"author [^\n]+\n"
    rb"committer [^\n]+\n"
    rb"\n[^\n]+\n\n"
    rb"At: ([!-~]+)\n"
    rb"(?:(?!At: )[!-~][ -~]*\n)*"
)
"""The form of nearly every revision: one line of text, then trailers without any character that could be
taken for the end of a line. The first trailer, and no other, is the stamp."""


@dataclass(frozen=True, slots=True)
class Commit:
    id: RevisionId
    tree: ObjectId
    parents: tuple[RevisionId, ...]
    at: Stamp
    author: str
    author_id: str
    """The id of the user or agent who wrote. In a foreign history it is the name of a mail address."""
    trailers: Mapping[str, str]
    committed: int
    """Git's commit date in seconds: the time of the commit, but never before its parents' dates. Git walks a
    history by this date, and misses ancestors where it goes back."""

    @property
    def place(self) -> tuple[int, Stamp]:
        """Return the sort key of this revision. It is greater than every ancestor's, except that a merge may
        have the same key as a parent."""
        return self.committed, self.at


def parse_commit(revision: RevisionId, data: bytes) -> Commit:
    head, _, body = data.decode(errors="replace").partition("\n\n")
    fields = [line.partition(" ")[::2] for line in head.split("\n")]
    trailers = trailers_of(body)
    author, _, identity = next(value for name, value in fields if name == "author").partition(" <")
    return Commit(
        revision,
        tree=ObjectId(next(value for name, value in fields if name == "tree")),
        parents=tuple(RevisionId(value) for name, value in fields if name == "parent"),
        at=Stamp(trailers.pop("At", EARLIEST)),
        author=author,
        author_id=identity.partition("@")[0],
        trailers=trailers,
        committed=_seconds(next(value for name, value in fields if name == "committer")),
    )


def parse_tree_and_stamp(revision: RevisionId, data: bytes) -> tuple[ObjectId, Stamp]:
    """Return a commit's tree and stamp, as `parse_commit` reads them, in an eighth of the time. A new machine
    reads every revision in the history."""
    plain = _PLAIN.fullmatch(data)
    if plain is not None:
        return ObjectId(plain[1].decode()), Stamp(plain[2].decode())
    commit = parse_commit(revision, data)
    return commit.tree, commit.at


def commit_bytes(
    tree: ObjectId, parents: Sequence[Commit], author: Author, at: Stamp, text: str
) -> bytes:
    seconds = int(moment_of(at).timestamp())
    newest = max((parent.committed for parent in parents), default=seconds)
    committed = seconds if seconds >= newest else newest + 1  # else a parent is ahead of this clock
    name = one_line(author.name).translate({ord("<"): None, ord(">"): None}).strip() or "unknown"
    email = one_line(author.email).translate({ord("<"): None, ord(">"): None, ord(" "): None})
    head = [
        f"tree {tree}",
        *(f"parent {parent.id}" for parent in parents),
        f"author {name} <{email}> {seconds} +0000",
        f"committer {COMMITTER} {committed} +0000",
    ]
    return "\n".join([*head, "", text]).encode()


def commits_ahead(
    newest: Commit | None, read: Callable[[RevisionId], Commit], latest: datetime
) -> list[Commit]:
    """Return the commits with a stamp after `latest`, as a wrong clock makes them. Merges that repeat a
    parent's stamp are left out. At most REVISIONS_AHEAD_MAX commits are read."""
    waiting = [newest] if newest else []
    visited: dict[RevisionId, Commit] = {}
    while waiting and len(visited) < REVISIONS_AHEAD_MAX:
        commit = waiting.pop()
        # no ancestor has a later commit date: the walk usually ends at the newest revision
        if commit.committed < int(latest.timestamp()) or commit.id in visited:
            continue
        visited[commit.id] = commit
        waiting += map(read, commit.parents)
    repeating = {
        one.id
        for one in visited.values()
        if len(one.parents) > 1 and any(read(of).at == one.at for of in one.parents)
    }
    return [
        one for one in visited.values() if one.at > stamp_of(latest) and one.id not in repeating
    ]


def _seconds(committer: str) -> int:
    """Return the date of a committer line, or 0 without a valid one. The line is untrusted."""
    date = _DATE.search(committer)
    return min(int(date[1]), COMMITTED_MAX) if date else 0
