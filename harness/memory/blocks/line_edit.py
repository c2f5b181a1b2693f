"""Edits of single entries of a block: add, replace, remove.

An entry is named by its text. Its list mark may be left out, and so may the lines that continue it.
"""

from __future__ import annotations

import re
from itertools import pairwise

from harness.memory.blocks.block import entry_starts
from workspaces.errors import Refused

_MARK = re.compile(r"[ \t]*+(?:[-*+]|\d{1,9}[.)])[ \t]++")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")


def with_entry(content: str, text: str) -> str:
    """Return the content with one more entry at its end; unchanged if it has the entry already."""
    wanted = _plain(text)
    if any(_plain(one) == wanted for one, _, _ in _entries(content)):
        return content
    return f"{content}\n{_as_entry(text)}" if content else _as_entry(text)


def with_entry_replaced(content: str, entry: str, text: str) -> str:
    """Return the content with another text in place of an entry.

    Raises: Refused if no entry, or more than one, has this text.
    """
    start, end = _place_of(content, entry)
    lines = content.split("\n")
    return "\n".join([*lines[:start], *_as_entry(text).split("\n"), *lines[end:]])


def without_entry(content: str, entry: str) -> str:
    """Return the content without an entry.

    Raises: Refused if no entry, or more than one, has this text.
    """
    start, end = _place_of(content, entry)
    lines = content.split("\n")
    return "\n".join([*lines[:start], *lines[end:]]).rstrip("\n")


def _entries(content: str) -> list[tuple[str, int, int]]:
    """Return the text of each entry, its first line and the line behind its last."""
    lines = content.split("\n")
    entries: list[tuple[str, int, int]] = []
    for start, limit in pairwise([*entry_starts(content), len(lines)]):
        end = start + 1
        for number in range(start + 1, limit):
            if _HEADING.match(lines[number]):
                break
            if lines[number].strip():
                end = number + 1
        entries.append(("\n".join(lines[start:end]), start, end))
    return entries


def _place_of(content: str, entry: str) -> tuple[int, int]:
    wanted = _plain(entry)
    entries = _entries(content)
    found = [(start, end) for text, start, end in entries if _plain(text) == wanted]
    found = found or [
        (start, end) for text, start, end in entries if _plain(text.partition("\n")[0]) == wanted
    ]
    if len(found) != 1:
        rule = "is in the block more than once" if found else "is not in the block"
        raise Refused("entry", entry, rule)
    return found[0]


def _plain(entry: str) -> str:
    """Return the text of an entry without its list mark and without differences in white space."""
    mark = _MARK.match(entry)
    return " ".join(entry[mark.end() if mark else 0 :].split())


def _as_entry(text: str) -> str:
    """Return the text as one list item: with a mark, and with its further lines indented."""
    first, *rest = text.strip().split("\n")
    if not _MARK.match(first) and not _HEADING.match(first):
        first = f"- {first}"
    indented = [line if not line.strip() or line[:1] in " \t" else f"  {line}" for line in rest]
    return "\n".join([first, *indented])
