"""Workspace paths: which texts are paths, and which paths are equal when folded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaces.errors import Refused
from workspaces.paths import (
    PART_BYTES_MAX,
    PARTS_MAX,
    PATH_BYTES_MAX,
    WorkspacePath,
    broken_rule,
    folded,
)

GOOD = (
    "MEMORY.md",
    "notes/2026-01-02 plan.md",
    ".env.example",
    "notes/.hidden/file",
    "notes/ünïcödé/日本語.md",
    "notes/👩‍👩‍👧.md",  # joined with ZWJ
    "notes/می‌خواهم.md",  # joined with ZWNJ
    "a/" * (PARTS_MAX - 1) + "a",
    "x" * PART_BYTES_MAX,
    "console.md",
    "gitignore",
    "a.git",
)

BAD = {
    "": "empty",
    "/": "absolute",
    "/etc/passwd": "absolute",
    "..": "'..'",
    "../MEMORY.md": "'..'",
    "a/../b": "'..'",
    "a/./b": "'.'",
    "a//b": "empty",
    "a/": "empty",
    "a\\b": "'\\\\'",
    "C:notes": "':'",
    "a*": "'*'",
    "a?": "'?'",
    'a"b': "'\"'",
    "<a>": "'<'",
    "a|b": "'|'",
    "%2e%2e/x": "'%'",
    "a\0b": "control",
    "a\nb": "control",
    "a\x7fb": "control",
    "a\u202eb": "invisible",
    "a\u200bb": "invisible",
    "a\ufeffb": "invisible",
    "a\U000e0041b": "invisible",
    "a\ue000b": "private-use",
    "a\u2028b": "line separator",
    "a\ud800b": "surrogate",
    "cafe\u0301.md": "normal form C",
    "-rf": "starts with '-'",
    "notes/-x": "starts with '-'",
    "~root": "starts with '~'",
    "a.": "ends with",
    "a ": "ends with",
    "notes./x": "ends with",
    "CON": "device",
    "con.md": "device",
    "notes/Aux": "device",
    "com1.txt": "device",
    "LPT¹": "device",
    ".git": "reserved",
    ".GIT/config": "reserved",
    ".gitattributes": "reserved",
    "notes/.gitmodules": "reserved",
    "GIT~1": "reserved",
    ".g\u200cit/config": "reserved",
    ".harness": "reserved",
    "x" * (PART_BYTES_MAX + 1): "part longer",
    "é" * 101: "part longer",
    "a/" * PARTS_MAX + "a": "parts",
    "x/" * 600: "longer than",
    "x" * 10**6: "longer than",
}


@pytest.mark.parametrize("text", GOOD)
def test_a_valid_path_is_unchanged(text: str) -> None:
    path = WorkspacePath(text)
    assert path == text
    assert WorkspacePath(path) is path


@pytest.mark.parametrize(("text", "rule"), BAD.items(), ids=[ascii(text[:30]) for text in BAD])
def test_a_bad_path_is_refused_with_the_broken_rule(text: str, rule: str) -> None:
    with pytest.raises(Refused) as caught:
        WorkspacePath(text)
    assert rule in caught.value.rule
    assert caught.value.field == "path"


def test_a_path_of_exactly_the_maximum_length_is_valid() -> None:
    parts = ["x" * 199] * 5
    text = "/".join([*parts, "y" * (PATH_BYTES_MAX - 1000)])
    assert len(text.encode()) == PATH_BYTES_MAX
    assert WorkspacePath(text) == text
    assert broken_rule(text + "y") is not None


@pytest.mark.parametrize(
    ("one", "other", "are_twins"),
    [
        ("MEMORY.md", "memory.md", True),
        ("straße.md", "STRASSE.md", True),
        ("É.md", "é.md", True),
        ("a.md", "b.md", False),
    ],
)
def test_paths_that_differ_only_in_case_fold_to_the_same_text(
    one: str, other: str, are_twins: bool
) -> None:
    assert (folded(one) == folded(other)) is are_twins


@given(st.text(alphabet=st.characters(), max_size=40))
def test_a_valid_path_stays_beneath_its_root(text: str) -> None:
    if broken_rule(text) is None:
        parts = text.split("/")
        assert all(part not in {"", ".", ".."} for part in parts)
        assert not text.startswith("/")
        assert "\0" not in text
        assert text.encode().decode() == text
