"""Reading a page of a listing: botocore's own way takes 65 µs an object, which is most of what a sync of
unchanged files costs; this takes 1.

All objects of a page look alike: the first is the pattern of the others. Should one look different (a server
may leave something out), the page is read as XML, which takes 3 µs an object. A page that is, byte for byte,
one that was read lately is that one: whoever looks once a minute finds the same pages nearly every time.

It is hung into botocore before its parser and hands it the page without the objects, so that errors,
limits and encodings are read as ever. A page that looks in any way unlike a listing is left to it whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from xml.etree import ElementTree  # botocore reads the same bytes with the same parser

EVENT = "before-parse.*.ListObjectsV2"
"""Comes before `before-parse.s3.*`, where botocore reads all of a page to see whether it is an error."""

PAGES_KEPT = 32
"""Of a thousand objects, each page 0.7 MB."""

_BEGIN, _END = b"<Contents>", b"</Contents>"
_TAG = re.compile("</?[A-Za-z]+>")
_TOLD = ("Key", "Size", "ETag", "LastModified")
_WHOLE = "whole"
"""The group that holds all of an object."""


class ListedObject(NamedTuple):
    key: str
    """As the server has encoded it."""
    size: int
    tag: str | None
    modified: datetime | None


@dataclass(frozen=True, slots=True, eq=False)
class ListedPage:
    """Of one page. Two are the same where they are one: that is soon seen."""

    listed: tuple[ListedObject, ...]


def objects_of(contents: ListedPage | Iterable[Mapping[str, Any]]) -> ListedPage:
    """Of a page that was read here or by botocore."""
    if isinstance(contents, ListedPage):
        return contents
    return ListedPage(
        tuple(
            ListedObject(one["Key"], one["Size"], one.get("ETag"), one.get("LastModified"))
            for one in contents
        )
    )


def read_contents(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Handler of `EVENT`."""
    body = response_dict.get("body", b"")
    begin, end = body.find(_BEGIN), body.rfind(_END) + len(_END)
    if response_dict.get("status_code") != 200 or not 0 <= begin < end:
        return
    found = _read(body[begin:end])
    if found is not None:
        customized_response_dict["Contents"] = found
        response_dict["body"] = body[:begin] + body[end:]


@lru_cache(maxsize=PAGES_KEPT)
def _read(page: bytes) -> ListedPage | None:
    listed = _alike(page) or _as_xml(b"<page>" + page + b"</page>")
    return None if listed is None else ListedPage(listed)


def _alike(page: bytes) -> tuple[ListedObject, ...] | None:
    """None unless every object has the elements of the first, in its order, and nothing is between them."""
    pattern = _pattern(page[: page.index(_END) + len(_END)].decode(errors="replace"))
    if pattern is None:
        return None
    try:
        text = page.decode().replace("&#34;", '"').replace("&quot;", '"')
        columns = dict(
            zip(pattern.groupindex, zip(*pattern.findall(text), strict=True), strict=True)
        )
        if "&" in text or sum(map(len, columns[_WHOLE])) != len(text):
            return None
        sizes = map(int, columns["Size"])
        moments = map(_moment, columns["LastModified"])
        return tuple(map(ListedObject, columns["Key"], sizes, columns["ETag"], moments))
    except ValueError:
        return None


def _pattern(first: str) -> re.Pattern[str] | None:
    """The same tags, with any text between them. None where that is not all there is to an object."""
    tags = _TAG.findall(first)
    if any(tags.count(f"<{name}>") != 1 for name in _TOLD):
        return None
    parts = [
        f"{tag}(?P<{tag[1:-1]}>[^<]*)" if tag[1:-1] in _TOLD else f"{tag}[^<]*" for tag in tags[:-1]
    ]
    pattern = re.compile(f"(?P<{_WHOLE}>{''.join(parts)}{tags[-1]})")
    return pattern if pattern.fullmatch(first) else None


def _as_xml(page: bytes) -> tuple[ListedObject, ...] | None:
    """None unless there is nothing but whole objects."""
    try:
        entries = list(ElementTree.fromstring(page))  # noqa: S314
        if any(entry.tag != "Contents" for entry in entries):
            return None
        return tuple(
            ListedObject(
                entry.findtext("Key") or "",
                int(entry.findtext("Size") or ""),
                entry.findtext("ETag"),
                _moment(entry.findtext("LastModified") or ""),
            )
            for entry in entries
        )
    except (ElementTree.ParseError, ValueError):
        return None


@lru_cache(maxsize=4096)  # what was written together has one
def _moment(text: str) -> datetime | None:
    """ValueError."""
    return datetime.fromisoformat(text) if text else None
