"""Hostile text costs no more than linear time in any regular expression or function that reads text

Every expression of the source is tried, and every function that takes a stranger's text: see tests/hostile.
What functions compile while the suite runs is tried at its end: tests/hostile/plugin.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.hostile.child import tried
from tests.hostile.patterns import ROOT, Pattern

QUADRATIC = (
    (r"\s+$", "search"),
    (r"<!--.*?-->", "sub"),
    (r"[?]\W*$", "search"),
    (r"(?s)<user>\n(.*?)\n</user>", "findall"),
    (r"a+b", "search"),
    (r"\s*x?\s*y", "match"),
    (r"(\w+)\d+!", "fullmatch"),
    (r"(a|aa)*c", "match"),
    (r"(a+)+$", "match"),
    (r" {0,3}(#{1,6})\s+(.*?)\s*#*\s*$", "match"),
    (r"[<](?=\s*/?\s*(memory|notes)\b|\|)", "sub"),
    (r"(?:[\s]+|//[^\n]*)*", "fullmatch"),
    (r"([0-7]+) ([^\0]+)\0(.{20})", "findall"),
)
LINEAR = (
    (r"\s+", "sub"),
    (r"\s*+x?\s*+y", "match"),
    (r"a+b", "match"),
    (r"[a-z]{1,5}=(\w*)", "search"),
    (r"(?:[^\"\\]++|\\.)*+\"", "match"),
)


def test_a_quadratic_regular_expression_is_distinguished_from_a_linear_one() -> None:
    twice, once = (
        [Pattern(text, 0, "x.py:1", frozenset({method})) for text, method in cases]
        for cases in (QUADRATIC, LINEAR)
    )
    found = tried("recorded", [*twice, *once], call_s_max=0.2)
    assert [str(one) for one in once if found[str(one)]] == []
    assert [str(one) for one in twice if not found[str(one)]] == []


def test_every_regular_expression_of_the_source_is_linear_on_hostile_text() -> None:
    found = tried("source")
    assert len(found) > 100
    assert {name: why for name, why in found.items() if why} == {}


def test_every_function_that_reads_untrusted_text_finishes_in_time() -> None:
    found = tried("functions")
    assert len(found) > 50
    assert {name: why for name, why in found.items() if why} == {}


def test_a_slow_regular_expression_compiled_at_run_time_fails_the_test_run(tmp_path: Path) -> None:
    source = tmp_path / "test_one.py"
    source.write_text(
        "import re\n"
        "from tests.hostile.patterns import SOURCES\n"
        "code = compile(\"def f(end):\\n    re.search(r'[0-9]+' + end, '')\", SOURCES[0] + 'x.py', 'exec')\n"
        "def test_one():\n    exec(code, names := {'re': re})\n    names['f']('x')\n"
    )
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.hostile.plugin",
            "-p",
            "no:cacheprovider",
            source,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "SLOW EXPRESSION workspaces/x.py:2: '[0-9]+x'" in ended.stdout
    assert ended.returncode == 1
