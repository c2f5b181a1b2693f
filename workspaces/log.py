"""What `git log` is asked to print, and reading it back."""

from __future__ import annotations

import re
from dataclasses import dataclass

from workspaces.commit import EARLIEST
from workspaces.difference import FileDifference, parse_patch
from workspaces.revision import Revision, RevisionId, trailers_of
from workspaces.stamp import Stamp

_RECORD, _FIELD = "\x1e", "\x1f"
FORMAT = "--format=" + _RECORD + _FIELD.join(("%H", "%P", "%an", "%s", "%B", ""))

_START = re.compile(rf"^{_RECORD}(?=[0-9a-f]{{40}}{_FIELD})", re.MULTILINE)
"""Neither a line of a patch nor one of our messages begins like this."""


@dataclass(frozen=True, slots=True)
class Change:
    """A revision and what it did to each file."""

    revision: Revision
    files: tuple[FileDifference, ...]


def parse_log(out: bytes) -> list[Revision]:
    """With `-z --name-only`."""
    found: list[Revision] = []
    for text in out.decode(errors="replace").split(_RECORD)[1:]:
        names = text.split(_FIELD, 5)[5].strip("\n\0").split("\0")
        found.append(_revision(text, tuple(name for name in names if name)))
    return found


def parse_changes(out: bytes) -> list[Change]:
    """With a patch."""
    found: list[Change] = []
    for text in _START.split(out.decode(errors="replace"))[1:]:
        files = parse_patch(text.split(_FIELD, 5)[5])
        found.append(Change(_revision(text, tuple(file.path for file in files)), files))
    return found


def _revision(text: str, paths: tuple[str, ...]) -> Revision:
    revision, parents, author, subject, body, _ = text.split(_FIELD, 5)
    trailers = trailers_of(body)
    return Revision(
        id=RevisionId(revision),
        parents=tuple(RevisionId(parent) for parent in parents.split()),
        at=Stamp(trailers.pop("At", EARLIEST)),
        author=author,
        subject=subject,
        trailers=trailers,
        paths=paths,
    )
