"""Making memory into data: text that cannot leave the place it is put into.

Memory is shown between tags. Inside, an opening bracket that could begin one of our tags, or one by
which a model tells roles and calls apart, is written `&lt;`; and what a person does not see but a model
may read is taken out: controls, tag characters, bidirectional marks, zero-width and blank letters,
variation selectors. A file can then say anything it likes about where memory ends; it ends where we say.

Lines stay lines, so that what is known of a file's lines is known of the fenced ones. Headings need no
fence: no part of the prompt is told from another by a heading.
"""

from __future__ import annotations

import re
import unicodedata

from workspaces.unseen import SHAPELESS

TAGS = (
    "memory",
    "notes",
    "guidance",
    "date",
    "part",
    "summary",
    "reminder",
    "system",
    "instructions",
    "user",
    "human",
    "assistant",
    "tool",
    "function",
    "invoke",
    "antml",
)
"""Every tag that the prompt is built with, and the ones a model may take for ours. A name stands for
all that begin with it and go on with a mark: `memory-change`, `tool_result`, `antml:invoke`."""

_OPENING = "[<\uff1c\ufe64]"
"""The bracket, and the two that look like it."""

_TAG = re.compile(
    rf"{_OPENING}(?=\s*[/\uff0f]?\s*({'|'.join(TAGS)})([^\W_]*[_:-]|s?\b)|\|)", re.IGNORECASE
)
_KEPT_CONTROLS = "\t\n"
_LINE_ENDS = "\u2028\u2029"


def fenced(text: str) -> str:
    return _TAG.sub("&lt;", text.translate(_SEEN))


def one_line(text: str) -> str:
    """For within a line of ours: no line end, no backtick that would end a name."""
    return " ".join(fenced(text).replace("`", "'").split())


def attribute(text: str) -> str:
    """For between the quotes of a tag: one line, no bracket, no quote."""
    return one_line(text).translate({ord(c): None for c in '<>"'})


class _Seen(dict[int, str]):
    """Each character as a person sees it, found out when it is met first."""

    def __missing__(self, code: int) -> str:
        self[code] = seen = _seen(chr(code))
        return seen


_SEEN = _Seen()


def _seen(character: str) -> str:
    """A space for an odd line end, nothing for what has no shape."""
    if character in _LINE_ENDS:
        return " "
    if character in SHAPELESS:
        return ""
    if character not in _KEPT_CONTROLS and unicodedata.category(character)[0] == "C":
        return ""
    return character
