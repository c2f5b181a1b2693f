"""A YAML reader in which every scalar is the text that a person typed.

YAML's guesses (`no` is false, `012` is ten, `1:20` is eighty) have no place in memory or settings. The
code that reads a value knows its type and converts it. Aliases, tags and duplicate keys are refused. Size
and depth are limited: otherwise a file of a kilobyte can unfold into gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from workspaces.errors import OverLimit, Refused

if TYPE_CHECKING:
    import yaml

TEXT_BYTES_MAX = 256 * 1024
DEPTH_MAX = 12

_ONE_LINE = 2**30
"""A width at which no text is folded."""


_PLAIN_LINE = re.compile(
    r"#[ -~]*|([a-z_]{1,64}): ([A-Za-z0-9](?:[A-Za-z0-9_./-]|:(?=[A-Za-z0-9/]))*)|"
)
"""A comment, a key with a value that needs no rule of YAML, or an empty line."""


def load(text: str, *, name: str) -> dict[str, Any]:
    """Return the mapping that the text holds; `{}` for an empty text.

    Raises: Refused, naming `name` and the line, for any other text. OverLimit if the text is too large.
    """
    if len(text.encode(errors="replace")) > TEXT_BYTES_MAX:
        raise OverLimit(name, maximum=TEXT_BYTES_MAX, actual=len(text.encode()), unit="bytes")
    plain = _plain_lines(text)
    if plain is not None:
        return plain
    import yaml  # takes twice as long as the start of python itself

    try:
        data: Any = yaml.load(text, _loader())  # noqa: S506 - a BaseLoader: nothing but strings
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise Refused(name, _line(text, error), f"is not valid: {error.problem}{line}") from error
    except yaml.YAMLError as error:
        raise Refused(name, text[:40], f"is not YAML: {error}") from error
    if data is None or data == "":
        return {}
    if not isinstance(data, dict):
        raise Refused(name, text[:40], "must hold `key: value` lines")
    return cast(dict[str, Any], data)


def dump(data: Mapping[str, Any]) -> str:
    """Return the lines of a mapping, in its order. `load` reads the same mapping."""
    import yaml

    return yaml.safe_dump(dict(data), allow_unicode=True, sort_keys=False, width=_ONE_LINE)


def dump_text(text: str) -> str:
    """Return a text in double quotes, on one line. `load` reads the same text."""
    import yaml

    dumped: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=_ONE_LINE)
    return dumped.rstrip("\n")


def _line(text: str, error: yaml.MarkedYAMLError) -> str:
    lines = text.splitlines()
    mark = error.problem_mark
    return lines[mark.line].strip() if mark and mark.line < len(lines) else ""


def _plain_lines(text: str) -> dict[str, Any] | None:
    """Return the mapping of a text that has plain lines only. Return None for any other text."""
    values: dict[str, Any] = {}
    for line in text.split("\n"):
        match = _PLAIN_LINE.fullmatch(line)
        if match is None or match[1] in values:
            return None
        if match[1] is not None:
            values[match[1]] = match[2]
    return values


@cache
def _loader() -> Any:
    """Return a loader with limits. Its parent, BaseLoader, already makes every scalar a string."""
    import yaml

    class PlainLoader(yaml.BaseLoader):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            loader: Any = self  # PyYAML's parser has no types
            mark = loader.peek_event().start_mark
            if loader.check_event(yaml.AliasEvent):
                raise _broken("aliases are not allowed", mark)
            self.depth += 1
            if self.depth > DEPTH_MAX:
                raise _broken(f"more than {DEPTH_MAX} levels deep", mark)
            try:
                return super().compose_node(parent, index)
            finally:
                self.depth -= 1

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise _broken("a key must be plain text", key.start_mark)
                if key.value in seen:
                    raise _broken(f"the key {key.value!r} appears twice", key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    return PlainLoader


def _broken(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    import yaml

    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
