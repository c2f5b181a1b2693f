"""The process in which hostile text is tried: it says what it is at, and what it found.

`python -m tests.hostile.child WHAT FILE SECONDS` tries the expressions of the source (`source`), those
that its input names (`recorded`), or the functions (`functions`). FILE always names what is being tried.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.hostile import check
from tests.hostile.families import GENERAL, against
from tests.hostile.patterns import MATCHING, ROOT, SEARCHING, Pattern, of_the_source

WAIT_S_MAX = 300


def tried(
    what: str, patterns: Iterable[Pattern] = (), *, call_s_max: float = check.CALL_S_MAX
) -> dict[str, str | None]:
    """Return what was tried in a child, each with what it is too slow with."""
    given = [(repr(one.text), one.flags, one.place, sorted(one.methods)) for one in patterns]
    with tempfile.NamedTemporaryFile("r+") as at:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.hostile.child", what, at.name, str(call_s_max)],
            input=json.dumps(given),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=WAIT_S_MAX,
            check=False,
        )
        culprit = at.read()
    if ended.returncode:
        return {culprit: f"the process ended with {ended.returncode}: {ended.stderr[-2000:]}"}
    return json.loads(ended.stdout.splitlines()[-1])


def main(what: str, at: Path, call_s_max: float) -> None:
    given = json.load(sys.stdin)
    check.limit()
    print(json.dumps(dict(_tried(what, given, at, call_s_max))))


def _tried(
    what: str, given: list[Any], at: Path, call_s_max: float
) -> Iterator[tuple[str, str | None]]:
    if what == "functions":
        from tests.hostile.functions import FUNCTIONS

        for function in FUNCTIONS:
            at.write_text(function.name)
            family = (*function.own, *(GENERAL if function.takes_any else ()))
            yield function.name, check.too_slow(function, family, call_s_max=call_s_max)
        return
    patterns = of_the_source() if what == "source" else map(_given, given)
    for pattern in patterns:
        at.write_text(str(pattern))
        yield str(pattern), _slow(pattern, call_s_max)


def _given(one: list[Any]) -> Pattern:
    text, flags, place, methods = one
    return Pattern(ast.literal_eval(text), flags, place, frozenset(methods))


def _slow(pattern: Pattern, call_s_max: float) -> str | None:
    """Return what this expression is too slow with, in one of the ways in which it is applied."""
    compiled = re.compile(pattern.text, pattern.flags)
    calls: list[Callable[[Any], object]] = [
        getattr(compiled, name) for name in sorted(pattern.methods & MATCHING)
    ]
    if pattern.methods & SEARCHING:
        calls.append(lambda text: sum(1 for _ in compiled.finditer(text)))
    as_input = str if isinstance(pattern.text, str) else _latin
    family = list(against(pattern.text, pattern.flags))
    found = (check.too_slow(call, family, as_input, call_s_max=call_s_max) for call in calls)
    return next(filter(None, found), None)


def _latin(text: str) -> bytes:
    return text.encode("latin-1", "replace")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
