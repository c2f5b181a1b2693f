"""Who wrote each line of a file, when, and in which conversation: the notes beside a rendered file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from harness.presentation.history_view import account_of_trailers
from harness.web.pages.parts.markdown import AtLine
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId
from workspaces.search.provenance import LineSource, Provenance
from workspaces.timestamp import Stamp
from workspaces.workspace.workspace import Workspace

REVISION_DIGITS = 12
"""Digits of a revision in an address: enough for any history."""

LINES_MAX = 300
"""Lines of a file on one page. Each has a note of who wrote it."""

CHARACTERS_MAX = 40_000
"""Characters of a file on one page."""


@dataclass(frozen=True, slots=True)
class ShownText:
    """The text that is on the page, as a source for its provenance."""

    data: bytes

    def states(self) -> dict[str, str]:
        return {}

    def read(self, name: str) -> bytes:
        del name
        return self.data


@dataclass(frozen=True, slots=True)
class LineNote:
    """The note of some lines: one revision wrote them, or they are in no revision yet."""

    revision: RevisionId | None
    author: str
    at: Stamp | None
    source: str
    """The conversation, or the other way in which the line was written."""


class LineNotes:
    """The notes of one file of one view."""

    def __init__(self, workspace: Workspace, path: str, data: bytes, view: str) -> None:
        self._path = path
        self._provenance = Provenance(workspace.history, workspace.origins, view, ShownText(data))

    def of(self, first: int, end: int) -> LineNote:
        """Return the note of the lines from `first`, from 1, up to before `end`."""
        found = self._provenance.of(WorkspacePath(self._path), first, end - first)
        if found is None:
            return LineNote(None, "", None, "")
        return _note(found)

    def markup(self, history: str, shown_at: Callable[[str], Markup], shift: int) -> AtLine:
        """Return a function that writes the note of a block.

        `history` is the address of the workspace's history. `shift` is the number of lines before the text.
        """
        before: list[RevisionId | None] = []

        def beside(first: int, end: int) -> Markup:
            note = self.of(first + shift, end + shift)
            again = " again" if before == [note.revision] else ""
            before[:] = [note.revision]
            if note.revision is None or note.at is None:
                return Markup('<span class="by{}">not in the history yet</span>').format(again)
            address = f"{history}/{note.revision[:REVISION_DIGITS]}"
            markup = Markup('<a class="by{}" href="{}"><b>{}</b> {}<span> · {}</span></a>')
            return markup.format(again, address, note.author, shown_at(note.at), note.source)

        return beside


def _note(source: LineSource) -> LineNote:
    commit = source.commit
    return LineNote(commit.id, commit.author, source.at, account_of_trailers(commit.trailers))


def cut_lines(text: str, first: int) -> tuple[str, int, int]:
    """Return the lines of a page, the first line after them (0: none), and the number of all lines."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    taken: Sequence[str] = lines[first - 1 : first - 1 + LINES_MAX]
    kept, length = 0, 0
    for line in taken:
        length += len(line) + 1
        if kept and length > CHARACTERS_MAX:
            break
        kept += 1
    following = first + kept
    shown = "\n".join(taken[:kept])[:CHARACTERS_MAX]
    return shown, following if following <= len(lines) else 0, len(lines)
