"""Fencing: escapes text so that it cannot leave its place in the prompt.

Memory is shown between tags. Inside, a bracket is escaped (`&lt;`, `&#91;`) if it could begin one of our
tags, or one by which a model separates roles and calls. Characters that a person does not see but a model may
read are removed: controls, tag characters, bidirectional marks, zero-width and blank letters, variation
selectors. So a file may claim anything about where memory ends; memory ends where we say.

Tags are searched in a copy of the text in which each character is replaced by the plain one that it looks
like. The copy has the same length, so a position in one is the same position in the other. If no tag can
begin in such lookalike characters, the text itself serves as the copy.

Lines stay lines, so line numbers of a file hold for the fenced text as well. Headings need no fence: the
prompt does not separate its parts by headings.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from workspaces.invisible_characters import SHAPELESS

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
"""Every tag that the prompt is built with, and the ones that a model may mistake for ours. A name covers all
names that begin with it and continue with a mark: `memory-change`, `tool_result`, `antml:invoke`."""

_SELECTOR = "\ufe0f"
"""The selector that turns a sign into an emoji. In the copy it stands for every mark on a letter."""

_SKIPPED = rf"[\s/\\{_SELECTOR}]*+"
_NAMES = "|".join(f"{_SELECTOR}*+".join(tag) for tag in TAGS)
_MARK = rf"<{_SELECTOR}*+\||<<{_SKIPPED}(?-i:SYS)|\[{_SKIPPED}(?-i:INST)"
_NAME = rf"<{_SKIPPED}(?:{_NAMES})"
_BEGINNING = re.compile(f"{_MARK}|{_NAME}", re.IGNORECASE)
_TAG = re.compile(
    rf"{_MARK}|{_NAME}(?:[^\W_]*+[_:-]|(?:{_SELECTOR}*+s)?\b){_SELECTOR}*+", re.IGNORECASE
)
"""Matches a tag in linear time: every repeat is possessive, and none goes beyond the next bracket."""

_ESCAPED = {"<": "&lt;", "[": "&#91;"}

_LOOKS = """
aаɑαᴀ AАΑ bвʙ BВΒ cсϲᴄ CСϹ dԁᴅ DԀ eеεᴇ EЕΕ fꜰ gɡɢ GԌ hһнʜ HНΗ iіιɩıɪ IІΙӀ jјᴊ JЈ kкκᴋ KКΚ lӏʟ
mмᴍ MМΜ nոηɴ NΝ oоοσᴏօ OОΟՕ pрρᴘ PРΡ rʀ sѕꜱ SЅՏ tтτᴛ TТΤ uսυᴜ UՍ vѵνᴠ VѴ wѡᴡ WԜ xхχ XХΧ yуүγʏ
YУҮΥ zᴢ ZΖ <˂ᐸ /∕⁄⧸ \\∖⧵ |ǀ∣
"""
"""Groups of a plain character and its lookalikes. Compatibility forms, such as full-width ones, need not be
listed."""
_LIKE = {other: looks[0] for looks in _LOOKS.split() for other in looks[1:]}

_BRACKETS = r"<\[\uff1c\ufe64\u02c2\u1438\uff3b"
_WINDOW = re.compile(
    rf"[{_BRACKETS}]++(?:[^\w{_BRACKETS}]*+\w){{0,{max(map(len, TAGS))}}}+[^\w{_BRACKETS}]*+"
)
"""Matches a bracket and as many letters after it as the longest name has, with anything between them."""

_ALLOWED_CONTROLS = "\t\n"
_LINE_ENDS = "\u2028\u2029"


def fenced(text: str) -> str:
    shown = text.translate(_SEEN)
    copy = shown.translate(_PLAIN) if _is_disguised(shown) else shown
    parts: list[str] = []
    at = 0
    for match in _TAG.finditer(copy):
        begin, end = match.span()
        inside = shown[begin + 1 : end].replace(_SELECTOR, "")
        parts += (shown[at:begin], _ESCAPED[copy[begin]], inside)
        at = end
    return "".join([*parts, shown[at:]])


def _is_disguised(shown: str) -> bool:
    """Return True if a tag may begin in characters that only look like its own."""
    if shown.isascii():
        return False
    odd = "\0".join(window for window in _WINDOW.findall(shown) if not window.isascii())
    return _BEGINNING.search(odd.translate(_PLAIN)) is not None


def one_line(text: str) -> str:
    """Return the text for use within one of our lines: no line ends, and no backtick that would end a
    name."""
    return " ".join(fenced(text).replace("`", "'").split())


def attribute(text: str) -> str:
    """Return the text for use as an attribute of a tag: one line, no bracket, no quote."""
    return one_line(text).translate({ord(c): None for c in '<>"'})


def _seen(character: str) -> str:
    """Return a space for an unusual line end, nothing for an invisible character, else the character."""
    if character in _LINE_ENDS:
        return " "
    if character in SHAPELESS:
        return ""
    if character not in _ALLOWED_CONTROLS and unicodedata.category(character)[0] == "C":
        return ""
    return character


def _plain(character: str) -> str:
    """Return exactly one character: the plain one that it looks like, or the selector for any mark."""
    if unicodedata.category(character)[0] == "M":
        return _SELECTOR
    like = _LIKE.get(character) or unicodedata.normalize("NFKC", character)
    return like if len(like) == 1 and like.isascii() else character


class _LazyTable(dict[int, str]):
    """A translation table that computes the replacement of a character when it first occurs."""

    def __init__(self, of: Callable[[str], str]) -> None:
        self._of = of

    def __missing__(self, code: int) -> str:
        self[code] = replacement = self._of(chr(code))
        return replacement


_SEEN = _LazyTable(_seen)
_PLAIN = _LazyTable(_plain)
