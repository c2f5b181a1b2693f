"""Path patterns: which paths match, and that matching takes bounded time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.tools.files.path_pattern import matcher
from workspaces.errors import Refused


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.md", ["a.md", ".md"], ["n/a.md", "a.txt"]),
        ("**/*.md", ["a.md", "n/a.md", "n/m/a.md"], ["a.txt"]),
        ("notes/*", ["notes/a", "notes/.b"], ["notes", "notes/n/a", "other/a"]),
        ("notes/**", ["notes/a", "notes/n/a", "notes"], ["other/a"]),
        ("**", ["a", "n/a"], []),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a", "b", "a/bb"]),
        ("**/n/**/a", ["n/a", "x/n/y/a"], ["a", "x/a"]),
        ("/a.md", ["a.md"], ["n/a.md"]),
        ("?.md", ["a.md", "茶.md"], ["ab.md", "n/.md"]),
        ("[ab].md", ["a.md", "b.md"], ["c.md"]),
        ("[!ab].md", ["c.md"], ["a.md"]),
        ("*.{md,txt}", ["a.md", "a.txt"], ["a.py"]),
        ("{a,b/{c,d}}.md", ["a.md", "b/c.md", "b/d.md"], ["b.md", "c.md"]),
        ("A.md", ["A.md"], ["a.md"]),
        ("a+(b).md", ["a+(b).md"], ["aab.md"]),
        ("[.md", ["[.md"], ["a.md"]),
    ],
)
def test_a_path_pattern_matches_exactly_the_listed_paths(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    matches = matcher(pattern)
    assert [path for path in matching if not matches(path)] == []
    assert [path for path in others if matches(path)] == []


@pytest.mark.parametrize(
    "pattern", ["../*", "a/../b", "{..,a}/b", "x" * 1001, "{a,b}" * 20, "{" + "," * 200 + "}"]
)
def test_a_path_pattern_that_leaves_the_mount_or_expands_too_far_is_refused(pattern: str) -> None:
    with pytest.raises(Refused):
        matcher(pattern)


@pytest.mark.parametrize("pattern", ["**/" * 300 + "x", "*a" * 400 + "b", "?" * 900, "[" * 900])
def test_a_path_pattern_never_takes_exponential_time(pattern: str) -> None:
    """Exponential ones would not end at all."""
    matches = matcher(pattern)
    for path in ("a/" * 500 + "a", "a" * 1000):
        assert not matches(path)


names = st.text(st.sampled_from("ab.*?[]{},!-é"), min_size=1, max_size=6)


@given(
    st.lists(names, min_size=1, max_size=4).map("/".join), st.lists(names, max_size=3).map("/".join)
)
def test_any_text_is_a_valid_path_pattern_or_is_refused(pattern: str, path: str) -> None:
    try:
        matches = matcher(pattern)
    except Refused:
        return
    assert matches(path) in {True, False}
    if not set(pattern) & set("*?[]{}!"):
        assert matches(pattern)
