"""A file of a workspace, as readers receive it."""

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


def as_bytes(text: str) -> bytes:
    """Return the text as the bytes of a file.

    Raises: Refused if the text holds a lone surrogate, which no file can hold.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        rule = "contains half of a character (a lone surrogate), which no file can hold"
        raise Refused("content", text[error.start : error.end], rule) from error
