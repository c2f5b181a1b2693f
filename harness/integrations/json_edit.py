"""Changing one thing in a JSON text and leaving every other byte as it is: somebody's settings.

Formatting, order, unknown keys and comments (which some programs allow) stay. The text is scanned for
where each value begins and ends; a change is one or two cuts in it. What was added at the end of an object
or a list and is removed again leaves exactly the bytes of before.
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
    """A value of the text. `begins` is where its key stands, if it has one."""

    begins: int
    start: int
    end: int
    key: str | None
    opening: str
    """`{` or `[`; else empty."""
    children: tuple[Node, ...] = ()

    def child(self, key: str) -> Node | None:
        return next((child for child in self.children if child.key == key), None)


def value_at(text: str, path: Sequence[str]) -> Any:
    """None where there is nothing."""
    node = _find(_parsed(text), path)
    return None if node is None else _value(text, node)


def with_value(text: str, path: Sequence[str], value: object) -> str:
    """With the value at a path of keys, which is made as far as it is missing."""
    root = _parsed(text)
    found = _find(root, path)
    if found is not None:
        return text[: found.start] + _dumped(text, value, len(path)) + text[found.end :]
    *parents, key = path
    parent = _find(root, parents)
    if parent is None:
        return with_value(text, parents, {key: value})
    _check_opening(parent, "{", parents)
    return _added(text, parent, len(parents), value, key)


def with_item(text: str, path: Sequence[str], value: object) -> str:
    """With the value as the last of the list at a path of keys, which is made if it is missing."""
    found = _find(_parsed(text), path)
    if found is None:
        return with_value(text, path, [value])
    _check_opening(found, "[", path)
    return _added(text, found, len(path), value, None)


def without(text: str, path: Sequence[str]) -> str:
    """Without what stands at a path of keys."""
    root = _parsed(text)
    parent, found = _find(root, path[:-1]), _find(root, path)
    return text if parent is None or found is None else _removed(text, parent, found)


def without_items(text: str, path: Sequence[str], is_meant: Callable[[Any], bool]) -> str:
    """Without those of the list at a path of keys."""
    while True:
        found = _find(_parsed(text), path)
        if found is None or found.opening != "[":
            return text
        meant = [child for child in found.children if is_meant(_value(text, child))]
        if not meant:
            return text
        text = _removed(text, found, meant[-1])


def _added(text: str, parent: Node, depth: int, value: object, key: str | None) -> str:
    named = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    told = named + _dumped(text, value, depth + 1)
    unit = _unit(text)
    if parent.children:
        last = parent.children[-1]
        is_spread = "\n" in text[parent.start : parent.children[0].begins]
        before = f"\n{unit * (depth + 1)}" if is_spread else " "
        return f"{text[: last.end]},{before}{told}{text[last.end :]}"
    inside = text[parent.start + 1 : parent.end - 1]
    if inside.strip():  # a comment alone
        return f"{text[: parent.start + 1]}\n{unit * (depth + 1)}{told}{text[parent.start + 1 :]}"
    spread = f"\n{unit * (depth + 1)}{told}\n{unit * depth}"
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
    told = json.dumps(value, ensure_ascii=False, indent=unit)
    return told.replace("\n", f"\n{unit * depth}")


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else "  "


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
    found = _STRING.match(text, start) or _ATOM.match(text, start)
    if found is None:
        raise _broken(text, start)
    return Node(begins, start, found.end(), key, "")


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
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _broken(text: str, at: int) -> Refused:
    line = text.count("\n", 0, at) + 1
    rule = f"is not JSON (line {line})"
    return Refused("configuration", text[at : at + 20], rule, remedy="repair it by hand first")
