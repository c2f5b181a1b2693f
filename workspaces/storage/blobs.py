"""The port for bytes under a name: a workspace's files, an S3 prefix, large entries of a transcript.

Whoever wants to replace or delete a blob says what it had seen. `Expect` is the `Token` of a read,
ABSENT (there must be nothing) or ANY (whatever is there; the caller takes the blame). A token is a
store's own tag: opaque, compared for equality, shown to nobody outside the store and sync. Two equal
tokens of one name mean equal bytes; different tokens do not mean different bytes. One thing more can be
known of a token: whether it can only be that of some bytes (`is_surely_of`).

What may be repeated after an answer got lost: every read, every scan, and a write or delete with ANY.
A conditional write is not repeated blindly: it may have happened, and the repetition would then fail
against its own effect. `Conflict` after a lost answer therefore says what is there, and the caller
compares it with what it wrote.

A writer may say something about a blob: `meta`, a few short words such as the version and revision a file
came from. It is for those who look at a bucket without us, and a store may leave it out (a directory has
no place for it): whatever must be known later stands in the bytes. It is no part of the token.

The contract is executed by tests/conformance/blob_store.py against every adapter and wrapper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import md5
from types import MappingProxyType
from typing import NewType, Protocol

from workspaces.conditions import Wildcard
from workspaces.errors import OverLimit, Refused
from workspaces.ids import Version, version_of
from workspaces.paths import WorkspacePath

BlobName = str
"""A `/`-separated name. A workspace's file is stored under its path."""

Token = NewType("Token", str)

BLOB_BYTES_MAX = 64 * 2**20
"""What a store takes in one piece: the largest quota a single file can be given."""

Expect = Token | Wildcard

Meta = Mapping[str, str]
"""Lower-case words to printable ASCII: what an HTTP header carries unchanged through any server."""

NO_META: Meta = MappingProxyType({})

META_BYTES_MAX = 1024
"""S3 takes 2 048, with the names."""


@dataclass(frozen=True, slots=True)
class Blob:
    name: BlobName
    data: bytes
    token: Token
    meta: Meta = field(default_factory=dict[str, str], hash=False)
    """What its writer said about it, where the store keeps that; else empty."""

    @property
    def version(self) -> Version:
        return version_of(self.data)


@dataclass(frozen=True, slots=True)
class Stat:
    """What a scan tells without reading: a token only where the store knows one for free."""

    name: BlobName
    size: int
    token: Token | None
    modified: float | None = field(default=None, compare=False)
    """Seconds since the epoch by the store's clock, where it has one: to sort by, never to decide by."""


class BlobStore(Protocol):
    """Bytes under a name, replaced only by someone who has seen the current ones.

    A write that fails leaves the old bytes readable and whole. Safe to call from several threads.
    """

    def read(self, name: BlobName) -> Blob:
        """NotFound."""
        ...

    def read_if_changed(self, name: BlobName, since: Token) -> Blob | None:
        """The blob, or None while it is as it was with this token. NotFound."""
        ...

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        """Conflict when `expect` does not hold; then nothing was written. Durable on return."""
        ...

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        """Conflict when `expect` does not hold. With ANY, nothing to delete is no error."""
        ...

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        """Every blob whose name starts with `prefix`, ascending by code points."""
        ...


def may_say_more(token: Token) -> bool:
    """Whether `is_surely_of` can be true of anything."""
    return _MD5_TAG.fullmatch(token) is not None


def is_surely_of(token: Token, data: bytes) -> bool:
    """Whether a token can only be that of these bytes, which then need not be read there: S3 tags what was
    put in one piece with its MD5. Where it does not (what it encrypts with a customer's key), and of
    any other tag, this says nothing."""
    return token == f'"{md5(data, usedforsecurity=False).hexdigest()}"'


def check_name(name: BlobName) -> BlobName:
    """A name that every store can hold: what `paths` asks of a file, minus what only prompts need."""
    return WorkspacePath(name)


def check_meta(meta: Meta) -> Meta:
    size = 0
    for word, said in meta.items():
        if not is_meta_word(word):
            raise Refused("meta", word, "is not a word of lower-case letters")
        if not _is_meta_text(said):
            raise Refused(f"meta.{word}", said, "is not printable ASCII without spaces around it")
        size += len(word) + len(said)
    if size > META_BYTES_MAX:
        raise OverLimit("size of meta", maximum=META_BYTES_MAX, actual=size, unit="bytes")
    return meta


@lru_cache(maxsize=64)  # every file of a sync comes with the same few
def is_meta_word(word: str) -> bool:
    return _META_WORD.fullmatch(word) is not None


def _is_meta_text(said: str) -> bool:
    return said.isascii() and said.isprintable() and said != "" and said == said.strip()


_MD5_TAG = re.compile(r'"[0-9a-f]{32}"')

_META_WORD = re.compile(r"[a-z]{1,32}")
