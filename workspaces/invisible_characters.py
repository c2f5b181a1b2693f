"""Characters that readers cannot see: terminal controls, bidirectional controls, characters without a shape.

Text from other people may contain any of them. `visible` is for terminals: it escapes the characters that
would control one. New names may contain none of them (`broken_rule`).
"""

from __future__ import annotations

import re
import unicodedata

STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
"""Controls except tab and newline, bidirectional controls, and tags, which carry a second text.

Each is a single character. Without it no control sequence begins, wherever a text is cut.
"""

JOINERS = "\u200c\u200d"
"""ZWNJ and ZWJ, which Persian, Hindi and emoji need."""

SHAPELESS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE0F)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)
"""Letters and marks without a shape. U+FE0F is allowed because it turns a sign into an emoji."""

_CATEGORIES = {
    "Cc": "a control character",
    "Cf": "an invisible format character",
    "Cs": "a surrogate",
    "Co": "a private-use character",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}


def visible(text: str) -> str:
    """Return the text with terminal controls escaped, for example as `\\x1b`."""
    return STEERING.sub(_escape, text)


def broken_rule(name: str) -> str | None:
    """Return the rule that a name breaks with an invisible character, phrased to follow the name."""
    for character in name:
        kind = unseen(character) or (character in SHAPELESS and "a character without a shape")
        if kind:
            return f"contains {kind} (U+{ord(character):04X})"
    return None


def unseen(character: str) -> str | None:
    """Return the kind of a character whose category has no shape. Return None for joiners and others."""
    kind = _CATEGORIES.get(unicodedata.category(character))
    return None if character in JOINERS else kind


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
