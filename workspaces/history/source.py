"""The source of a file's text: who is to be believed for it.

No file says its own source, because anyone who writes the file could claim it. The source follows from the
revision that gave the body its words. A front matter is not part of the body, so changing a pin or a tag
changes no source.

| revision | source |
|---|---|
| by a person, a program over the API, or found as a manual edit | `manual` |
| by memorize | `memorize` |
| by a chain's director | `director` |
| by a turn, MCP, extraction, sleep, or anything unknown | `auto` |
| a merge whose body equals none of its parents' | the least trusted of its parents' |
| a file that came without its history | what the store said with the file, else `auto` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from workspaces.paths import WorkspacePath, broken_rule
from workspaces.revision import RevisionSource, one_line
from workspaces.timestamp import Stamp, is_stamp

Source = Literal["manual", "auto", "director", "memorize"]

TRUST: Mapping[Source, int] = {"auto": 0, "director": 1, "memorize": 2, "manual": 3}
"""Sources by how much they are believed. A merge of two bodies is believed as little as the lesser."""

_NAMED: Mapping[str, Source] = {source: source for source in TRUST}

ADOPTED = "Adopted"
"""Trailer of a revision in which a person makes a file's body theirs, without changing it. Its value is the
path."""

_RECEIVED = "Received "
"""Begins the trailer of a file that came without its history; the path follows. Its value is what the store
said about the file. A path holds no colon, so the key of the trailer ends where the path ends."""

_BY_REVISION: Mapping[str, Source] = {
    "api": "manual",
    "edit": "manual",
    "director": "director",
    "memorize": "memorize",
}

_MARKDOWN = (".md", ".markdown")
_FENCE = b"---"
AUTHOR_CHARACTERS_MAX = 120
"""Longest id of an author. Ids of this program have some thirty characters."""


@dataclass(frozen=True, slots=True)
class StatedOrigin:
    """What travels with a file whose history has not arrived: its origin as the writer's machine knows it."""

    updated_at: Stamp
    created_at: Stamp
    source: Source
    author: str

    def trailer(self, path: WorkspacePath) -> tuple[str, str]:
        """Return the trailer that records this origin in the revision by which the file comes in."""
        author = one_line(self.author)[:AUTHOR_CHARACTERS_MAX]
        return _RECEIVED + path, f"{self.updated_at} {self.created_at} {self.source} {author}"


def source_of(trailers: Mapping[str, str]) -> Source:
    """Return the source of a body that a revision with these trailers wrote."""
    return _BY_REVISION.get(trailers.get("Source", ""), "auto")


def source_by(writer: RevisionSource) -> Source:
    """Return the source of a body that such a writer writes."""
    return _BY_REVISION.get(writer, "auto")


def adopted_path(trailers: Mapping[str, str]) -> WorkspacePath | None:
    """Return the path that a revision adopts. A writer who is not believed adopts nothing."""
    path = trailers.get(ADOPTED, "")
    if source_of(trailers) != "manual" or broken_rule(path) is not None:
        return None
    return WorkspacePath(path)


def stated_origin(trailers: Mapping[str, str], path: str) -> StatedOrigin | None:
    """Return the origin that the store stated for a file, if its revision recorded a valid one."""
    value = trailers.get(_RECEIVED + path)
    if value is None or trailers.get("Source") != "sync":
        return None
    return _parse_trailer(value)


def stamps_before(trailers: Mapping[str, str]) -> list[Stamp]:
    """Return the stamps of the revisions that wrote what a revision received: it is later than those."""
    received = (value for key, value in trailers.items() if key.startswith(_RECEIVED))
    return [origin.updated_at for origin in map(_parse_trailer, received) if origin is not None]


def _parse_trailer(value: str) -> StatedOrigin | None:
    return parse_stated(*(value.split(" ", 3) + [""] * 4)[:4])


def parse_stated(updated_at: str, created_at: str, source: str, author: str) -> StatedOrigin | None:
    """Return the origin in these texts, which other machines wrote, or None if one is not valid."""
    known = _NAMED.get(source)
    if known is None or not is_stamp(updated_at) or not is_stamp(created_at):
        return None
    return StatedOrigin(Stamp(updated_at), Stamp(created_at), known, author[:AUTHOR_CHARACTERS_MAX])


def body_of(path: str, data: bytes) -> bytes:
    """Return the part of a file that says something: everything after the front matter of a Markdown file.

    A front matter begins with a first line `---` and ends with the next such line. Without an end there is
    none."""
    if not path.endswith(_MARKDOWN) or not data.startswith(_FENCE):
        return data
    first, _, rest = data.partition(b"\n")
    if first.rstrip() != _FENCE:
        return data
    start = 0
    while start < len(rest):
        end = rest.find(b"\n", start)
        line = rest[start:] if end < 0 else rest[start:end]
        start = len(rest) if end < 0 else end + 1
        if line.rstrip() == _FENCE:
            return rest[start:]
    return data
