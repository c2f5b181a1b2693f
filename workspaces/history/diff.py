"""The differences between two revisions, file by file, parsed from git's patch.

A patch is split into files by its own grammar. A line of content always begins with one of ` +-\\`, so
no text inside a file can be mistaken for a heading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from workspaces.history.git.objects import ObjectId
from workspaces.history.line_matching import Hunk, hunks
from workspaces.revision import RevisionId

PATCH_OPTIONS = (
    "--patch",
    "--full-index",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The empty tree, which stands for the state before the first revision. Every git has it built in."""

ALIKE_MIN = 0.4
"""Share of the shorter text's characters that both texts must have in common. Texts that share less are
shown one after the other; a word-by-word comparison would only mix them."""

CONTEXT_LINES = 3
"""Unchanged lines around a change, as in git's patches."""

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
    """Unified hunks, from the first `@@`. Empty if there are none to show."""
    size: int | None = None
    """Bytes of a binary file after the change; before it for a deleted one. None for a text."""


@dataclass(frozen=True, slots=True)
class Difference:
    older: RevisionId | None
    """None stands for before the first revision."""
    newer: RevisionId | None
    files: tuple[FileDifference, ...]


Span = tuple[Literal[" ", "-", "+"], str]
"""Text that was kept (` `), removed (`-`) or added (`+`)."""


SizeOf = Callable[[ObjectId], int]
"""Returns the size of a blob."""


def parse_patch(text: str, size_of: SizeOf) -> tuple[FileDifference, ...]:
    """Parse a patch of git, which names the blobs in full."""
    files: list[list[str]] = []
    for line in text.split("\n"):
        if line.startswith(_HEADING):
            files.append([])
        if files:
            files[-1].append(line)
    return tuple(_file(lines, size_of) for lines in files)


def words(patch: str) -> list[Span]:
    """Return a patch word by word. A changed line appears once, with its removed and added words marked."""
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
            spans += _word_spans("\n".join(old), "\n".join(new), has_lines=bool(old or new))
            old, new = ([text], []) if mark == "-" else ([], [])
            if mark in {" ", "@"}:
                spans.append((" ", f"{line if mark == '@' else text}\n"))
    return spans


def words_between(old: str, new: str) -> list[Span]:
    """Return the difference of two texts word by word, with `CONTEXT_LINES` lines around each change."""
    before, after = old.splitlines(), new.splitlines()
    patch: list[str] = []
    shown = 0  # the first line of `before` that is not in the patch yet
    for hunk in hunks(before, after):
        start = max(shown, hunk.old_start - CONTEXT_LINES)
        if patch:  # the lines after the former change
            end = min(shown + CONTEXT_LINES, start)
            patch += [f" {line}" for line in before[shown:end]]
            shown = end
        if start > shown or not patch:
            patch.append(f"@@ line {start + 1} @@")
        patch += [f" {line}" for line in before[start : hunk.old_start]]
        patch += [f"-{line}" for line in before[hunk.old_start : hunk.old_end]]
        patch += [f"+{line}" for line in after[hunk.new_start : hunk.new_end]]
        shown = hunk.old_end
    if patch:
        patch += [f" {line}" for line in before[shown : shown + CONTEXT_LINES]]
    return words("\n".join(patch)) if patch else []


def _word_spans(old: str, new: str, *, has_lines: bool) -> Iterable[Span]:
    before, after = _WORD.findall(old), _WORD.findall(new)
    word_hunks = list(hunks(before, after))
    if old and new and not _are_similar(before, after, word_hunks):
        yield "-", f"{old}\n"
        yield "+", f"{new}\n"
        return
    at = 0
    for hunk in word_hunks:
        yield " ", "".join(before[at : hunk.old_start])
        yield "-", "".join(before[hunk.old_start : hunk.old_end])
        yield "+", "".join(after[hunk.new_start : hunk.new_end])
        at = hunk.old_end
    yield " ", "".join(before[at:]) + ("\n" if has_lines else "")


def _are_similar(before: list[str], after: list[str], word_hunks: list[Hunk]) -> bool:
    common = sum(map(_weight, before)) - sum(
        sum(map(_weight, before[hunk.old_start : hunk.old_end])) for hunk in word_hunks
    )
    return common >= ALIKE_MIN * max(1, min(sum(map(_weight, before)), sum(map(_weight, after))))


def _weight(word: str) -> int:
    return 0 if word.isspace() else len(word)


def _file(lines: list[str], size_of: SizeOf) -> FileDifference:
    start = next((n for n, line in enumerate(lines) if line.startswith("@@ ")), len(lines))
    head, body = lines[:start], lines[start:]
    if body and not body[-1]:
        body.pop()
    kind: Literal["added", "deleted", "changed"] = "changed"
    if any(line.startswith("new file mode ") for line in head):
        kind = "added"
    elif any(line.startswith("deleted file mode ") for line in head):
        kind = "deleted"
    is_binary = any(line.startswith("Binary files ") for line in head)
    return FileDifference(
        path=_path(lines[0]),
        kind=kind,
        binary=is_binary,
        added=sum(line.startswith("+") for line in body),
        removed=sum(line.startswith("-") for line in body),
        patch="".join(f"{line}\n" for line in body),
        size=_size(head, size_of) if is_binary else None,
    )


def _size(head: list[str], size_of: SizeOf) -> int | None:
    """Return the size of the newest blob that the line `index OLD..NEW` names."""
    index = next((line for line in head if line.startswith("index ")), "")
    old, _, new = index.removeprefix("index ").partition(" ")[0].partition("..")
    blob = new if new.strip("0") else old
    return size_of(ObjectId(blob)) if blob.strip("0") else None


def _path(heading: str) -> str:
    """Return X of `diff --git a/X b/X`. Git does not detect renames here, so both names are equal."""
    names = heading.removeprefix(_HEADING + "a/")
    return names[: (len(names) - len(" b/")) // 2]
