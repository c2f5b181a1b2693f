"""Find the nearest valid path for an invalid name: for files from elsewhere, where other names are valid.

Only characters that a name cannot have are replaced, so that a person finds the file again. A name that is
reserved, leads out of the workspace, or is too deep has no near path. That file is skipped.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

from workspaces.paths import PART_BYTES_MAX, WorkspacePath, broken_rule

_LONG_PART_BYTES = PART_BYTES_MAX - 40
"""Bytes kept of a part that is too long. The rest is room for a hash and an ending."""

_FORBIDDEN = re.compile(r'[\\:*?"<>|%]')


def nearest_path(name: str) -> WorkspacePath | None:
    """Return `name` itself if it is valid, or the nearest valid path, or None if there is none."""
    if broken_rule(name) is None:
        return WorkspacePath(name)
    parts = name.split("/")
    if not name or ".." in parts or name.startswith("/"):
        return None
    path = "/".join(near for part in parts if part not in {"", "."} and (near := _nearest(part)))
    return WorkspacePath(path) if broken_rule(path) is None else None


def _nearest(part: str) -> str:
    text = unicodedata.normalize("NFC", "".join(_replaced(character) for character in part))
    text = _FORBIDDEN.sub("_", text).rstrip(". ")
    if text[:1] in {"-", "~"}:
        text = f"_{text[1:]}"
    if len(text.encode()) > PART_BYTES_MAX:
        text = _shortened(text)
    rule = broken_rule(text) if text else "is empty"
    return f"_{text}" if rule and "device name" in rule else text


def _replaced(character: str) -> str:
    match unicodedata.category(character):
        case "Cf" if character not in "\u200c\u200d":
            return ""
        case "Cc" | "Cs" | "Co" | "Zl" | "Zp":
            return "_"
        case _:
            return character


def _shortened(text: str) -> str:
    """Return the beginning, a hash of the whole that tells two long names apart, and the ending."""
    stem, dot, ending = text.rpartition(".")
    if not dot or len(ending.encode()) > 16:
        stem, ending = text, ""
    cut = stem.encode()[:_LONG_PART_BYTES].decode(errors="ignore").rstrip(". ")
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{cut}-{digest}{f'.{ending}' if ending else ''}"
