"""Past versions: what a bucket keeps of objects that were replaced or deleted, read from its listing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

WITHOUT_VERSIONS = frozenset({405, 501})
"""Answers of servers that know no versions."""


class PastVersion(NamedTuple):
    key: str
    version: str
    is_mark: bool
    """True for the mark of a deletion, which has no bytes."""


def past_versions_of(page: Mapping[str, Any]) -> Iterator[PastVersion]:
    """Yield the versions of a page that are not what a reader gets, and all marks of deletions."""
    is_encoded = page.get("EncodingType") == "url"
    for field in ("Versions", "DeleteMarkers"):
        is_mark = field == "DeleteMarkers"
        for one in page.get(field, ()):
            if is_mark or not one["IsLatest"]:
                key = unquote_plus(one["Key"]) if is_encoded else one["Key"]
                yield PastVersion(key, one["VersionId"], is_mark)


def markers_of(page: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments that ask for the page after this one."""
    is_encoded = page.get("EncodingType") == "url"
    key = page.get("NextKeyMarker", "")
    markers = {
        "KeyMarker": unquote_plus(key) if is_encoded else key,
        "VersionIdMarker": page.get("NextVersionIdMarker", ""),
    }
    return {name: value for name, value in markers.items() if value}
