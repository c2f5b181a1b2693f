"""Edits of one value in a JSON text that leave every other byte as it is: a person's settings.

Formatting, order, unknown keys and comments (which some programs allow) stay. The text is scanned for the
start and end of each value; an edit is one or two cuts in it. If a value is added at the end of an object or
a list and removed again, the text has exactly the bytes of before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workspaces.errors import Refused

DEPTH_MAX = 100

_BETWEEN = re.compile(r"(?:[\s\ufeff]++|//[^\n]*+|/\*.*?\*/)*+", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"')
_ATOM = re.compile(r"[-+.\w]+")
_INDENT = re.compile(r"\n([ \t]+)\S")


@dataclass(frozen=True, slots=True)
class Node:
    """A value in the text. `begins` is the position of its key, if it has one."""

    begins: int
    start: int
    end: int
    key: str | None
    opening: str
    """`{` or `[`; otherwise empty."""
    children: tuple[Node, ...] = ()

    def child(self, key: str) -> Node | None:
        return next((child for child in self.children if child.key == key), None)


def value_at(text: str, path: Sequence[str]) -> Any:
    """Return the value at a path of keys; None where there is none."""
    node = _find(_parsed(text), path)
    return None if node is None else _value(text, node)


def with_value(text: str, path: Sequence[str], value: object) -> str:
    """Return the text with this value at a path of keys. Missing objects on the path are created."""
    root = _parsed(text)
    node = _find(root, path)
    if node is not None:
        return text[: node.start] + _dumped(text, value, len(path)) + text[node.end :]
    *parents, key = path
    parent = _find(root, parents)
    if parent is None:
        return with_value(text, parents, {key: value})
    _check_opening(parent, "{", parents)
    return _added(text, parent, len(parents), value, key)


def with_item(text: str, path: Sequence[str], value: object) -> str:
    """Return the text with this value as the last item of the list at a path of keys. A missing list is
    created."""
    node = _find(_parsed(text), path)
    if node is None:
        return with_value(text, path, [value])
    _check_opening(node, "[", path)
    return _added(text, node, len(path), value, None)


def without(text: str, path: Sequence[str]) -> str:
    """Return the text without the value at a path of keys."""
    root = _parsed(text)
    parent, node = _find(root, path[:-1]), _find(root, path)
    return text if parent is None or node is None else _removed(text, parent, node)


def without_items(text: str, path: Sequence[str], is_unwanted: Callable[[Any], bool]) -> str:
    """Return the text without the items for which `is_unwanted` is true, in the list at a path of keys."""
    while True:
        node = _find(_parsed(text), path)
        if node is None or node.opening != "[":
            return text
        unwanted = [child for child in node.children if is_unwanted(_value(text, child))]
        if not unwanted:
            return text
        text = _removed(text, node, unwanted[-1])


def _added(text: str, parent: Node, depth: int, value: object, key: str | None) -> str:
    named = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    item = named + _dumped(text, value, depth + 1)
    unit = _unit(text)
    if parent.children:
        last = parent.children[-1]
        is_spread = "\n" in text[parent.start : parent.children[0].begins]
        before = f"\n{unit * (depth + 1)}" if is_spread else " "
        return f"{text[: last.end]},{before}{item}{text[last.end :]}"
    inside = text[parent.start + 1 : parent.end - 1]
    if inside.strip():  # a comment alone
        return f"{text[: parent.start + 1]}\n{unit * (depth + 1)}{item}{text[parent.start + 1 :]}"
    spread = f"\n{unit * (depth + 1)}{item}\n{unit * depth}"
    return f"{text[: parent.start + 1]}{spread}{text[parent.end - 1 :]}"


def _removed(text: str, parent: Node, child: Node) -> str:
    at = parent.children.index(child)
    if child is not parent.children[-1]:
        comma = _comma(text, child.end)
        return text[: child.begins] + text[child.end : comma] + text[comma + 1 :].lstrip()
    if at:
        last = parent.children[at - 1].end
        comma = _comma(text, last)
        kept = text[last:comma] + text[comma + 1 : child.begins].rstrip()
        ended = "\n" if "//" in kept.rpartition("\n")[2] and text[child.end] != "\n" else ""
        return text[:last] + kept + ended + text[child.end :]
    inside = text[parent.start + 1 : child.begins] + text[child.end : parent.end - 1]
    kept = inside.rstrip() + "\n" if inside.strip(", \t\r\n") else ""
    return text[: parent.start + 1] + kept + text[parent.end - 1 :]


def _comma(text: str, at: int) -> int:
    end = _skip(text, at)
    if text[end] != ",":
        raise _broken(text, end)
    return end


def _find(root: Node, path: Sequence[str]) -> Node | None:
    node: Node | None = root
    for key in path:
        node = node.child(key) if node is not None and node.opening == "{" else None
    return node


def _value(text: str, node: Node) -> Any:
    if node.opening == "{":
        return {child.key: _value(text, child) for child in node.children}
    if node.opening == "[":
        return [_value(text, child) for child in node.children]
    try:
        return json.loads(text[node.start : node.end])
    except ValueError as error:
        raise _broken(text, node.start) from error


def _dumped(text: str, value: object, depth: int) -> str:
    unit = _unit(text)
    dumped = json.dumps(value, ensure_ascii=False, indent=unit)
    return dumped.replace("\n", f"\n{unit * depth}")


def _unit(text: str) -> str:
    match = _INDENT.search(text)
    return match[1] if match else "  "


def _check_opening(node: Node, opening: str, path: Sequence[str]) -> None:
    if node.opening != opening:
        kind = "an object" if opening == "{" else "a list"
        remedy = "change it by hand"
        raise Refused("configuration", ".".join(path), f"is not {kind}", remedy=remedy)


# --- scanning ---------------------------------------------------------------------------------------


def _parsed(text: str) -> Node:
    start = _skip(text, 0)
    node = _scan(text, start, start, None, 0)
    if _skip(text, node.end) != len(text):
        raise _broken(text, node.end)
    return node


def _scan(text: str, begins: int, start: int, key: str | None, depth: int) -> Node:
    if depth > DEPTH_MAX:
        raise _broken(text, start)
    opening = text[start : start + 1]
    if opening in {"{", "["}:
        return _scan_container(text, begins, start, key, depth)
    match = _STRING.match(text, start) or _ATOM.match(text, start)
    if match is None:
        raise _broken(text, start)
    return Node(begins, start, match.end(), key, "")


def _scan_container(text: str, begins: int, start: int, key: str | None, depth: int) -> Node:
    opening = text[start]
    closing = "}" if opening == "{" else "]"
    children: list[Node] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != closing:
        child, at = _scan_child(text, at, opening, depth)
        children.append(child)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _broken(text, at)
    return Node(begins, start, at + 1, key, opening, tuple(children))


def _scan_child(text: str, at: int, opening: str, depth: int) -> tuple[Node, int]:
    begins, key = at, None
    if opening == "{":
        name = _STRING.match(text, at)
        if name is None:
            raise _broken(text, at)
        key = json.loads(name[0])
        at = _skip(text, name.end())
        if text[at : at + 1] != ":":
            raise _broken(text, at)
        at = _skip(text, at + 1)
    child = _scan(text, begins, at, key, depth + 1)
    return child, child.end


def _skip(text: str, at: int) -> int:
    match = _BETWEEN.match(text, at)
    return match.end() if match else at


def _broken(text: str, at: int) -> Refused:
    line = text.count("\n", 0, at) + 1
    rule = f"is not JSON (line {line})"
    return Refused("configuration", text[at : at + 20], rule, remedy="repair it by hand first")
