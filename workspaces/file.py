"""A file as a reader gets it."""

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
        """What a person or a model reads: bytes that are no UTF-8 are shown as �."""
        return self.data.decode(errors="replace")


def as_bytes(text: str) -> bytes:
    """What a text is in a file. Refused for one that no file can hold."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        rule = "holds half of a character (a lone surrogate), which no file can"
        raise Refused("content", text[error.start : error.end], rule) from error
