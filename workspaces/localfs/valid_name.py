"""The nearest valid path to a name that is none: for what comes from elsewhere, where other names are good.

Only what cannot be kept in a name is replaced, so that a person finds the file again. What is reserved,
leads out of the workspace, or is too deep has no near path: that file is left.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

from workspaces.paths import PART_BYTES_MAX, WorkspacePath, broken_rule

_KEPT_OF_LONG_BYTES = PART_BYTES_MAX - 40
"""Of a part that is too long; the rest has room for a hash and an ending."""

_FORBIDDEN = re.compile(r'[\\:*?"<>|%]')


def nearest_path(name: str) -> WorkspacePath | None:
    """`name` itself when it is valid; None when nothing near it is."""
    if broken_rule(name) is None:
        return WorkspacePath(name)
    parts = name.split("/")
    if not name or ".." in parts or name.startswith("/"):
        return None
    path = "/".join(near for part in parts if part not in {"", "."} and (near := _nearest(part)))
    return WorkspacePath(path) if broken_rule(path) is None else None


def _nearest(part: str) -> str:
    text = unicodedata.normalize("NFC", "".join(_kept(character) for character in part))
    text = _FORBIDDEN.sub("_", text).rstrip(". ")
    if text[:1] in {"-", "~"}:
        text = f"_{text[1:]}"
    if len(text.encode()) > PART_BYTES_MAX:
        text = _shortened(text)
    rule = broken_rule(text) if text else "is empty"
    return f"_{text}" if rule and "device name" in rule else text


def _kept(character: str) -> str:
    match unicodedata.category(character):
        case "Cf" if character not in "\u200c\u200d":
            return ""
        case "Cc" | "Cs" | "Co" | "Zl" | "Zp":
            return "_"
        case _:
            return character


def _shortened(text: str) -> str:
    """Its beginning, a hash of the whole that keeps two of them apart, its ending."""
    stem, dot, ending = text.rpartition(".")
    if not dot or len(ending.encode()) > 16:
        stem, ending = text, ""
    cut = stem.encode()[:_KEPT_OF_LONG_BYTES].decode(errors="ignore").rstrip(". ")
    told = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{cut}-{told}{f'.{ending}' if ending else ''}"
