"""Path patterns: one matcher for paths from any store.

`*` and `?` stand for characters of one name, `**` for any number of directories, `[…]` for a character of a
set, `{a,b}` for one of several. Paths are matched name by name. So no pattern takes longer than the number of
its parts times the number of the path's.
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

_Match = Callable[[str], object]
_Parts = tuple[_Match | None, ...]
"""Patterns of one name each; None stands for any number of directories."""


@lru_cache(maxsize=64)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that returns True if a path matches.

    Raises: Refused if the pattern is invalid.
    """
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise Refused("pattern", pattern, f"is longer than {PATTERN_CHARACTERS_MAX} characters")
    patterns = [_parts(one) for one in _alternatives(pattern)]

    def matches(path: str) -> bool:
        name = path.rpartition("/")[2]
        for parts in patterns:
            last = parts[-1]  # checked first, because most paths fail here
            if (last is None or last(name)) and _matches(parts, path.split("/")):
                return True
        return False

    return matches


def fixed_directory(pattern: str) -> str:
    """Return the directory that contains every matching path, as far as the pattern states it literally. No
    other directory has to be listed."""
    plain = takewhile(lambda part: not _SPECIAL.search(part), pattern.split("/")[:-1])
    return "/".join(plain)


def _alternatives(pattern: str) -> list[str]:
    done: list[str] = []
    pending = [pattern]
    while pending:
        candidate = pending.pop()
        braces = _BRACES.search(candidate)
        if braces is None:
            done.append(candidate)
        else:
            before, after = candidate[: braces.start()], candidate[braces.end() :]
            pending += [f"{before}{choice}{after}" for choice in braces[1].split(",")]
        if len(done) + len(pending) > ALTERNATIVES_MAX:
            rule = f"stands for more than {ALTERNATIVES_MAX} patterns"
            raise Refused("pattern", pattern, rule)
    return done


def _parts(pattern: str) -> _Parts:
    parts: list[_Match | None] = []
    names = pattern.removeprefix("/").split("/")
    if ".." in names:
        raise Refused("pattern", pattern, "contains '..': nothing above the workspace can be found")
    for name in names:
        if name != "**":
            parts.append(re.compile(fnmatch.translate(name)).match)
        elif not parts or parts[-1] is not None:
            parts.append(None)
    return tuple(parts)


def _matches(parts: _Parts, names: list[str]) -> bool:
    """Return True if the parts match all names. `reached` holds the numbers of names that the parts so far
    can match."""
    reached = {0}
    for part in parts:
        if part is None:
            reached = set(range(min(reached), len(names) + 1))
        else:
            reached = {n + 1 for n in reached if n < len(names) and part(names[n])}
        if not reached:
            return False
    return len(names) in reached
