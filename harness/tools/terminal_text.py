"""Turns a program's output into text, without characters that control a terminal or hide from a reader."""

from __future__ import annotations

import re

from workspaces.invisible_characters import STEERING

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


def plain(data: bytes) -> str:
    text = _ESCAPES.sub("", data.decode(errors="replace"))
    return STEERING.sub("", _LINE_ENDS.sub("\n", text))
