"""The port for bytes under a name: a workspace's files, an S3 prefix, large entries of a transcript.

Whoever wants to replace or delete a blob says what it had seen. `Expect` is the `Token` of a read,
ABSENT (there must be nothing) or ANY (whatever is there; the caller takes the blame). A token is a
store's own tag: opaque, compared for equality, shown to nobody outside the store and sync. Two equal
tokens of one name mean equal bytes; different tokens do not mean different bytes.

What may be repeated after an answer got lost: every read, every scan, and a write or delete with ANY.
A conditional write is not repeated blindly: it may have happened, and the repetition would then fail
against its own effect. `Conflict` after a lost answer therefore says what is there, and the caller
compares it with what it wrote.

The contract is executed by tests/conformance/blob_store.py against every adapter and wrapper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NewType, Protocol

from workspaces.expect import Wildcard
from workspaces.ids import Version, version_of
from workspaces.paths import WorkspacePath

BlobName = str
"""A `/`-separated name. A workspace's file is stored under its path."""

Token = NewType("Token", str)

BLOB_BYTES_MAX = 64 * 2**20
"""What a store takes in one piece: the largest quota a single file can be given."""


Expect = Token | Wildcard


@dataclass(frozen=True, slots=True)
class Blob:
    name: BlobName
    data: bytes
    token: Token

    @property
    def version(self) -> Version:
        return version_of(self.data)


@dataclass(frozen=True, slots=True)
class Stat:
    """What a scan tells without reading: a token only where the store knows one for free."""

    name: BlobName
    size: int
    token: Token | None


class BlobStore(Protocol):
    """Bytes under a name, replaced only by someone who has seen the current ones.

    A write that fails leaves the old bytes readable and whole. Safe to call from several threads.
    """

    def read(self, name: BlobName) -> Blob:
        """NotFound."""
        ...

    def write(self, name: BlobName, data: bytes, *, expect: Expect) -> Token:
        """Conflict when `expect` does not hold; then nothing was written. Durable on return."""
        ...

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        """Conflict when `expect` does not hold. With ANY, nothing to delete is no error."""
        ...

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        """Every blob whose name starts with `prefix`, ascending by code points."""
        ...


def check_name(name: BlobName) -> BlobName:
    """A name that every store can hold: what `paths` asks of a file, minus what only prompts need."""
    return WorkspacePath(name)
