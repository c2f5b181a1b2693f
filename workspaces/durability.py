"""Where something that was written is safe."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Durable:
    """On the disk of this machine always: nothing is answered before."""

    files: bool = False
    """In S3, as files."""
    history: bool = False
    """In S3, as revisions."""

    def as_json(self) -> dict[str, bool]:
        return {"local": True, "files": self.files, "history": self.history}


HERE = Durable()
