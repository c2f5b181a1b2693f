"""The message of a revision: who wrote, when, from which conversation, and what changed.

Author and trailers are the provenance of memory. `blame` leads from a line to the conversation that wrote
it only because every writer names itself here. Each field of a message is one line without control
characters. So no name and no conversation key can forge a trailer.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NewType

from workspaces.file import is_binary, size_text
from workspaces.paths import WorkspacePath
from workspaces.timestamp import Stamp

RevisionId = NewType("RevisionId", str)
"""The hash of a git commit."""

RevisionSource = Literal[
    "turn", "edit", "api", "mcp", "extract", "sleep", "director", "memorize", "sync"
]

SUBJECT_CHARACTERS_MAX = 100
QUOTE_CHARACTERS_MAX = 60
FIELD_CHARACTERS_MAX = 500

_BECAUSE = {
    "Adopted": ("adopted", 200),
    "Imported": ("imported from", 30),
    "Restored": ("restored from", 10),
    "Reverted": ("reverted", 10),
}
"""Trailers that give the reason of a revision.

Each maps to the words that begin the subject, and to the characters of the value that follow them.
"""

_LIST_MARK = re.compile(r"^\s*([-*+]|\d+[.)]|#+|>)\s+")


@dataclass(frozen=True, slots=True)
class Author:
    """The writer of a revision and its reason: becomes the author and the trailers of the revision."""

    name: str
    id: str
    source: RevisionSource
    trailers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Agent, Conversation, Turn, Call, Event, Model: those that apply."""

    @property
    def email(self) -> str:
        return f"{self.id}@workspace-harness"

    def saying(self, key: str, value: str) -> Author:
        """Return the same author with one more trailer."""
        return replace(self, trailers={**self.trailers, key: value})


SYNC = Author("sync", "sync", "sync")
"""The author of files that arrive without their history, and of merges of two histories."""


@dataclass(frozen=True, slots=True)
class Revision:
    id: RevisionId
    parents: tuple[RevisionId, ...]
    at: Stamp
    author: str
    subject: str
    trailers: Mapping[str, str]
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileChange:
    """The content of one file before and after a change; None where the file does not exist."""

    path: WorkspacePath
    before: bytes | None
    after: bytes | None


def message(changes: list[FileChange], author: Author, at: Stamp) -> str:
    trailers = {"At": at, **author.trailers, "Source": author.source}
    lines = [f"{key}: {one_line(value)}" for key, value in trailers.items()]
    because = [
        f"{verb} {one_line(author.trailers[key])[:characters]} · "
        for key, (verb, characters) in _BECAUSE.items()
        if key in author.trailers
    ]
    first_line = shortened("".join([*because, subject(changes)]), SUBJECT_CHARACTERS_MAX)
    return "\n".join([first_line, "", *lines, ""])


def merge_message(parents: Sequence[RevisionId], author: Author, at: Stamp) -> str:
    """Return the message of a merge. It depends only on the merged revisions, so every machine agrees."""
    names = " and ".join(parent[:8] for parent in parents)
    return "\n".join([f"merge of {names}", "", f"At: {at}", f"Source: {author.source}", ""])


def trailers_of(text: str) -> dict[str, str]:
    """Return the trailers of a message: its last paragraph, parsed."""
    last = text.strip().rpartition("\n\n")[2]
    pairs = (line.partition(": ") for line in last.splitlines())
    return {key: value for key, colon, value in pairs if colon}


def subject(changes: list[FileChange]) -> str:
    """Return a short summary for a person who reads a hundred: `MEMORY.md: +2 −1 · likes tea`."""
    if not changes:
        return "no file changed"
    if len(changes) != 1:
        names = ", ".join(change.path for change in changes)
        return shortened(f"{len(changes)} files: {names}", SUBJECT_CHARACTERS_MAX)
    (change,) = changes
    if change.after is None:
        return f"{change.path}: deleted"
    if is_binary(change.after):
        return f"{change.path}: binary, {size_text(len(change.after))}"
    added, removed = _moved_lines(change.before or b"", change.after)
    # a line without a word, such as the `---` of front matter, says nothing
    quotes = (quote_of(line) for line in added if any(map(str.isalnum, line)))
    excerpt = next((quote for quote in quotes if quote), "")
    counts = f"{change.path}: +{len(added)} −{removed}"
    return f"{counts} · {excerpt}" if excerpt else counts


def one_line(text: str) -> str:
    printable = (
        "" if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} and c not in "\t\n" else c
        for c in text
    )
    return shortened(" ".join("".join(printable).split()), FIELD_CHARACTERS_MAX)


def _moved_lines(before: bytes, after: bytes) -> tuple[list[str], int]:
    """Return the added lines in order and the number of removed lines. A moved line counts as neither."""
    old = Counter(before.decode(errors="replace").splitlines())
    added: list[str] = []
    for line in after.decode(errors="replace").splitlines():
        if old[line] > 0:
            old[line] -= 1
        else:
            added.append(line)
    return added, old.total()


def quote_of(line: str) -> str:
    """Return the beginning of a line, as a subject quotes it."""
    return shortened(one_line(_LIST_MARK.sub("", line)), QUOTE_CHARACTERS_MAX)


def shortened(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else text[: characters_max - 1].rstrip() + "…"
