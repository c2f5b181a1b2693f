"""The places where a write is already durable."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Durable:
    """The places that hold a write durably.

    The disk of this machine always holds it: no call returns before that.
    """

    files: bool = False
    """True if S3 holds it as files."""
    history: bool = False
    """True if S3 holds it as revisions."""

    def as_json(self) -> dict[str, bool]:
        return {"local": True, "files": self.files, "history": self.history}


HERE = Durable()
