"""What differs between two revisions, file by file, as git tells it.

A patch is cut into files by its own grammar: a line of content always begins with one of ` +-\\`, so
nothing that anyone wrote into a file can be taken for a heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from workspaces.history.line_matching import Hunk, hunks
from workspaces.revision import RevisionId

PATCH_OPTIONS = (
    "--patch",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""Git knows it without being told: what was there before the first revision."""

ALIKE_MIN = 0.4
"""Of the shorter text's characters. Texts that share less are read one after the other: word by word
they would only be mixed."""

_HEADING = "diff --git "
_WORD = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class FileDifference:
    path: str
    kind: Literal["added", "deleted", "changed"]
    binary: bool
    added: int
    removed: int
    patch: str
    """Unified hunks, from the first `@@`; empty when there are none to show."""


@dataclass(frozen=True, slots=True)
class Difference:
    older: RevisionId | None
    """None: before the first revision."""
    newer: RevisionId | None
    files: tuple[FileDifference, ...]


Span = tuple[Literal[" ", "-", "+"], str]
"""Words that stayed, went or came."""


def parse_patch(text: str) -> tuple[FileDifference, ...]:
    files: list[list[str]] = []
    for line in text.split("\n"):
        if line.startswith(_HEADING):
            files.append([])
        if files:
            files[-1].append(line)
    return tuple(_file(lines) for lines in files)


def words(patch: str) -> list[Span]:
    """A patch word by word: lines that changed are shown once, with what went and came in them."""
    spans: list[Span] = []
    old: list[str] = []
    new: list[str] = []
    for line in [*patch.split("\n"), ""]:
        mark, text = line[:1], line[1:]
        if mark == "-" and not new:
            old.append(text)
        elif mark == "+":
            new.append(text)
        elif mark != "\\":
            spans += _word_spans("\n".join(old), "\n".join(new), ended=bool(old or new))
            old, new = ([text], []) if mark == "-" else ([], [])
            if mark in {" ", "@"}:
                spans.append((" ", f"{line if mark == '@' else text}\n"))
    return spans


def _word_spans(old: str, new: str, *, ended: bool) -> Iterable[Span]:
    before, after = _WORD.findall(old), _WORD.findall(new)
    found = list(hunks(before, after))
    if old and new and not _alike(before, after, found):
        yield "-", f"{old}\n"
        yield "+", f"{new}\n"
        return
    at = 0
    for hunk in found:
        yield " ", "".join(before[at : hunk.old_start])
        yield "-", "".join(before[hunk.old_start : hunk.old_end])
        yield "+", "".join(after[hunk.new_start : hunk.new_end])
        at = hunk.old_end
    yield " ", "".join(before[at:]) + ("\n" if ended else "")


def _alike(before: list[str], after: list[str], found: list[Hunk]) -> bool:
    stayed = sum(map(_weight, before)) - sum(
        sum(map(_weight, before[hunk.old_start : hunk.old_end])) for hunk in found
    )
    return stayed >= ALIKE_MIN * max(1, min(sum(map(_weight, before)), sum(map(_weight, after))))


def _weight(word: str) -> int:
    return 0 if word.isspace() else len(word)


def _file(lines: list[str]) -> FileDifference:
    start = next((n for n, line in enumerate(lines) if line.startswith("@@ ")), len(lines))
    head, body = lines[:start], lines[start:]
    if body and not body[-1]:
        body.pop()
    kind: Literal["added", "deleted", "changed"] = "changed"
    if any(line.startswith("new file mode ") for line in head):
        kind = "added"
    elif any(line.startswith("deleted file mode ") for line in head):
        kind = "deleted"
    return FileDifference(
        path=_path(lines[0]),
        kind=kind,
        binary=any(line.startswith("Binary files ") for line in head),
        added=sum(line.startswith("+") for line in body),
        removed=sum(line.startswith("-") for line in body),
        patch="".join(f"{line}\n" for line in body),
    )


def _path(heading: str) -> str:
    """`diff --git a/X b/X`: renames are not looked for, so both names are the same."""
    names = heading.removeprefix(_HEADING + "a/")
    return names[: (len(names) - len(" b/")) // 2]
