"""Split a text into units, which recall finds: a line, or a list item with the lines that continue it.
HTML comments hold none.

Units depend on the text and its name alone. This module does not know whether the text is a file or an entry
of a transcript. Sections are runs of units under one heading.

A fact, `facts/<name>.md`, is one unit: its key and its body. Its front matter holds no units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from workspaces import plain_yaml
from workspaces.errors import Failure

_HEADING_MARK = re.compile(r" {0,3}(#{1,6})\s+")
_ITEM = re.compile(r"(\s*)(?:[-*+•]|\d{1,9}[.)])(\s+|$)")
_FENCE = re.compile(r"\s*(```+|~~~+)")
_ONLY_MARKS = re.compile(r"[\s!-/:-@\[-`{-~]*")
_LEAD = re.compile(r"\s*(?:(?:[-*+•>]|\d{1,9}[.)]|\[[ xX]\])\s+)*[*_]*")
_COLON = re.compile(r"[:：]")
_AFTER_LABEL = re.compile(r"[*_]*\s|[^\s\d/]")
_FIRST = re.compile(r"[^\W_][\w’'-]*")
_QUESTION_MARKS = "?？؟"
_WORD_CHARACTER = re.compile(r"\w")

LABEL_WORDS_MAX = 6
"""Words of a label before a colon. More words are a sentence, not a name of the line's subject."""

LABEL_CHARACTERS_MAX = 61
"""Characters of a label: the same limit for a script without spaces."""

FACT_CHARACTERS_MAX = 2_000
"""Characters of a fact's body that is one unit: the most that a fact may have. A longer body is split."""

KEY_LINE_CHARACTERS_MAX = 2_000
"""Characters of the line that holds a fact's key. 255 characters, written as escapes, fit into it."""

_COMMENT_START, _COMMENT_END = "<!--", "-->"

_FACT = re.compile(r"facts/([^/]+)\.md")
_FRONT = "---"
_KEY = "key:"


@dataclass(frozen=True, slots=True)
class Unit:
    """A line, or a list item with the lines that continue it."""

    line: int
    """Number of its first line, counted from 1."""
    text: str
    headings: tuple[str, ...]
    """The headings above it, outermost first."""
    is_heading: bool = False

    @property
    def subject(self) -> str:
        """Return the start of the line: the label before a colon, or else the first word."""
        start = _LEAD.match(self.text)
        rest = self.text[start.end() if start else 0 :]
        first = _FIRST.match(rest)
        if first is None:
            return ""
        return _label(rest) or first[0]

    @property
    def asks(self) -> bool:
        """Return True if the unit has a question mark and no word follows its last one."""
        mark = max(map(self.text.rfind, _QUESTION_MARKS))
        return mark >= 0 and _WORD_CHARACTER.search(self.text, mark) is None


def text_units(name: str, text: str) -> Iterator[Unit]:
    """Yield the units of a text with this name."""
    fact = _FACT.fullmatch(name)
    return units(text) if fact is None else _fact_units(fact[1], text)


def _fact_units(stem: str, text: str) -> Iterator[Unit]:
    """Yield the unit of a fact. It begins at the first line of the body that is not blank."""
    lines = text.split("\n")
    start, key = 0, stem
    if lines[0].rstrip() == _FRONT:
        end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == _FRONT), None)
        if end is not None:  # without an end it is no front matter
            start, key = end + 1, _key(lines[1:end]) or stem
    while start < len(lines) and not lines[start].strip():
        start += 1
    body = "\n".join(line.rstrip() for line in lines[start:]).rstrip()
    if len(body) > FACT_CHARACTERS_MAX:  # more than a fact may have: the key is the heading
        for unit in units(body):
            yield replace(unit, line=start + unit.line, headings=(key, *unit.headings))
    elif body:
        yield Unit(start + 1, f"{key}: {body}", ())


def _key(front: list[str]) -> str | None:
    """Return the key in the lines of a front matter. Only its own line is read: a key has no line break."""
    line = next((line for line in front if line.startswith(_KEY)), None)
    if line is None or len(line) > KEY_LINE_CHARACTERS_MAX:
        return None
    try:
        key = plain_yaml.load(line, name=_KEY).get("key")
    except Failure:
        return None
    return key if isinstance(key, str) and "\n" not in key else None


def units(text: str) -> Iterator[Unit]:
    headings: list[tuple[int, str]] = []
    fence = ""
    item: list[str] = []
    item_line = indent = 0

    def path() -> tuple[str, ...]:
        return tuple(title for _, title in headings)

    lines = text.split("\n")
    comments = _Comments(lines)
    for number, line in enumerate(lines, 1):
        line = line.rstrip()
        if item and not _continues(line, indent):
            yield Unit(item_line, "\n".join(item), path())
            item = []
        if item:
            item.append(line)
            continue
        marks = _FENCE.match(line)
        if marks and (not fence or marks[1].startswith(fence)):
            fence = "" if fence else marks[1]
            continue
        if _ONLY_MARKS.fullmatch(line) or (not fence and comments.hold(number - 1)):
            continue
        heading = None if fence else _HEADING_MARK.match(line)
        if heading:
            level = len(heading[1])
            headings = [(depth, title) for depth, title in headings if depth < level]
            headings.append((level, line[heading.end() :].rstrip("#").rstrip()))
            yield Unit(number, line, path(), is_heading=True)
            continue
        mark = None if fence else _ITEM.match(line)
        if mark:
            item, item_line, indent = [line], number, len(mark[1])
        else:
            yield Unit(number, line, path())
    if item:
        yield Unit(item_line, "\n".join(item), path())


class _Comments:
    """The lines of a text that are HTML comments. They tell a writer how to use the file, and no reader sees
    them, so they hold no units. A comment with text before or after it on its lines is part of that text."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._closing = -1
        """The first line that closes a comment, at or after the line that was asked for last."""
        self._end = 0
        """The lines before this one and after the last start are in a comment."""

    def hold(self, at: int) -> bool:
        """Return True if a line is in a comment. Lines are asked for in ascending order."""
        if at < self._end:
            return True
        start = self._lines[at].lstrip()
        if not start.startswith(_COMMENT_START):
            return False
        if (
            self._closing < at
        ):  # looked for once, so that many starts without an end take linear time
            following = range(at, len(self._lines))
            self._closing = next(
                (n for n in following if _COMMENT_END in self._lines[n]), len(self._lines)
            )
        if self._closing == len(self._lines):  # it never ends
            return False
        if self._lines[self._closing].rpartition(_COMMENT_END)[2].strip():
            return False
        self._end = self._closing + 1
        return True


def _continues(line: str, indent: int) -> bool:
    """Return True if a line continues a list item: it is indented deeper than the mark, and is no item
    itself."""
    inner = len(line) - len(line.lstrip())
    return bool(line.strip()) and inner > indent and not _ITEM.match(line)


def _label(rest: str) -> str | None:
    """Return the text before the first colon, if it names the line's subject."""
    colon = _COLON.search(rest)
    if colon is None or _AFTER_LABEL.match(rest, colon.end()) is None:
        return None
    label = rest[: colon.start()].rstrip().rstrip("*_")
    is_short = len(label) <= LABEL_CHARACTERS_MAX and len(label.split()) <= LABEL_WORDS_MAX
    return label if is_short and "\n" not in label else None
