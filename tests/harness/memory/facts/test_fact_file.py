from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.memory.facts.fact import (
    KEY_CHARACTERS_MAX,
    VALUE_CHARACTERS_MAX,
    canonical_path,
    check_key,
    check_value,
    fact_id,
    is_fact_path,
)
from harness.memory.facts.fact_file import FactFile, put_back, read_fact, write_fact
from workspaces.errors import OverLimit, Refused
from workspaces.history.source import body_of
from workspaces.ids import Namespace
from workspaces.paths import WorkspacePath

TEA = WorkspacePath("facts/tea.md")
KEYS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=80)
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("deploy-cmd", "facts/deploy-cmd.md"),
        ("API__base/url!!", "facts/api-base-url-5a2badf5.md"),
        ("Deploy-Cmd", "facts/deploy-cmd-296cf012.md"),
        ("con", "facts/con-1143da2b.md"),
        ("x-0123abcd", "facts/x-0123abcd-6324b7ee.md"),
        ("0123abcd", "facts/0123abcd-64eab070.md"),
        ("日本", "facts/fact-cf2abf0c.md"),
        ("fact", "facts/fact.md"),
    ],
)
def test_a_key_has_one_path_that_is_valid_on_every_system(key: str, path: str) -> None:
    assert canonical_path(key) == path
    assert is_fact_path(canonical_path(key))


@given(st.sets(KEYS.filter(lambda key: key == key.strip()), min_size=2, max_size=8))
def test_two_keys_never_share_a_path_even_where_case_does_not_count(keys: set[str]) -> None:
    assert len({canonical_path(key).casefold() for key in keys}) == len(keys)


def test_the_id_is_the_hash_of_namespace_and_key() -> None:
    assert fact_id(Namespace("fs-1"), "tea") == "mem_a736627b23cea637f8f47994"
    assert fact_id(Namespace("fs-1"), "tea") != fact_id(Namespace("fs-2"), "tea")
    assert len(fact_id(Namespace("fs-1"), "tea")) == len("mem_") + 24


@given(
    KEYS.filter(lambda key: key == key.strip() and bool(key)),
    VALUES.filter(lambda value: bool(value.strip())),
    st.booleans(),
    st.integers(0, 100),
)
def test_what_is_written_is_read_back(key: str, value: str, pinned: bool, importance: int) -> None:
    data = write_fact(None, key=key, value=value, pinned=pinned, importance=importance)
    read = read_fact(canonical_path(key), data)
    text = f"{value}\n".replace("\r\n", "\n").removesuffix("\n")  # also where the value ends in \r
    assert read == FactFile(key, text, pinned, importance)
    assert body_of("facts/x.md", data).decode() == f"{value}\n"


def test_a_file_holds_only_what_is_not_the_default() -> None:
    data = write_fact(None, key="tea", value="Likes tea.", pinned=False, importance=0)
    assert data == b"---\nkey: tea\n---\nLikes tea.\n"
    data = write_fact(data, key="tea", value=None, pinned=True, importance=7)
    assert data == b"---\nkey: tea\npinned: true\nimportance: 7\n---\nLikes tea.\n"


def test_writing_keeps_what_others_put_into_the_front_matter() -> None:
    before = (
        b'---\n# of Ada\nkey: tea\ntags:\n  - a\n  - "b"\naliases: [x]\nimportance: 3\n---\nold\n'
    )
    after = write_fact(before, key="tea", value="new", pinned=True, importance=0)
    text = after.decode()
    assert text.endswith("---\nnew\n")
    for line in ("# of Ada", "  - a", '  - "b"', "aliases: [x]", "pinned: true"):
        assert line in text.splitlines()
    assert "importance" not in text
    assert read_fact(TEA, after).attributes == {"tags": ["a", "b"], "aliases": ["x"]}


def test_a_front_matter_in_another_form_keeps_its_content() -> None:
    before = b"---\n{key: tea, pinned: true, tags: [a, b]}\n---\nold\n"
    after = read_fact(TEA, write_fact(before, key="tea", value="new", pinned=False, importance=0))
    assert after == FactFile("tea", "new", attributes={"tags": ["a", "b"]})


def test_without_a_value_the_body_stays_byte_for_byte() -> None:
    before = b"---\r\nkey: tea\r\n---\r\nLikes tea.\r\nVery much."
    after = write_fact(before, key="tea", value=None, pinned=True, importance=0)
    assert body_of(TEA, after) == body_of(TEA, before)
    assert read_fact(TEA, after).value == "Likes tea.\nVery much."


def test_without_a_key_the_name_of_the_file_is_the_key() -> None:
    assert read_fact(TEA, b"Likes tea.\n").key == "tea"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe",
        b"",
        b"---\nkey: tea\n---\n",
        b"---\nkey: tea\n",
        b"---\nkey: [\n---\nx\n",
        b"---\nkey: [a]\n---\nx\n",
        b"---\nkey: a\nkey: b\n---\nx\n",
        b"---\nkey: ''\n---\nx\n",
        b"---\nkey: &a x\nb: *a\n---\nx\n",
        b"---\n- a\n---\nx\n",
    ],
)
def test_a_malformed_file_is_no_fact(data: bytes) -> None:
    with pytest.raises(Refused):
        read_fact(TEA, data)


@pytest.mark.parametrize(
    "front", ["pinned: maybe", "importance: 101", "importance: -1", "pinned: [x]"]
)
def test_an_attribute_that_says_nothing_valid_is_a_problem_of_a_fact(front: str) -> None:
    read = read_fact(TEA, f"---\n{front}\n---\nLikes tea.\n".encode())
    assert (read.value, read.pinned, read.importance) == ("Likes tea.", False, 0)
    assert read.problem is not None


def test_a_text_over_the_limit_is_cut_and_a_problem() -> None:
    read = read_fact(TEA, ("x" * (VALUE_CHARACTERS_MAX + 1)).encode())
    assert (len(read.value), read.is_truncated) == (VALUE_CHARACTERS_MAX, True)
    assert read.problem is not None


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (b"---\npinned: true\n---\na\n", b"---\n---\nb\n", b"---\npinned: true\n---\nb\n"),
        (
            None,
            b"---\npinned: true\nimportance: 9\ntags: [a]\n---\nb\n",
            b"---\ntags: [a]\n---\nb\n",
        ),
        (None, b"---\npinned: true\n---\nb\n", b"b\n"),
        (
            b"---\nimportance: 3\n---\na\n",
            b"---\nimportance: 90\n---\na\n",
            b"---\nimportance: 3\n---\na\n",
        ),
        (b"a\n", b'---\n"pinned": true\n---\na\n', b"a\n"),
        (b"a\n", b"---\n{pinned: true}\n---\na\n", b"a\n"),
    ],
)
def test_protected_keys_are_put_back_and_nothing_else(
    before: bytes | None, after: bytes, expected: bytes
) -> None:
    data, changed = put_back(TEA, before, after)
    assert data == expected
    assert set(changed) <= {"pinned", "importance"}
    assert changed


def test_a_change_of_other_things_is_left_alone() -> None:
    before, after = b"---\npinned: true\n---\na\n", b"---\npinned: true\ntags: [x]\n---\nb\n"
    assert put_back(TEA, before, after) == (after, [])


def test_limits_are_counted_in_code_points() -> None:
    assert check_key("\U0001f600" * KEY_CHARACTERS_MAX)
    assert check_value("\U0001f600" * VALUE_CHARACTERS_MAX)
    with pytest.raises(Refused):
        check_key("\U0001f600" * (KEY_CHARACTERS_MAX + 1))
    with pytest.raises(OverLimit):
        check_value("\U0001f600" * (VALUE_CHARACTERS_MAX + 1))
