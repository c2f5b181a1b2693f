"""The arguments of a tool call as lines of text, so that a person can judge the call before it runs.

The arguments come from a model. Characters without a shape are written as escapes, so that nothing in a
command is hidden. The lines of a long value are marked, and faces show them behind a bar. So a value cannot
look like the next argument, or like a question of this program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workspaces.invisible_characters import SHAPELESS, unseen, visible

LINE_CHARACTERS_MAX = 60
"""A value of at most so many characters stands beside its name."""

NAME_CHARACTERS_MAX = 60


@dataclass(frozen=True, slots=True)
class CallLimit:
    """The part of a call that is shown at first."""

    lines: int
    characters: int


@dataclass(frozen=True, slots=True)
class CallLine:
    text: str
    is_of_value: bool = False
    """True for a line of a long value. False for the name of an argument, with a short value beside it."""


@dataclass(frozen=True, slots=True)
class CallText:
    lines: tuple[CallLine, ...]
    left_out: int = 0
    """Characters of values that are not shown."""


def call_text(arguments: Mapping[str, Any], limit: CallLimit | None = None) -> CallText:
    """Return the lines of a call's arguments. Without a limit, nothing is left out."""
    lines: list[CallLine] = []
    characters, left_out = 0, 0
    for name, value in arguments.items():
        label = f"{_one_line(name)[:NAME_CHARACTERS_MAX]}:"
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if limit is not None and len(lines) >= limit.lines:
            left_out += len(text)
            continue
        shown = _cut(text, limit, lines=len(lines) + 1, characters=characters)
        characters += len(shown)
        lines += _value_lines(label, _escaped(shown))
        if more := len(text) - len(shown):
            left_out += more
            lines.append(CallLine(f"  (… {more:,} more characters)"))
    return CallText(tuple(lines), left_out)


def _value_lines(label: str, text: str) -> list[CallLine]:
    if len(text) <= LINE_CHARACTERS_MAX and "\n" not in text:
        return [CallLine(f"{label} {text}".rstrip())]
    lines = text.removesuffix("\n").split("\n")
    return [CallLine(label), *(CallLine(line, is_of_value=True) for line in lines)]


def _cut(text: str, limit: CallLimit | None, *, lines: int, characters: int) -> str:
    """Return the beginning of a value that fits behind `lines` and `characters` that are used already."""
    if limit is None:
        return text
    text = text[: max(0, limit.characters - characters)]
    at = -1
    for _ in range(max(1, limit.lines - lines)):
        at = text.find("\n", at + 1)
        if at < 0:
            return text
    return text[: at + 1]


def _one_line(text: str) -> str:
    return _escaped(" ".join(text.split()))


def _escaped(text: str) -> str:
    """Return the text with every character escaped that has no shape."""
    if text.isascii():
        return visible(text)
    return visible("".join(_escape(one) if _is_hidden(one) else one for one in text))


def _is_hidden(character: str) -> bool:
    if character in "\n\t":
        return False
    return character in SHAPELESS or unseen(character) is not None


def _escape(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode()
