"""JSON that a stranger wrote: read strictly, in time that grows with its length alone.

Python's own reader takes more than JSON: NaN, numbers that become infinite, and two values under one name.
All of that is refused here. What is read has limits beside that of its bytes, because most of what is done
with it costs by the value and not by the byte: it is validated, walked through, written down and freed.
Some of that is done in C, and while that runs no other thread of the process does.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, cast

from workspaces.errors import Refused

VALUES_MAX = 100_000
"""In one document: the tools of a large platform come to a tenth of it."""

KEYS_MAX = 1_000
"""In one object. No object that is configured has a hundred, and each unknown key is an error of its own."""

KEY_CHARACTERS_MAX = 1_000
"""A key that is refused is repeated in the refusal."""

DEPTH_MAX = 64
"""Far deeper than anything that is configured, far from what recursion can take."""

NUMBER_CHARACTERS_MAX = 1_000
"""Reading a whole number takes time that grows with the square of its digits."""

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
"""A string, which may hold anything, or a sign after which a value may stand."""


def parse_json(stated: bytes | str, *, within: str) -> Any:
    """Return what the JSON says; `within` is what the document is called in a refusal.

    Raises: Refused, for what is no JSON, is beyond a limit, or says one thing twice.
    """
    try:
        # UTF-8 alone, as JSON demands: Python's reader would guess at others
        text = stated if isinstance(stated, str) else stated.decode()
        _check_values(text, within)
        parsed = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_not_finite,
        )
    except RecursionError as error:
        raise _too_deep(within) from error
    except _Unfit as error:
        raise Refused(within, None, str(error)) from error
    except _StatedTwice as error:
        raise Refused(error.key, None, f"is stated twice in {within}") from error
    except ValueError as error:
        raise Refused(within, None, f"is no JSON: {error}") from error
    _check_depth(parsed, within)
    return parsed


class _Unfit(Exception):
    """A rule that a part breaks. Whoever reads the part does not know in what document it is."""


class _StatedTwice(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _check_values(text: str, within: str) -> None:
    if sum(map(text.count, "[{,")) < VALUES_MAX:
        return  # there cannot be more, wherever these signs stand
    found = 0
    for token in _TOKEN.finditer(text):
        found += text[token.start()] != '"'
        if found >= VALUES_MAX:
            raise Refused(within, None, f"holds more than {VALUES_MAX:,} values")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > KEYS_MAX:
        raise _Unfit(f"holds an object with more than {KEYS_MAX:,} keys")
    found = dict(pairs)
    if found and max(map(len, found)) > KEY_CHARACTERS_MAX:
        raise _Unfit(f"holds a key of more than {KEY_CHARACTERS_MAX:,} characters")
    if len(found) < len(pairs):
        raise _StatedTwice(_repeated(pairs))
    return found


def _repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name is stated twice")


def _integer(text: str) -> int:
    if len(text) > NUMBER_CHARACTERS_MAX:
        raise _Unfit(f"holds a number of more than {NUMBER_CHARACTERS_MAX:,} digits")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _not_finite(text)


def _not_finite(text: str) -> Any:
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    raise _Unfit(f"holds {shown}, which is not a finite number")


def _check_depth(parsed: Any, within: str) -> None:
    level = [parsed]
    for _ in range(DEPTH_MAX):
        level = [inner for outer in level for inner in _inner(outer)]
        if not level:
            return
    raise _too_deep(within)


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast(dict[str, Any], value).values())
    return cast(list[Any], value) if isinstance(value, list) else []


def _too_deep(within: str) -> Refused:
    return Refused(within, None, f"is nested deeper than {DEPTH_MAX} levels")
