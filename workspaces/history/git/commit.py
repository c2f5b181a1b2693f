"""A commit's bytes: what a revision is to git."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workspaces.history.git.objects import ObjectId
from workspaces.revision import Author, RevisionId, one_line, trailers_of
from workspaces.timestamp import Stamp, moment_of

COMMITTER = "workspace-harness <harness@workspace-harness>"

EARLIEST = Stamp("1970-01-01T00:00:00.000000Z")
"""Of a revision without a stamp: somebody else's."""

COMMITTED_MAX = 2**40
"""Some 35 000 years. Git's own limit is far beyond, and what counts on from here must not reach it."""

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
"""What nearly every revision is: one line of text, and trailers without anything that could be taken for
the end of a line, of which the first, and no other, is its stamp."""


@dataclass(frozen=True, slots=True)
class Commit:
    id: RevisionId
    tree: ObjectId
    parents: tuple[RevisionId, ...]
    at: Stamp
    author: str
    trailers: Mapping[str, str]
    committed: int
    """Git's own date, in seconds: when it was made, but never before its parents'. Git walks a history by
    it, and misses ancestors where it goes back."""

    @property
    def place(self) -> tuple[int, Stamp]:
        """Later than that of everything that the revision has grown from; but a merge may have its
        parent's."""
        return self.committed, self.at


def parse_commit(revision: RevisionId, data: bytes) -> Commit:
    head, _, body = data.decode(errors="replace").partition("\n\n")
    fields = [line.partition(" ")[::2] for line in head.split("\n")]
    trailers = trailers_of(body)
    return Commit(
        revision,
        tree=ObjectId(next(value for name, value in fields if name == "tree")),
        parents=tuple(RevisionId(value) for name, value in fields if name == "parent"),
        at=Stamp(trailers.pop("At", EARLIEST)),
        author=next(value for name, value in fields if name == "author").partition(" <")[0],
        trailers=trailers,
        committed=_seconds(next(value for name, value in fields if name == "committer")),
    )


def glance(revision: RevisionId, data: bytes) -> tuple[ObjectId, Stamp]:
    """Its tree and its stamp, as `parse_commit` reads them and in an eighth of the time: whoever is new
    looks at every revision there is."""
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
    committed = seconds if seconds >= newest else newest + 1  # a parent is ahead of this clock
    name = one_line(author.name).translate({ord("<"): None, ord(">"): None}).strip() or "unknown"
    email = one_line(author.email).translate({ord("<"): None, ord(">"): None, ord(" "): None})
    head = [
        f"tree {tree}",
        *(f"parent {parent.id}" for parent in parents),
        f"author {name} <{email}> {seconds} +0000",
        f"committer {COMMITTER} {committed} +0000",
    ]
    return "\n".join([*head, "", text]).encode()


def _seconds(committer: str) -> int:
    """Of a line that anybody may have written."""
    found = _DATE.search(committer)
    return min(int(found[1]), COMMITTED_MAX) if found else 0
