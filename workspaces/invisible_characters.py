"""Characters that are not seen as they are: what steers a terminal, turns text around, or has no shape.

Text that somebody else wrote may hold any of them. `visible` is for terminals, and spells out what would
steer one; a name that is given from now on has none of them (`broken_rule`).
"""

from __future__ import annotations

import re
import unicodedata

STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
"""Controls but tab and newline, what turns text around, and tags, which carry a second text. Each is one
character: without it no sequence begins, wherever a text is cut."""

JOINERS = "\u200c\u200d"
"""ZWNJ and ZWJ, which Persian, Hindi and emoji are written with."""

SHAPELESS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE0F)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)
"""Letters and marks without a shape. U+FE0F, which makes a sign an emoji, is left."""

_CATEGORIES = {
    "Cc": "a control character",
    "Cf": "an invisible format character",
    "Cs": "a surrogate",
    "Co": "a private-use character",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}


def visible(text: str) -> str:
    """Return the text with what steers a terminal spelled out, as `\\x1b`."""
    return STEERING.sub(_spelled, text)


def broken_rule(name: str) -> str | None:
    """Return the rule that a name breaks by a character that is not seen, put to follow the name."""
    for character in name:
        kind = unseen(character) or (character in SHAPELESS and "a character without a shape")
        if kind:
            return f"contains {kind} (U+{ord(character):04X})"
    return None


def unseen(character: str) -> str | None:
    """Return what kind of character it is, when its category has no shape and it is no joiner."""
    kind = _CATEGORIES.get(unicodedata.category(character))
    return None if character in JOINERS else kind


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
