"""Hostile strings: generated from a regular expression's own parse tree, or without knowing anything.

What makes a backtracking matcher slow is text that nearly matches: a beginning that does, a piece that can be
taken in several ways and is repeated, and an end that does not. The parse tree tells all three: what leads to
each repeat, what its body takes, and which characters occur at all. What makes a search slow is a text in
which the beginning stands everywhere, and the end nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from re import _constants as op  # pyright: ignore
from re import _parser as parser  # pyright: ignore
from typing import Any

ALPHABET = (
    " a0_\n-#*.:/\t,;x9A'\"<>()[]{}|\\=@!?&%+~`^$é\u0301\u4e00\u00a0\u200b\U0001f600\r\x00\x0b"
)
"""From which a class of characters is represented, the likeliest first."""

COUNT = "§"
"""In a pump: the number of the repetition, so that no two are the same."""

SIGNS_MAX = 10
PREFIXES_MAX = 8
BODIES_MAX = 10


@dataclass(frozen=True, slots=True)
class Hostile:
    """A beginning, a pump that is repeated until the size is reached, and an end."""

    before: str
    pump: str
    after: str

    def text(self, size: int) -> str:
        room = size - len(self.before) - len(self.after)
        times = max(1, room // (len(self.pump) + 4 * self.pump.count(COUNT)))
        if COUNT in self.pump:
            pumped = "".join(self.pump.replace(COUNT, str(number)) for number in range(times))
        else:
            pumped = self.pump * times
        return self.before + pumped + self.after

    def __str__(self) -> str:
        return f"{self.before!r} + {self.pump!r} × n + {self.after!r}"


def against(pattern: str | bytes, flags: int) -> Iterator[Hostile]:
    """Yield what this expression may be slow with, each once."""
    text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    walk = _Walk()
    whole = walk.sequence(parser.parse(text, flags & ~re.DEBUG & ~re.LOCALE), "")
    beginnings = ["", *_few(sorted(walk.beginnings, key=len), PREFIXES_MAX)]
    signs = _few(walk.signs, SIGNS_MAX)
    bodies = _few((body for body in walk.bodies if len(body) > 1), BODIES_MAX)
    pumps = [*signs, *bodies, *(a + b for a, b in pairwise(signs))]
    ends = ["\0", "a", *(["\n\0"] if walk.stops_at_line else [])]
    found = [Hostile(before, pump, end) for before in beginnings for pump in pumps for end in ends]
    # the beginning everywhere, the end nowhere
    found += [
        Hostile("", before + sign, "")
        for before in beginnings
        for sign in ["", *signs[:4]]
        if before + sign
    ]
    found += [Hostile("", pump, "") for pump in pumps]
    found += [
        Hostile("", piece, "\0") for piece in (whole, whole[:-1], whole[1:], whole + "\n") if piece
    ]
    yield from dict.fromkeys(found)


class _Walk:
    """A walk through a parse tree that notes what leads where, and gives a text that matches."""

    def __init__(self) -> None:
        self.beginnings: dict[str, None] = {}
        self.bodies: dict[str, None] = {}
        self.signs: dict[str, None] = {}
        self.stops_at_line = False
        self._groups: dict[int, str] = {}

    def sequence(self, items: Iterable[tuple[Any, Any]], before: str) -> str:
        made = ""
        for kind, value in items:
            made += self._one(kind, value, before + made)
        return made

    def _one(self, kind: Any, value: Any, before: str) -> str:
        if kind is op.LITERAL:
            return self._sign([chr(value)])
        if kind in (op.NOT_LITERAL, op.IN, op.ANY):
            self.stops_at_line |= kind is not op.IN
            return self._sign(_members(kind, value))
        if kind in (op.ASSERT, op.ASSERT_NOT):
            self.sequence(value[1], before if value[0] > 0 else "")
            return ""
        if kind is op.GROUPREF:
            return self._groups.get(value, "")
        self.stops_at_line |= kind is op.AT
        return self._nested(kind, value, before)

    def _nested(self, kind: Any, value: Any, before: str) -> str:
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            return self._repeat(*value, before)
        if kind is op.BRANCH:
            made = [self.sequence(branch, before) for branch in value[1]]
            self.bodies.update(dict.fromkeys(filter(None, made[:4])))
            return made[0]
        if kind is op.SUBPATTERN:
            number, _, _, items = value
            made = self.sequence(items, before)
            if number is not None:
                self._groups[number] = made
            return made
        if kind is op.ATOMIC_GROUP:
            return self.sequence(value, before)
        return self.sequence(value[1], before) if kind is op.GROUPREF_EXISTS else ""

    def _repeat(self, least: int, most: int, items: Any, before: str) -> str:
        body = self.sequence(items, before)
        if body and most > 1:
            self.bodies.setdefault(body)
            self.beginnings.setdefault(before)
            self.beginnings.setdefault(before + body)
        return body * min(least, 64)

    def _sign(self, members: list[str]) -> str:
        self.signs.update(dict.fromkeys(members[:3]))
        return members[0] if members else ""


def _members(kind: Any, value: Any) -> list[str]:
    if kind is op.ANY:
        return [" ", "a", "0"]
    if kind is op.NOT_LITERAL:
        return [sign for sign in ALPHABET if ord(sign) != value][:3]
    negated = value[0][0] is op.NEGATE
    wanted = [sign for sign in ALPHABET if _is_in(sign, value) is not negated]
    if not negated:  # a class of one's own: its first characters stand for it too
        wanted += [
            chr(v if k is op.LITERAL else v[0]) for k, v in value if k in (op.LITERAL, op.RANGE)
        ]
    return list(dict.fromkeys(wanted))


def _is_in(sign: str, items: Any) -> bool:
    for kind, value in items:
        if kind is op.LITERAL and ord(sign) == value:
            return True
        if kind is op.RANGE and value[0] <= ord(sign) <= value[1]:
            return True
        if kind is op.CATEGORY and _CATEGORIES[value](sign):
            return True
    return False


def _is_word(sign: str) -> bool:
    return sign.isalnum() or sign == "_"


_CATEGORIES = {
    op.CATEGORY_DIGIT: str.isdecimal,
    op.CATEGORY_NOT_DIGIT: lambda sign: not sign.isdecimal(),
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_NOT_SPACE: lambda sign: not sign.isspace(),
    op.CATEGORY_WORD: _is_word,
    op.CATEGORY_NOT_WORD: lambda sign: not _is_word(sign),
}


def _few(found: Iterable[str], most: int) -> list[str]:
    return list(dict.fromkeys(found))[:most]


_PUMPS = (
    *(
        " ",
        "\t",
        "\n",
        "a",
        "0",
        "<",
        ">",
        "[",
        "]",
        "(",
        "{",
        "}",
        "#",
        "*",
        "-",
        "_",
        "`",
        "~",
        "|",
    ),
    *(
        ":",
        "/",
        "\\",
        '"',
        "'",
        ".",
        ",",
        "?",
        "=",
        "&",
        "@",
        "\u0301",
        "\ufe0f",
        "é",
        "日",
        "а",
        "\u200b",
        "\0",
    ),
    *(
        "</",
        "< ",
        "<|",
        "<!--",
        "[](",
        "](a",
        "{a,",
        "${",
        "- ",
        "# ",
        "> ",
        "a ",
        "a.",
        "a:",
        "a/",
        "'s",
        "::0",
    ),
    *(
        "a\n",
        "- a\n",
        "  - a\n",
        "# a\n",
        " \n",
        "```\n",
        "a: b\n",
        "@a.md",
        "2026-01-01 ",
        "\r\n",
        "\x1b[",
    ),
    *(f"line {COUNT}\n", f"- item {COUNT}\n", f"k{COUNT}: v\n", f"w{COUNT} "),
)

GENERAL = (
    *(Hostile("", pump, "") for pump in _PUMPS),
    *(Hostile(before, " ", "x") for before in ("<", "# a", "- a", "?")),
    *(
        Hostile(before, pump, "\0x")
        for before in ("# ", "# a #", "- ")
        for pump in ("#", " #", "# ")
    ),
    *(Hostile("", pump, "a") for pump in ("?", "*", "a:", "```")),
    Hostile("- a\n", "  b\n", "c"),
    Hostile("```\n", "~~~\n", "``"),
)
"""For a function of which nothing is known."""
