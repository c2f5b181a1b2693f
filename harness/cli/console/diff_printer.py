"""Print differences in colours, by lines or word by word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from workspaces.file import size_text

if TYPE_CHECKING:
    from harness.presentation.history_view import Chapter
    from workspaces.history.diff import FileDifference, Span
    from workspaces.revision import Revision, RevisionId

Styled = Iterator[tuple[str, str]]

_STYLE = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}
_HEADINGS = ("diff --git ", "--- ", "+++ ", "index ", "commit ")


def styled_patch(text: str) -> Styled:
    """Yield the lines of a patch with the colours that git uses."""
    for line in _lines(text):
        heading = line.startswith(_HEADINGS)
        yield line, "bold" if heading else _STYLE.get(line[:1], "")


def styled_files(files: Iterable[FileDifference], *, words: bool, marked: bool = True) -> Styled:
    """Yield the patches of files.

    `marked`: removed and added words get marks, for output without colours.
    """
    for file in files:
        old = "/dev/null" if file.kind == "added" else f"a/{file.path}"
        new = "/dev/null" if file.kind == "deleted" else f"b/{file.path}"
        yield f"diff --git a/{file.path} b/{file.path}\n", "bold"
        if file.binary:
            size = "" if file.size is None else f", {size_text(file.size)}"
            yield f"binary{size}{', deleted' if file.kind == 'deleted' else ''}\n", ""
        elif file.patch:
            yield f"--- {old}\n+++ {new}\n", "bold"
            yield from _styled_words(file, marked) if words else styled_patch(file.patch)


def styled_revision(revision: Revision) -> Styled:
    yield revision.id, "yellow"
    yield f" {revision.at[:16].replace('T', ' ')} ", ""
    yield revision.author, "bold"
    yield f"\n    {revision.subject}\n", ""
    for name, value in revision.trailers.items():
        yield f"    {name}: {value}\n", "dim"
    yield "\n", ""


def styled_chapters(
    chapters: Iterable[Chapter],
    why: Mapping[str, str | None],
    files: Mapping[RevisionId, Iterable[FileDifference]],
    *,
    words: bool,
    marked: bool = True,
) -> Styled:
    for number, chapter in enumerate(chapters):
        yield f"{'' if number == 0 else chr(10)}{chapter.day}  ", "dim"
        yield chapter.author, "bold"
        yield f" ({chapter.account})\n" if chapter.account else "\n", "dim"
        for revision, following in pairwise([*chapter.revisions, None]):
            if revision is None:
                continue
            yield f"  {revision.at[11:16]}  ", "dim"
            yield revision.id[:10], "yellow"
            yield f"  {revision.subject}\n", ""
            question = why.get(revision.id)
            # the oldest revision of a turn here: show what the turn was asked
            if question and (following is None or _turn(following) != _turn(revision)):
                yield f"         asked: {question}\n", "italic dim"
            yield from styled_files(files.get(revision.id, ()), words=words, marked=marked)


def _turn(revision: Revision) -> str | None:
    return revision.trailers.get("Turn")


def _styled_words(file: FileDifference, marked: bool) -> Styled:
    """Yield a patch word by word.

    `marked`: as git, with `[-…-]` and `{+…+}`, readable without colours. Else each line begins with a sign:
    `+` for an added line, `-` for a removed one, `~` for one of which words changed.
    """
    from workspaces.history.diff import words

    if not marked:
        for line in _lines_of_spans(words(file.patch)):
            yield from _signed(line)
        return
    for mark, text in words(file.patch):
        if mark == " ":
            yield text, "cyan" if text.startswith("@@ ") else ""
        elif text:
            inner, end = text.removesuffix("\n"), "\n" if text.endswith("\n") else ""
            change = f"[-{inner}-]" if mark == "-" else f"{{+{inner}+}}"
            yield f"{change}{end}", "red" if mark == "-" else "green"


def _lines_of_spans(spans: Iterable[Span]) -> Iterator[list[Span]]:
    """Yield the spans line by line. The last span of each line holds its end."""
    line: list[Span] = []
    for mark, text in spans:
        for piece in _lines(text):
            line.append((mark, piece))
            if piece.endswith("\n"):
                yield line
                line = []
    if line:
        yield line


def _signed(line: list[Span]) -> Styled:
    """Yield one line of a patch behind its sign."""
    if line[0][1].startswith("@@ "):
        yield line[0][1], "cyan"
        return
    marks = {mark for mark, text in line if text.strip("\n")} or {line[-1][0]}
    sign = marks.pop() if len(marks) == 1 else "~"
    yield sign, _STYLE.get(sign, "")
    added = "green underline" if sign == "~" else "green"
    styles = {"-": "red strike", "+": added}
    yield from ((text, styles.get(mark, "")) for mark, text in line)


def _lines(text: str) -> list[str]:
    """Split text at newlines only. A carriage return belongs to its line."""
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])
