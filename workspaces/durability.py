"""The place where a write is already durable: S3, or only this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Place = Literal["s3", "here"]


@dataclass(frozen=True, slots=True)
class Durable:
    """The places that hold a write durably.

    The disk of this machine always holds it: no call returns before that.
    """

    files: Place = "here"
    """`s3` if S3 holds it as files."""
    history: Place = "here"
    """`s3` if S3 holds it as revisions."""

    @classmethod
    def of(cls, *, files: bool, history: bool) -> Durable:
        """Return the places of a write. Each flag says that S3 holds it."""
        return cls("s3" if files else "here", "s3" if history else "here")

    def as_json(self) -> dict[str, Place]:
        return {"files": self.files, "history": self.history}


HERE = Durable()
