"""Each revision with the files in which it differs from every parent, from git's combined log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from workspaces.history.git.commit import COMMITTED_MAX, EARLIEST, Commit
from workspaces.history.git.objects import ObjectId
from workspaces.history.history import History
from workspaces.history.log import entries
from workspaces.revision import RevisionId, trailers_of
from workspaces.timestamp import Stamp

_FIELD = "\x1f"
_FORMAT = "--format=%x1e%H%x1f%P%x1f%T%x1f%ct%x1f%an%x1f%ae%x1f%B%x1f%x1d"
_OPTIONS = (
    *("--diff-merges=combined", "--raw", "-z", "--abbrev=40", "--no-renames"),
    *("--topo-order", "--reverse", _FORMAT),
)

STEPS_BACK = 8
"""Revisions that are read without git. A reader usually comes after each write."""

_NOTHING = "0" * 40
_FILE_MODES = ("100", "120")


@dataclass(frozen=True, slots=True)
class CombinedChange:
    """The object of one file in each parent of a revision, and in the revision. None: no file."""

    path: str
    before: tuple[ObjectId | None, ...]
    after: ObjectId | None


@dataclass(frozen=True, slots=True)
class RevisionFiles:
    """A revision and the files in which it differs from every parent."""

    commit: Commit
    files: tuple[CombinedChange, ...]


def revisions_since(
    history: History, known: RevisionId | None, tip: RevisionId
) -> list[RevisionFiles] | None:
    """Return the revisions that `tip` has and `known` lacks, parents before children. Return None if `tip`
    does not descend from `known`."""
    if known is not None:
        recent = _steps_back(history, known, tip)
        if recent is not None:
            return recent
        if not history.has(known) or not history.descends(tip, known):
            return None
    return parse_combined_log(
        history.ask(["log", *_OPTIONS, tip, *([f"^{known}"] if known else [])])
    )


def parse_combined_log(out: bytes) -> list[RevisionFiles]:
    """Parse the output of `git log` with _OPTIONS."""
    return [
        RevisionFiles(_commit(header), tuple(_files(raw))) for header, raw in entries(out, nul=True)
    ]


def _steps_back(history: History, known: RevisionId, tip: RevisionId) -> list[RevisionFiles] | None:
    """Return the revisions from `known` to `tip` if they are few and in one line."""
    found: list[RevisionFiles] = []
    revision = tip
    while revision != known:
        if len(found) == STEPS_BACK:
            return None
        commit = history.commit(revision)
        if len(commit.parents) != 1:
            return None
        differing = history.differences(commit.parents[0], revision).items()
        changes = (CombinedChange(path, (old,), new) for path, (old, new) in differing)
        found.append(RevisionFiles(commit, tuple(changes)))
        revision = commit.parents[0]
    return found[::-1]


def _commit(header: str) -> Commit:
    revision, parents, tree, committed, author, email, body = header.split(_FIELD, 6)
    trailers: Mapping[str, str] = trailers_of(body)
    return Commit(
        RevisionId(revision),
        tree=ObjectId(tree),
        parents=tuple(RevisionId(parent) for parent in parents.split()),
        at=Stamp(trailers.get("At", EARLIEST)),
        author=author,
        author_id=email.partition("@")[0],
        trailers=trailers,
        committed=min(int(committed), COMMITTED_MAX),
    )


def _files(raw: str) -> Iterator[CombinedChange]:
    """Yield the files of one revision. A line has one colon, mode and object more for each further parent."""
    words = iter(raw.split("\0"))
    for word in words:
        line = word.lstrip("\n")
        if not line.startswith(":"):
            continue
        parents = len(line) - len(line.lstrip(":"))
        fields = line[parents:].split(" ")
        modes, objects = fields[: parents + 1], fields[parents + 1 : 2 * parents + 2]
        states = tuple(
            ObjectId(of) if of != _NOTHING and mode.startswith(_FILE_MODES) else None
            for mode, of in zip(modes, objects, strict=True)
        )
        yield CombinedChange(next(words), states[:-1], states[-1])
