"""The format in which `git log` prints revisions, and parsing its output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from workspaces.history.diff import FileDifference, SizeOf, parse_patch
from workspaces.history.git.commit import EARLIEST
from workspaces.revision import Revision, RevisionId, trailers_of
from workspaces.timestamp import Stamp

_RECORD, _FIELD, _END = "\x1e", "\x1f", "\x1f\x1d"
FORMAT = f"--format={_RECORD}%H{_FIELD}%P{_FIELD}%an{_FIELD}%B{_END}"

_START = re.compile(rf"^{_RECORD}(?=[0-9a-f]{{40}}{_FIELD})", re.MULTILINE)
_START_AFTER_NUL = re.compile(rf"(?:^|\0){_RECORD}(?=[0-9a-f]{{40}}{_FIELD})")
"""Where an entry begins. No line of a patch begins so, and no message that this program writes. A foreign
message that does can only garble its own entry."""

_SPECIAL = re.compile(r"[^\w\s]", re.ASCII)
"""Characters that mean something in a regular expression of git."""


@dataclass(frozen=True, slots=True)
class RevisionChanges:
    """A revision with its change to each file."""

    revision: Revision
    files: tuple[FileDifference, ...]


def parse_log(out: bytes) -> list[Revision]:
    """Parse the output of `git log -z --name-only`."""
    revisions: list[Revision] = []
    for header, rest in entries(out, nul=True):
        names = rest.strip("\n\0").split("\0")
        revisions.append(revision_of(header, tuple(name for name in names if name)))
    return revisions


def parse_changes(out: bytes, size_of: SizeOf) -> list[RevisionChanges]:
    """Parse the output of `git log --patch`."""
    changes: list[RevisionChanges] = []
    for header, rest in entries(out):
        files = parse_patch(rest, size_of)
        changes.append(
            RevisionChanges(revision_of(header, tuple(file.path for file in files)), files)
        )
    return changes


def entries(out: bytes, *, nul: bool = False) -> Iterator[tuple[str, str]]:
    """Yield each revision's FORMAT header and the text after it. `nul` says that git ran with `-z`."""
    start = _START_AFTER_NUL if nul else _START
    for text in start.split(out.decode(errors="replace"))[1:]:
        header, _, rest = text.partition(_END)
        yield header, rest


def revision_of(header: str, paths: tuple[str, ...]) -> Revision:
    revision, parents, author, body = header.split(_FIELD, 3)
    trailers = trailers_of(body)
    return Revision(
        id=RevisionId(revision),
        parents=tuple(RevisionId(parent) for parent in parents.split()),
        at=Stamp(trailers.pop("At", EARLIEST)),
        author=author,
        subject=body.partition("\n")[0],
        trailers=trailers,
        paths=paths,
    )


def literal(text: str) -> str:
    """Return the regular expression of git that finds this text, which is ASCII, and nothing else."""
    return _SPECIAL.sub(_bracketed, text)


def _bracketed(match: re.Match[str]) -> str:
    return r"\^" if match[0] == "^" else f"[{match[0]}]"
