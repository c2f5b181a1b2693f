"""A strict reader for JSON from strangers, in time that grows linearly with its length.

Python's own reader takes more than JSON: NaN, numbers that become infinite, and two values under one name.
All of that is refused here. The document has limits beside that of its bytes, because most later work costs
by the value and not by the byte: values are validated, walked through, written and freed. Some of that is
done in C, and while that runs no other thread of the process does.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, cast

from workspaces.errors import Refused

VALUES_MAX = 100_000
"""The most values in one document: the tools of a large platform come to a tenth of it."""

KEYS_MAX = 1_000
"""The most keys in one object. No object in a configuration has a hundred, and each unknown key is an
error."""

KEY_CHARACTERS_MAX = 1_000
"""The most characters of a key. A refusal repeats the key that it refuses."""

DEPTH_MAX = 64
"""The most levels of nesting: far deeper than any configuration, far from Python's recursion limit."""

NUMBER_CHARACTERS_MAX = 1_000
"""The most digits of a number. The time to read a whole number grows with the square of its digits."""

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
"""A string, which may hold any text, or a sign after which a value may stand."""


def parse_json(document: bytes | str, *, within: str) -> Any:
    """Return the parsed document; `within` is the document's name in a refusal.

    Raises: Refused, for text that is not JSON, is beyond a limit, or has a key twice.
    """
    try:
        # UTF-8 alone, as JSON demands: Python's reader would guess at others
        text = document if isinstance(document, str) else document.decode()
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
    except _BrokenRule as error:
        raise Refused(within, None, str(error)) from error
    except _DuplicateKey as error:
        raise Refused(error.key, None, f"appears twice in {within}") from error
    except ValueError as error:
        raise Refused(within, None, f"is not JSON: {error}") from error
    _check_depth(parsed, within)
    return parsed


class _BrokenRule(Exception):
    """A rule that a part of the document breaks. The code that reads the part does not know the document's
    name."""


class _DuplicateKey(Exception):
    """A key that an object has twice."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _check_values(text: str, within: str) -> None:
    if sum(map(text.count, "[{,")) < VALUES_MAX:
        return  # there cannot be more, wherever these signs stand
    count = 0
    for token in _TOKEN.finditer(text):
        count += text[token.start()] != '"'
        if count >= VALUES_MAX:
            raise Refused(within, None, f"holds more than {VALUES_MAX:,} values")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > KEYS_MAX:
        raise _BrokenRule(f"holds an object with more than {KEYS_MAX:,} keys")
    fields = dict(pairs)
    if fields and max(map(len, fields)) > KEY_CHARACTERS_MAX:
        raise _BrokenRule(f"holds a key of more than {KEY_CHARACTERS_MAX:,} characters")
    if len(fields) < len(pairs):
        raise _DuplicateKey(_repeated(pairs))
    return fields


def _repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("every name is unique")


def _integer(text: str) -> int:
    if len(text) > NUMBER_CHARACTERS_MAX:
        raise _BrokenRule(f"holds a number of more than {NUMBER_CHARACTERS_MAX:,} digits")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _not_finite(text)


def _not_finite(text: str) -> Any:
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    raise _BrokenRule(f"holds {shown}, which is not a finite number")


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
