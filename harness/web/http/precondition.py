"""The preconditions `If-Match` and `If-None-Match` of a request on a file (RFC 9110, section 13).

The door of writes (`workspaces.workspace.decided_files`) checks a condition against the version that it is
about to replace. So every form of condition, lists included, works as one compare-and-swap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers

from harness.web.http.errors import Malformed, Stale
from workspaces.ids import Version
from workspaces.workspace.decided_files import VersionCheck

_TAG = re.compile(r'(?P<weak>W/)?"(?P<tag>[\x21\x23-\x7e\x80-\xff]*)"')
_SEPARATOR = re.compile(r"[ \t]*,[ \t,]*")


@dataclass(frozen=True, slots=True)
class EntityTag:
    value: str
    is_weak: bool


@dataclass(frozen=True, slots=True)
class EntityTags:
    """The tags that a header lists. `matches_any` is its `*`."""

    tags: tuple[EntityTag, ...] = ()
    matches_any: bool = False

    def match(self, version: Version | None, *, weakly: bool) -> bool:
        """Return True if the version is one of the tags.

        Weak tags match only if `weakly`. They do not promise equal bytes, so they never allow a write.
        """
        if version is None:
            return False
        return self.matches_any or any(
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
        """Raise Stale if a request may not write to a file at this version (None: there is no file)."""
        self.check_match(version)
        if self.none_match is not None and self.none_match.match(version, weakly=True):
            state = "already exists" if self.none_match.matches_any else "has not changed"
            raise Stale(f"Version mismatch: the file {state}.", field="If-None-Match")

    def check_match(self, version: Version | None) -> None:
        if self.match is not None and not self.match.match(version, weakly=False):
            state = f"the current version is {etag(version)}" if version else "there is no file"
            raise Stale(
                f"Version mismatch: {state}. Read the file again and repeat the change.",
                field="If-Match",
            )

    def is_unchanged(self, version: Version) -> bool:
        """Return True if the reader already has this version."""
        return self.none_match is not None and self.none_match.match(version, weakly=True)

    @property
    def as_check(self) -> VersionCheck | None:
        """Return the condition for the door of writes, or None if the request states none."""
        return self.check if self.is_stated else None


def etag(version: Version) -> str:
    return f'"{version}"'


def _tags(headers: Headers, name: str) -> EntityTags | None:
    values = headers.getlist(name)
    if not values:
        return None
    text = ", ".join(values).strip(" \t")
    return EntityTags(matches_any=True) if text == "*" else EntityTags(tuple(_parsed(name, text)))


def _parsed(name: str, text: str) -> Sequence[EntityTag]:
    tags: list[EntityTag] = []
    position = 0
    while position < len(text):
        tag = _TAG.match(text, position)
        if tag is None:
            break
        tags.append(EntityTag(tag["tag"], tag["weak"] is not None))
        position = tag.end()
        separator = _SEPARATOR.match(text, position)
        if separator is None:
            break
        position = separator.end()
    if position < len(text) or not tags:
        message = f'{name} must be * or a list of quoted versions such as "9f86d0…", as in ETag'
        raise Malformed(message, field=name)
    return tags
