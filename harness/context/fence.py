"""Making memory into data: text that cannot leave the place it is put into.

Memory is shown between tags. Inside, a bracket that could begin one of our tags, or one by which a model
tells roles and calls apart, is escaped (`&lt;`, `&#91;`); and what a person does not see but a model may
read is taken out: controls, tag characters, bidirectional marks, zero-width and blank letters, variation
selectors. A file can then say anything it likes about where memory ends; it ends where we say.

A tag is looked for in a copy of the text, in which each character stands as the plain one that it looks
like. The copy is as long as the text, so a place in one is the same place in the other. Where no tag can
begin in such characters, the text is its own copy.

Lines stay lines, so that what is known of a file's lines is known of the fenced ones. Headings need no
fence: no part of the prompt is told from another by a heading.
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
"""Every tag that the prompt is built with, and the ones a model may take for ours. A name stands for
all that begin with it and go on with a mark: `memory-change`, `tool_result`, `antml:invoke`."""

_SELECTOR = "\ufe0f"
"""Makes a sign an emoji. In the copy it stands for every mark that a letter may carry."""

_SKIPPED = rf"[\s/\\{_SELECTOR}]*+"
_NAMES = "|".join(f"{_SELECTOR}*+".join(tag) for tag in TAGS)
_MARK = rf"<{_SELECTOR}*+\||<<{_SKIPPED}(?-i:SYS)|\[{_SKIPPED}(?-i:INST)"
_NAME = rf"<{_SKIPPED}(?:{_NAMES})"
_BEGINNING = re.compile(f"{_MARK}|{_NAME}", re.IGNORECASE)
_TAG = re.compile(
    rf"{_MARK}|{_NAME}(?:[^\W_]*+[_:-]|(?:{_SELECTOR}*+s)?\b){_SELECTOR}*+", re.IGNORECASE
)
"""Every repeat is possessive, and none goes beyond the next bracket: the time is that of one reading."""

_ESCAPED = {"<": "&lt;", "[": "&#91;"}

_LOOKS = """
aаɑαᴀ AАΑ bвʙ BВΒ cсϲᴄ CСϹ dԁᴅ DԀ eеεᴇ EЕΕ fꜰ gɡɢ GԌ hһнʜ HНΗ iіιɩıɪ IІΙӀ jјᴊ JЈ kкκᴋ KКΚ lӏʟ
mмᴍ MМΜ nոηɴ NΝ oоοσᴏօ OОΟՕ pрρᴘ PРΡ rʀ sѕꜱ SЅՏ tтτᴛ TТΤ uսυᴜ UՍ vѵνᴠ VѴ wѡᴡ WԜ xхχ XХΧ yуүγʏ
YУҮΥ zᴢ ZΖ <˂ᐸ /∕⁄⧸ \\∖⧵ |ǀ∣
"""
"""A plain character, and others that look like it. Compatible forms, full-width ones for example, need not
stand here."""
_LIKE = {other: looks[0] for looks in _LOOKS.split() for other in looks[1:]}

_BRACKETS = r"<\[\uff1c\ufe64\u02c2\u1438\uff3b"
_WINDOW = re.compile(
    rf"[{_BRACKETS}]++(?:[^\w{_BRACKETS}]*+\w){{0,{max(map(len, TAGS))}}}+[^\w{_BRACKETS}]*+"
)
"""As many letters behind a bracket as the longest name has, with whatever is between them."""

_KEPT_CONTROLS = "\t\n"
_LINE_ENDS = "\u2028\u2029"


def fenced(text: str) -> str:
    shown = text.translate(_SEEN)
    copy = shown.translate(_PLAIN) if _is_disguised(shown) else shown
    parts: list[str] = []
    at = 0
    for found in _TAG.finditer(copy):
        begin, end = found.span()
        inside = shown[begin + 1 : end].replace(_SELECTOR, "")
        parts += (shown[at:begin], _ESCAPED[copy[begin]], inside)
        at = end
    return "".join([*parts, shown[at:]])


def _is_disguised(shown: str) -> bool:
    """Whether a tag may begin here in characters that only look like its own."""
    if shown.isascii():
        return False
    odd = "\0".join(window for window in _WINDOW.findall(shown) if not window.isascii())
    return _BEGINNING.search(odd.translate(_PLAIN)) is not None


def one_line(text: str) -> str:
    """For within a line of ours: no line end, no backtick that would end a name."""
    return " ".join(fenced(text).replace("`", "'").split())


def attribute(text: str) -> str:
    """For between the quotes of a tag: one line, no bracket, no quote."""
    return one_line(text).translate({ord(c): None for c in '<>"'})


def _seen(character: str) -> str:
    """A space for an odd line end, nothing for what has no shape."""
    if character in _LINE_ENDS:
        return " "
    if character in SHAPELESS:
        return ""
    if character not in _KEPT_CONTROLS and unicodedata.category(character)[0] == "C":
        return ""
    return character


def _plain(character: str) -> str:
    """One character for one: what it looks like, and the selector for any mark."""
    if unicodedata.category(character)[0] == "M":
        return _SELECTOR
    like = _LIKE.get(character) or unicodedata.normalize("NFKC", character)
    return like if len(like) == 1 and like.isascii() else character


class _Each(dict[int, str]):
    """What becomes of each character, found out when it is met first."""

    def __init__(self, of: Callable[[str], str]) -> None:
        self._of = of

    def __missing__(self, code: int) -> str:
        self[code] = found = self._of(chr(code))
        return found


_SEEN = _Each(_seen)
_PLAIN = _Each(_plain)
