"""Differences as text with colours: by lines, or word by word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workspaces.history.difference import FileDifference
    from workspaces.revision import Revision

Styled = Iterator[tuple[str, str]]

_STYLE = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}
_HEADINGS = ("diff --git ", "--- ", "+++ ", "index ", "commit ")


def styled_patch(text: str) -> Styled:
    """Any patch, as git prints it."""
    for line in _lines(text):
        heading = line.startswith(_HEADINGS)
        yield line, "bold" if heading else _STYLE.get(line[:1], "")


def styled_files(files: Iterable[FileDifference], *, words: bool) -> Styled:
    for file in files:
        old = "/dev/null" if file.kind == "added" else f"a/{file.path}"
        new = "/dev/null" if file.kind == "deleted" else f"b/{file.path}"
        yield f"diff --git a/{file.path} b/{file.path}\n", "bold"
        if file.binary:
            yield f"Binary files {old} and {new} differ\n", ""
        elif file.patch:
            yield f"--- {old}\n+++ {new}\n", "bold"
            yield from _styled_words(file) if words else styled_patch(file.patch)


def styled_revision(revision: Revision) -> Styled:
    yield revision.id, "yellow"
    yield f" {revision.at[:16].replace('T', ' ')} ", ""
    yield revision.author, "bold"
    yield f"\n    {revision.subject}\n", ""
    for name, value in revision.trailers.items():
        yield f"    {name}: {value}\n", "dim"
    yield "\n", ""


def _styled_words(file: FileDifference) -> Styled:
    """With `[-…-]` and `{+…+}`, as git marks words: readable without colours too."""
    from workspaces.history.difference import words

    for mark, text in words(file.patch):
        if mark == " ":
            yield text, "cyan" if text.startswith("@@ ") else ""
        elif text:
            yield (f"[-{text}-]", "red") if mark == "-" else (f"{{+{text}+}}", "green")


def _lines(text: str) -> list[str]:
    """By newlines alone: a carriage return belongs to its line."""
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])
