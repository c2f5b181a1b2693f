"""`If-Match` and `If-None-Match`: on what state of a file a request may act (RFC 9110, section 13).

A condition is judged against the version that is there, and the act then expects exactly that version;
where somebody was faster in between, it is judged anew. So every form of condition, lists too, decides
as one compare-and-swap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from starlette.datastructures import Headers

from harness.web.http.errors import Malformed, Stale
from workspaces.conditions import ABSENT, ANY, Wildcard
from workspaces.errors import AlreadyExists, Conflict, Unavailable
from workspaces.ids import Version

TRIES_MAX = 20
"""Nobody meets a file that changes faster than this between a look and a write, again and again."""

_TAG = re.compile(r'(?P<weak>W/)?"(?P<tag>[\x21\x23-\x7e\x80-\xff]*)"')
_SEPARATOR = re.compile(r"[ \t]*,[ \t,]*")

T = TypeVar("T")

Expectation = Version | Wildcard


@dataclass(frozen=True, slots=True)
class EntityTag:
    value: str
    is_weak: bool


@dataclass(frozen=True, slots=True)
class EntityTags:
    """What a header lists; `any_at_all` is its `*`."""

    tags: tuple[EntityTag, ...] = ()
    any_at_all: bool = False

    def match(self, version: Version | None, *, weakly: bool) -> bool:
        """Weak tags never match where bytes are replaced: they do not promise equal bytes."""
        if version is None:
            return False
        return self.any_at_all or any(
            tag.value == version and (weakly or not tag.is_weak) for tag in self.tags
        )


@dataclass(frozen=True, slots=True)
class Precondition:
    match: EntityTags | None
    none_match: EntityTags | None

    @classmethod
    def of(cls, headers: Headers) -> Precondition:
        return cls(_tags(headers, "If-Match"), _tags(headers, "If-None-Match"))

    @property
    def is_stated(self) -> bool:
        return self.match is not None or self.none_match is not None

    def check(self, version: Version | None) -> None:
        """Stale where a request that writes may not act on this version."""
        self.check_match(version)
        if self.none_match is not None and self.none_match.match(version, weakly=True):
            state = "already exists" if self.none_match.any_at_all else "has not changed"
            raise Stale(f"Version mismatch: the file {state}.", field="If-None-Match")

    def check_match(self, version: Version | None) -> None:
        if self.match is not None and not self.match.match(version, weakly=False):
            state = f"the current version is {etag(version)}" if version else "there is no file"
            raise Stale(
                f"Version mismatch: {state}. Read the file again and repeat the change.",
                field="If-Match",
            )

    def is_unchanged(self, version: Version) -> bool:
        """Whether a reader has this version already."""
        return self.none_match is not None and self.none_match.match(version, weakly=True)

    def act(self, look: Callable[[], Version | None], act: Callable[[Expectation], T]) -> T:
        """What `act` returns when it has found what this asks for; `look` says what is there."""
        if not self.is_stated:
            return act(ANY)
        for _ in range(TRIES_MAX):
            version = look()
            self.check(version)
            try:
                return act(ABSENT if version is None else version)
            except Conflict as conflict:
                if isinstance(conflict, AlreadyExists) and look() is None:
                    raise  # not this file is in the way but one of nearly its name
        raise Unavailable("the file", "it changes faster than a condition can be judged")


def etag(version: Version) -> str:
    return f'"{version}"'


def _tags(headers: Headers, name: str) -> EntityTags | None:
    values = headers.getlist(name)
    if not values:
        return None
    text = ", ".join(values).strip(" \t")
    return EntityTags(any_at_all=True) if text == "*" else EntityTags(tuple(_parsed(name, text)))


def _parsed(name: str, text: str) -> Sequence[EntityTag]:
    tags: list[EntityTag] = []
    position = 0
    while position < len(text):
        found = _TAG.match(text, position)
        if found is None:
            break
        tags.append(EntityTag(found["tag"], found["weak"] is not None))
        position = found.end()
        separator = _SEPARATOR.match(text, position)
        if separator is None:
            break
        position = separator.end()
    if position < len(text) or not tags:
        message = (
            f'{name} must be * or a list of quoted versions such as "9f86d0…", as ETag has them'
        )
        raise Malformed(message, field=name)
    return tags
