"""Blame: for every line of a file, the revision that wrote it and its conversation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from workspaces.history.git.commit import Commit
from workspaces.revision import RevisionId
from workspaces.timestamp import Stamp

_HEADER = re.compile(rb"([0-9a-f]{40}) \d+ \d+")


@dataclass(frozen=True, slots=True)
class BlamedLine:
    number: int
    text: str
    """The line without its newline. Bytes that are not valid UTF-8 are shown as �."""
    revision: RevisionId
    at: Stamp
    author: str
    conversation: str | None
    turn: str | None


def parse_porcelain(out: bytes) -> list[tuple[RevisionId, bytes]]:
    """Parse `git blame --porcelain` into each line's revision and bytes. Content always follows a tab."""
    lines: list[tuple[RevisionId, bytes]] = []
    revision = b""
    for line in out.split(b"\n"):
        if line.startswith(b"\t"):
            lines.append((RevisionId(revision.decode()), line[1:]))
        elif header := _HEADER.match(line):
            revision = header[1]
    return lines


def blamed_line(number: int, data: bytes, commit: Commit) -> BlamedLine:
    return BlamedLine(
        number=number,
        text=data.decode(errors="replace"),
        revision=commit.id,
        at=commit.at,
        author=commit.author,
        conversation=commit.trailers.get("Conversation"),
        turn=commit.trailers.get("Turn"),
    )
