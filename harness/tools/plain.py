"""What a program printed, as text: without what steers a terminal or hides from a reader."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"""
    \x1b\[ [0-?]* [ -/]* [@-~]                      # colours, cursor: ESC [ … letter
    | \x9b [0-?]* [ -/]* [@-~]                      # the same, begun by one character
    | \x1b [\]PX^_] [^\x07\x1b]* (?: \x07 | \x1b\\ )?  # titles, links and other strings
    | \x1b [ -/]* [0-~]                             # everything else that begins with ESC
    """,
    re.VERBOSE,
)
_LINE_ENDS = re.compile(r"\r\n?")
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
"""But tab and newline; and the invisible characters that turn text around or carry a second text."""


def plain(data: bytes) -> str:
    text = _ESCAPES.sub("", data.decode(errors="replace"))
    return _CONTROLS.sub("", _LINE_ENDS.sub("\n", text))
