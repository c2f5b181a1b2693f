"""Making memory into data: text that cannot leave the place it is put into.

Memory is shown between tags. Inside, an opening bracket that could begin one of our tags is written
`&lt;`, and characters that a person does not see but a model may read are taken out: tag characters,
bidirectional controls, zero-width characters, other controls. A file can then say anything it likes
about where memory ends; it ends where we say.
"""

from __future__ import annotations

import re
import unicodedata

TAGS = ("memory", "part", "summary", "reminder", "system", "instructions")
"""Every tag that the prompt is built with, and the ones a model may take for ours."""

_TAG = re.compile(rf"<(?=\s*/?\s*({'|'.join(TAGS)})\b)", re.IGNORECASE)
_KEPT_CONTROLS = "\n\t"


def fenced(text: str) -> str:
    seen = "".join(c for c in text if c in _KEPT_CONTROLS or not _is_unseen(c))
    return _TAG.sub("&lt;", seen)


def attribute(text: str) -> str:
    """For between the quotes of a tag: one line, no bracket, no quote."""
    return " ".join(fenced(text).split()).translate({ord(c): None for c in '<>"'})


def _is_unseen(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn"}
