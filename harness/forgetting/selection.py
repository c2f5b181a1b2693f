"""What a person asks to forget, and the phrases that follow from it.

    text           the text itself
    line           one line of a file
    revision       the lines that a revision added
    match          every text that a regular expression matches, wherever it stands
    conversation   a conversation as a whole, and no phrase

The phrases are in memory only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from pydantic import Field

from harness.forgetting.forgetting import Selector
from workspaces.errors import Failure, NotFound, OverLimit, Refused, Unavailable
from workspaces.forgetting.matcher import FoundText
from workspaces.forgetting.tombstone import TEXT_CHARACTERS_MAX, is_short
from workspaces.forgetting.words import words_of
from workspaces.home.workspaces import Workspaces
from workspaces.validation import StrictModel
from workspaces.workspace.workspace import Workspace

PATTERN_CHARACTERS_MAX = 1_000
MATCHES_MAX = 1_000
"""Different texts that one regular expression may match."""

REASON_CHARACTERS_MAX = 500
_SELECTORS: tuple[Selector, ...] = ("text", "match", "line", "revision", "conversation")
_REVISION = re.compile("[0-9a-f]{4,40}")


class LineReference(StrictModel):
    """A line of a file, as it is now."""

    workspace: str
    path: str
    number: int = Field(ge=1)


class ForgettingRequest(StrictModel):
    text: str | None = None
    match: str | None = None
    line: LineReference | None = None
    revision: str | None = None
    conversation: str | None = None
    """The id of the conversation, or its key."""
    dry_run: bool = False
    reason: str = Field(default="", max_length=REASON_CHARACTERS_MAX)
    many: bool = False
    """True if more than a fifth of all lines may match."""
    forbid_short: bool = False
    """True if a text of fewer than 3 words and 12 letters may be forgotten."""

    @property
    def selector(self) -> Selector:
        """Return the field that says what to forget.

        Raises: Refused unless there is exactly one.
        """
        given: list[Selector] = [one for one in _SELECTORS if getattr(self, one) is not None]
        if len(given) != 1:
            rule = "must be exactly one of text, match, line, revision and conversation"
            raise Refused("forgetting", given or None, rule)
        return given[0]


@dataclass(frozen=True, slots=True)
class Phrase:
    """A text to forget. A short one is left out where nobody named it."""

    text: str
    is_derived: bool = False


def text_phrases(text: str) -> list[Phrase]:
    """Return the phrase of a text.

    Raises: Refused for an empty text. OverLimit.
    """
    if not text.strip():
        raise Refused("text", None, "is empty: there is nothing to find")
    if len(text) > TEXT_CHARACTERS_MAX:
        unit = "characters"
        raise OverLimit("text", maximum=TEXT_CHARACTERS_MAX, actual=len(text), unit=unit)
    return [Phrase(text)]


def line_phrases(line: LineReference, workspaces: Workspaces) -> list[Phrase]:
    """Return the text of a line.

    Raises: NotFound if there is no such workspace or file. Refused for a line that is not there, or empty.
    """
    lines = workspaces.get(line.workspace).read(line.path).text.split("\n")
    if line.number > len(lines):
        raise Refused("line.number", line.number, f"is after the last line ({len(lines)})")
    return text_phrases(lines[line.number - 1])


def revision_phrases(revision: str, workspaces: Workspaces) -> list[Phrase]:
    """Return the lines that a revision added.

    Raises: NotFound if no workspace has it. Refused if it is no id of a revision.
    """
    if not _REVISION.fullmatch(revision):
        raise Refused("revision", revision, "must be the id of a revision: 4 to 40 hex digits")
    found = [
        one for one in map(workspaces.open, workspaces.list(private=True)) if _has(one, revision)
    ]
    if len(found) != 1:
        kind = "revision" if not found else "single workspace with the revision"
        raise NotFound(kind, revision, remedy="`harness log W` lists the revisions of a workspace")
    patches = (file.patch for file in found[0].history.show(revision).files if not file.binary)
    lines = (line for patch in patches for line in patch.split("\n") if line.startswith("+"))
    texts = dict.fromkeys(line[1:].strip() for line in lines)
    return [Phrase(text, is_derived=True) for text in texts if words_of(text).texts]


def match_phrases(
    pattern: str, ripgrep: Path | None, feed: Callable[[TextCollector], None]
) -> list[Phrase]:
    """Return every text that a regular expression matches. `feed` shows all texts to a collector.

    Ripgrep finds them, in time linear in the text.

    Raises: Refused for an invalid expression, or one that matches the empty text. OverLimit. Unavailable.
    """
    if not pattern or len(pattern) > PATTERN_CHARACTERS_MAX:
        rule = f"must have 1 to {PATTERN_CHARACTERS_MAX} characters"
        raise Refused("match", None, rule)
    if ripgrep is None:
        raise Unavailable("ripgrep", "is not installed", remedy="install ripgrep, or use `--text`")
    if _matches(pattern, ripgrep, lambda _: None, "\n"):
        raise Refused("match", None, "matches the empty text")
    texts = _matches(pattern, ripgrep, feed)
    if len(texts) > MATCHES_MAX:
        raise OverLimit("match", maximum=MATCHES_MAX, actual=len(texts), unit="different texts")
    return [Phrase(text) for text in texts]


class TextCollector:
    """Passes every text that it is asked about to a program, and finds nothing itself."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take

    def find(self, text: str) -> list[FoundText]:
        self._take(text)
        return []

    def replaced(self, text: str) -> str:
        self._take(text)
        return text


def _matches(
    pattern: str, ripgrep: Path, feed: Callable[[TextCollector], None], first: str = ""
) -> list[str]:
    """Return the different texts that match, in the order in which they come."""
    arguments = ("--only-matching", "--no-filename", "--no-line-number", "--no-config", "--text")
    with TemporaryFile() as out, TemporaryFile() as errors:
        command = [str(ripgrep), *arguments, "--regexp", pattern, "-"]
        with Popen(command, stdin=PIPE, stdout=out, stderr=errors) as process:
            stdin = cast("BinaryIO", process.stdin)

            def take(text: str) -> None:
                if process.poll() is None:
                    stdin.write(text.encode(errors="replace") + b"\n")

            try:
                take(first)
                feed(TextCollector(take))
                stdin.close()
            except BrokenPipeError:
                pass  # it has refused the expression
        if process.returncode > 1:
            errors.seek(0)
            reason = errors.read(500).decode(errors="replace").strip().splitlines()
            raise Refused(
                "match", None, f"is not a regular expression: {reason[-1:] or ['?']}"[:200]
            )
        out.seek(0)
        found = dict.fromkeys(line.decode(errors="replace").rstrip("\n") for line in out)
        return [text for text in found if text.strip() or first]


def worth_forgetting(phrases: Sequence[Phrase], *, allow_short: bool) -> list[Phrase]:
    """Leave out phrases that nobody named and that are too short to be replaced everywhere."""
    return [
        one
        for one in phrases
        if allow_short or not one.is_derived or not is_short(words_of(one.text).texts)
    ]


def _has(workspace: Workspace, revision: str) -> bool:
    try:
        return workspace.history.resolve(revision) is not None
    except Failure:
        return False
