"""A file of a workspace, as readers receive it; what is a text, and sizes in words."""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.errors import Refused
from workspaces.ids import Version, version_of
from workspaces.paths import WorkspacePath


@dataclass(frozen=True, slots=True)
class File:
    path: WorkspacePath
    data: bytes

    @property
    def version(self) -> Version:
        return version_of(self.data)

    @property
    def text(self) -> str:
        """Return the text for a person or a model. Bytes that are not UTF-8 become �."""
        return self.data.decode(errors="replace")


TEXT_BYTES_CHECKED = 8_000
"""Bytes at the start of a file that decide whether it is a text: as many as git looks at."""

_UNITS = ("bytes", "KB", "MB", "GB")


def is_binary(data: bytes) -> bool:
    """Return True if the bytes are no text, as git decides it."""
    return b"\0" in data[:TEXT_BYTES_CHECKED]


def size_text(size: int) -> str:
    """Return a number of bytes in words: `1 byte`, `20 KB`, `1.4 MB`."""
    if size == 1:
        return "1 byte"
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 1 if unit and value < 9.95 else 0
    return f"{value:.{digits}f} {_UNITS[unit]}"


def as_bytes(text: str) -> bytes:
    """Return the text as the bytes of a file.

    Raises: Refused if the text holds a lone surrogate, which no file can hold.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        rule = "contains half of a character (a lone surrogate), which no file can hold"
        raise Refused("content", text[error.start : error.end], rule) from error
