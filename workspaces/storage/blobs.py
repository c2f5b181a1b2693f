"""The port for bytes under a name: a workspace's files, an S3 prefix, large entries of a transcript.

A caller that replaces or deletes a blob names the state that it expects. `Expect` is the `Token` of a
read, ABSENT (the blob must not exist) or ANY (any state). With ANY the caller is responsible for the bytes
that it overwrites. A token is a store's own tag: opaque, compared for equality, and never visible outside the
store and sync. Two equal tokens of one name mean equal bytes. Different tokens do not mean different
bytes. Some tokens tell one thing more: that they belong to certain bytes only (`is_surely_of`).

After a lost answer a caller may repeat every read, every scan, and a write or delete with ANY. A caller
does not blindly repeat a conditional write. The first attempt may have succeeded, and the repetition would
then fail against its own effect. So `Conflict` after a lost answer reports the current state, and the
caller compares it with the bytes that it wrote.

A writer may attach `meta` to a blob: a few short words, such as the version and revision of a file. It is
for people who look at a bucket without this program. A store may drop it (a directory has no place for
it), so everything that must be known later is in the bytes. It is not part of the token.

tests/conformance/blob_store.py runs this contract against every adapter and wrapper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import md5
from types import MappingProxyType
from typing import NamedTuple, NewType, Protocol

from workspaces.conditions import Wildcard
from workspaces.errors import OverLimit, Refused
from workspaces.ids import Version, version_of
from workspaces.paths import WorkspacePath

BlobName = str
"""A `/`-separated name. A workspace's file is stored under its path."""

Token = NewType("Token", str)

BLOB_BYTES_MAX = 64 * 2**20
"""The largest blob of a store: the largest quota of a single file."""

Expect = Token | Wildcard

Meta = Mapping[str, str]
"""Lower-case words mapped to printable ASCII, which an HTTP header carries unchanged through any server."""

NO_META: Meta = MappingProxyType({})

META_BYTES_MAX = 1024
"""S3 allows 2 048 bytes, names included."""


@dataclass(frozen=True, slots=True)
class Blob:
    name: BlobName
    data: bytes
    token: Token
    meta: Meta = field(default_factory=dict[str, str], hash=False)
    """The words that its writer attached; empty if the store does not keep them."""

    @property
    def version(self) -> Version:
        return version_of(self.data)


@dataclass(frozen=True, slots=True)
class Stat:
    """An entry of a scan, made without reading the blob.

    It has a token only if the store knows the token at no cost.
    """

    name: BlobName
    size: int
    token: Token | None
    modified: float | None = field(default=None, compare=False)
    """Seconds since the epoch by the store's clock, if it has one. Sort by it; never decide by it."""


class ErasedPast(NamedTuple):
    """The result of deleting past versions for good."""

    versions: int
    """The number of versions that are gone."""
    refused: tuple[str, ...] = ()
    """Names of which the store keeps past versions, because it locks them or allows no deletion. An empty
    name stands for all: then they could not be listed."""


class PastData(NamedTuple):
    """The bytes of an object, or of a past version of it."""

    name: str
    version: str
    """Empty for what a reader gets."""
    data: bytes


class BlobStore(Protocol):
    """A store of bytes under names. A caller replaces bytes only if it has seen the current ones.

    A write that fails leaves the old bytes readable and whole. Several threads may call a store.
    """

    def read(self, name: BlobName) -> Blob:
        """Return the blob.

        Raises: NotFound if it does not exist.
        """
        ...

    def read_if_changed(self, name: BlobName, since: Token) -> Blob | None:
        """Return the blob, or None if it still has this token.

        Raises: NotFound if it does not exist.
        """
        ...

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        """Write the blob and return its token. The blob is durable on return.

        Raises: Conflict if `expect` does not hold; then nothing was written.
        """
        ...

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        """Delete the blob. With ANY, a missing blob is no error.

        Raises: Conflict if `expect` does not hold.
        """
        ...

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        """Yield every blob whose name starts with `prefix`, ascending by code points."""
        ...


def may_say_more(token: Token) -> bool:
    """Return True if `is_surely_of` can be true for this token."""
    return _MD5_TAG.fullmatch(token) is not None


def is_surely_of(token: Token, data: bytes) -> bool:
    """Return True if the token belongs to these bytes only. Then the caller need not read the blob.

    S3 tags an object that was put in one piece with its MD5. False means unknown: S3 does not do so for
    objects that it encrypts with a customer's key, and other stores use other tags.
    """
    return token == f'"{md5(data, usedforsecurity=False).hexdigest()}"'


def check_name(name: BlobName) -> BlobName:
    """Return the name, if every store can hold it: the rules are those of a workspace path.

    Raises: Refused if the name is invalid.
    """
    return WorkspacePath(name)


def check_meta(meta: Meta) -> Meta:
    size = 0
    for word, text in meta.items():
        if not is_meta_word(word):
            raise Refused("meta", word, "is not a word of lower-case letters")
        if not _is_meta_text(text):
            raise Refused(f"meta.{word}", text, "is not printable ASCII without spaces around it")
        size += len(word) + len(text)
    if size > META_BYTES_MAX:
        raise OverLimit("size of meta", maximum=META_BYTES_MAX, actual=size, unit="bytes")
    return meta


@lru_cache(maxsize=64)  # all files of a sync use the same few words
def is_meta_word(word: str) -> bool:
    return _META_WORD.fullmatch(word) is not None


def _is_meta_text(text: str) -> bool:
    return text.isascii() and text.isprintable() and text != "" and text == text.strip()


_MD5_TAG = re.compile(r'"[0-9a-f]{32}"')

_META_WORD = re.compile(r"[a-z]{1,32}")
