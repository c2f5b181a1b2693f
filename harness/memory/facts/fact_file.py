"""The view of a fact's file: read its front matter and body, and write them back.

A person, an editor or another program may keep keys of their own in the front matter, in any order and with
comments. Writing a fact changes the lines of the fact's own keys and no other line. If the lines are written
in a way that this module cannot edit, the whole front matter is written anew with the same content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.memory.facts.fact import IMPORTANCE_MAX, VALUE_CHARACTERS_MAX, check_key
from workspaces import plain_yaml
from workspaces.errors import Failure, Refused
from workspaces.paths import WorkspacePath

OWN_KEYS = ("key", "pinned", "importance")
"""The keys of a front matter that this module reads and writes."""

PROTECTED_KEYS = ("pinned", "importance")
"""The keys that only a person sets. A model's change of them is put back."""

_FENCE = "---"
_KEY_LINE = re.compile(r"""["']?([A-Za-z_][A-Za-z0-9_-]*)["']?\s*:(\s|$)""")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_READ_AS_ANOTHER_TYPE = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
"""Words that other readers of YAML do not take for text."""

_WHOLE_NUMBER = re.compile(r"[0-9]{1,3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FactFile:
    """What the file of a fact says."""

    key: str
    value: str
    pinned: bool = False
    importance: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The other keys of the front matter."""
    is_truncated: bool = False
    problem: str | None = None
    """What is wrong with the file although it is a fact."""


@dataclass(frozen=True, slots=True)
class _Document:
    """A file in two parts."""

    front: list[str] | None
    """The lines between the fences. None: there is no front matter."""
    body: str
    """Everything after them, as it is in the file."""


def read_fact(path: WorkspacePath, data: bytes) -> FactFile:
    """Return the content of a fact's file.

    Raises: Refused if it is no fact.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Refused(path, None, "is not UTF-8 text") from error
    document = _split(text)
    said = _front(path, document)
    key, problems = _key(path, said), list[str]()
    value = document.body.replace("\r\n", "\n").removesuffix("\n")
    if not value.strip():
        raise Refused(path, None, "has no text below its front matter")
    if len(value) > VALUE_CHARACTERS_MAX:
        problems.append(
            f"its text has {len(value):,} characters; a fact has at most {VALUE_CHARACTERS_MAX:,}"
        )
    pinned, importance = said.get("pinned", "false"), said.get("importance", "0")
    if pinned not in ("true", "false"):
        problems.append("pinned is neither true nor false")
    number = int(importance) if _is_number(importance) else -1
    if not 0 <= number <= IMPORTANCE_MAX:
        problems.append(f"importance is not a whole number from 0 to {IMPORTANCE_MAX}")
    return FactFile(
        key,
        value[:VALUE_CHARACTERS_MAX],
        pinned == "true",
        number if 0 <= number <= IMPORTANCE_MAX else 0,
        {name: told for name, told in said.items() if name not in OWN_KEYS},
        is_truncated=len(value) > VALUE_CHARACTERS_MAX,
        problem="; ".join(problems) or None,
    )


def write_fact(
    before: bytes | None,
    *,
    key: str,
    value: str | None,
    pinned: bool,
    importance: int,
    attributes: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the file's new bytes. `before` is the file so far; its other keys stay. With `value` None its
    body stays too, byte for byte: so the body's source stays. `attributes` are further keys to set; None
    removes one."""
    changes: dict[str, Any] = {
        "key": key,
        "pinned": "true" if pinned else None,
        "importance": str(importance) if importance else None,
        **(attributes or {}),
    }
    document = _split(before.decode()) if before is not None else _Document(None, "")
    front = _edited(document.front or [], changes)
    body = document.body if value is None else f"{value}\n"
    return "\n".join([_FENCE, *front, _FENCE, body]).encode()


def put_back(path: WorkspacePath, before: bytes | None, after: bytes) -> tuple[bytes, list[str]]:
    """Return the file with the protected keys as they were before, and the names of those that had changed.
    A file that is no fact is left as it is."""
    document, said = _read(path, after)
    if said is None:
        return after, []
    _, known = _read(path, before) if before is not None else (None, None)
    was = known or {}
    changed = [name for name in PROTECTED_KEYS if said.get(name) != was.get(name)]
    if not changed:
        return after, []
    front = _edited(document.front or [], {name: was.get(name) for name in changed})
    text = "\n".join([_FENCE, *front, _FENCE, document.body]) if front else document.body
    return text.encode(), changed


def _read(path: WorkspacePath, data: bytes) -> tuple[_Document, dict[str, Any] | None]:
    """Return a file's parts and its front matter, or None where that is no front matter."""
    try:
        document = _split(data.decode())
        return document, _front(path, document)
    except (UnicodeDecodeError, Failure):
        return _Document(None, ""), None


def _split(text: str) -> _Document:
    first, _, rest = text.partition("\n")
    if first.rstrip() != _FENCE:
        return _Document(None, text)
    lines = rest.split("\n")
    end = next((n for n, line in enumerate(lines) if line.rstrip() == _FENCE), None)
    if end is None:
        return _Document(None, text)
    front = [line.removesuffix("\r") for line in lines[:end]]
    return _Document(front, "\n".join(lines[end + 1 :]))


def _front(path: WorkspacePath, document: _Document) -> dict[str, Any]:
    if document.front is None:
        if document.body.partition("\n")[0].rstrip() == _FENCE:
            raise Refused(path, None, "has a front matter without an end: a line `---` is missing")
        return {}
    return plain_yaml.load("\n".join(document.front), name=path)


def _key(path: WorkspacePath, said: Mapping[str, Any]) -> str:
    key = said.get("key", path.name.removesuffix(".md"))
    if not isinstance(key, str):
        raise Refused(path, None, "has a key that is not a text")
    return check_key(key)


def _is_number(text: object) -> bool:
    return isinstance(text, str) and _WHOLE_NUMBER.fullmatch(text) is not None


def _edited(front: list[str], changes: Mapping[str, Any]) -> list[str]:
    """Return the lines with these keys set, or removed where the new value is None."""
    said = plain_yaml.load("\n".join(front), name="front matter")
    wanted = {**said, **changes}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if wanted == said:
        return front
    if not wanted:
        return [line for line in front if line.startswith("#")]
    by_line = [line for name, line in _segments(front) if name not in changes]
    new = [_line(name, value) for name, value in changes.items() if value is not None]
    lines = [*new[:1], *by_line, *new[1:]] if "key" in changes else [*by_line, *new]
    try:
        if plain_yaml.load("\n".join(lines), name="front matter") == wanted:
            return lines
    except Failure:
        pass  # the keys are not on lines of their own
    return plain_yaml.dump(wanted).splitlines()


def _segments(front: list[str]) -> list[tuple[str, str]]:
    """Return each line with the key that it belongs to. Comments and blank lines belong to none."""
    found: list[tuple[str, str]] = []
    key = ""
    for line in front:
        starts = _KEY_LINE.match(line)
        if starts is not None:
            key = starts[1]
        elif not line.strip() or line.startswith("#"):
            key = ""
        found.append((key, line))
    return found


def _line(name: str, value: Any) -> str:
    if name in PROTECTED_KEYS:
        return f"{name}: {value}"  # as people write a boolean and a number
    if isinstance(value, str):
        return f"{name}: {_scalar(value)}"
    return plain_yaml.dump({name: value}).rstrip("\n")


def _scalar(text: str) -> str:
    """Return a text as YAML that every reader takes for this text."""
    if _PLAIN.fullmatch(text) and text.lower() not in _READ_AS_ANOTHER_TYPE:
        return text
    return plain_yaml.dump_text(text)
