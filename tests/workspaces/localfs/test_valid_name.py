from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workspaces.localfs.valid_name import nearest_path
from workspaces.paths import WorkspacePath, broken_rule


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("notes/a.md", "notes/a.md"),
        ("Meeting: 3/4?.md", "Meeting_ 3/4_.md"),
        ("./a//b.md", "a/b.md"),
        ("cafe\u0301.md", "café.md"),
        ("-f.md", "_f.md"),
        ("~/x.md", "_/x.md"),
        ("aux.md", "_aux.md"),
        ("trailing. /a.md", "trailing/a.md"),
        ("na\udcffme.md", "na_me.md"),
        ("a\u202eb.md", "ab.md"),
        ("tab\there.md", "tab_here.md"),
    ],
)
def test_an_invalid_name_has_a_nearest_valid_path(name: str, path: str) -> None:
    assert nearest_path(name) == path


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "../a.md", "a/../b.md", ".git/config", "a/.gitignore", ".harness", "..."],
)
def test_a_name_that_leads_outside_or_is_reserved_has_no_nearest_path(name: str) -> None:
    assert nearest_path(name) is None


def test_nearest_paths_of_long_names_stay_distinct_and_keep_their_extension() -> None:
    one, other = (nearest_path(f"{'ä' * 150}{end}.md") for end in ("one", "two"))
    assert one is not None
    assert other is not None
    assert one != other
    assert one.endswith(".md")
    assert nearest_path("x/" * 30 + "a.md") is None


@given(
    st.text(st.characters(), max_size=60) | st.text("./\\~-: auxcon\u0301\u200d.git", max_size=20)
)
@example("\u200d.git")
@example("aux .")
@example("-.")
@example("~.git")
@example(":git")
def test_a_nearest_path_is_valid_and_nearest_to_itself(name: str) -> None:
    near = nearest_path(name)
    if near is None:
        assert broken_rule(name) is not None
    else:
        assert isinstance(near, WorkspacePath)
        assert nearest_path(near) == near
        assert near == name or broken_rule(name) is not None
