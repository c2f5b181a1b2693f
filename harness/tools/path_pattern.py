"""Patterns of paths: one matcher, whatever store the paths come from.

`*` and `?` stand for characters of one name, `**` for any number of directories, `[…]` for a character
of a set, `{a,b}` for one of several. Everything is matched name by name, so that no pattern, however
made, takes longer than the number of its parts times the number of the path's.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from functools import lru_cache
from itertools import takewhile

from workspaces.errors import Refused

PATTERN_CHARACTERS_MAX = 1000
ALTERNATIVES_MAX = 100

_BRACES = re.compile(r"\{([^{}]*)\}")

_SPECIAL = re.compile(r"[*?\[\]{},]")

_Parts = tuple[re.Pattern[str] | None, ...]
"""Of one name each; None for any number of directories."""


@lru_cache(maxsize=64)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a path matches; Refused for what is no pattern."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise Refused("pattern", pattern, f"is longer than {PATTERN_CHARACTERS_MAX} characters")
    patterns = [_parts(one) for one in _alternatives(pattern)]

    def matches(path: str) -> bool:
        name = path.rpartition("/")[2]
        for parts in patterns:
            last = parts[-1]  # which most paths do not have, and which is asked first
            if (last is None or last.match(name)) and _matches(parts, path.split("/")):
                return True
        return False

    return matches


def fixed_directory(pattern: str) -> str:
    """The directory that every path that matches lies in, as far as the pattern says it plainly: nothing
    else need be listed."""
    plain = takewhile(lambda part: not _SPECIAL.search(part), pattern.split("/")[:-1])
    return "/".join(plain)


def _alternatives(pattern: str) -> list[str]:
    done: list[str] = []
    left = [pattern]
    while left:
        one = left.pop()
        found = _BRACES.search(one)
        if found is None:
            done.append(one)
        else:
            before, after = one[: found.start()], one[found.end() :]
            left += [f"{before}{choice}{after}" for choice in found[1].split(",")]
        if len(done) + len(left) > ALTERNATIVES_MAX:
            rule = f"stands for more than {ALTERNATIVES_MAX} patterns"
            raise Refused("pattern", pattern, rule)
    return done


def _parts(pattern: str) -> _Parts:
    parts: list[re.Pattern[str] | None] = []
    names = pattern.removeprefix("/").split("/")
    if ".." in names:
        raise Refused("pattern", pattern, "contains '..': nothing above the workspace can be found")
    for name in names:
        if name != "**":
            parts.append(re.compile(fnmatch.translate(name)))
        elif not parts or parts[-1] is not None:
            parts.append(None)
    return tuple(parts)


def _matches(parts: _Parts, names: list[str]) -> bool:
    """`reached` holds how many names the parts so far can stand for."""
    reached = {0}
    for part in parts:
        if part is None:
            reached = set(range(min(reached), len(names) + 1))
        else:
            reached = {n + 1 for n in reached if n < len(names) and part.match(names[n])}
        if not reached:
            return False
    return len(names) in reached
