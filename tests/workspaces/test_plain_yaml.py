"""Plain YAML: every scalar is text; aliases, repeated keys and large texts are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaces.errors import OverLimit, Refused
from workspaces.plain_yaml import DEPTH_MAX, TEXT_BYTES_MAX, load


def test_every_yaml_scalar_is_read_as_text() -> None:
    text = "a: no\nb: 012\nc: 1:20\nd: 2026-01-02\ne: 1.10\nf: ~\ng: [yes, 1e3]\nh: {x: null}\n"
    assert load(text, name="t") == {
        "a": "no",
        "b": "012",
        "c": "1:20",
        "d": "2026-01-02",
        "e": "1.10",
        "f": "~",
        "g": ["yes", "1e3"],
        "h": {"x": "null"},
    }


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n"])
def test_an_empty_yaml_text_is_an_empty_mapping(text: str) -> None:
    assert load(text, name="t") == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x 1\nb: *x\n", "aliases"),
        ("a: 1\nb: 2\na: 3\n", "'a' appears twice"),
        ("x:\n  a: 1\n  a: 2\n", "'a' appears twice"),
        ("? [1, 2]\n: x\n", "plain text"),
        ("a: [1\n", "not valid"),
        ("a: 'x\n", "not valid"),
        ("- a\n- b\n", "key: value"),
        ("just text", "key: value"),
        ("a: \x00", "YAML"),
        ("a: " + "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), "levels"),
    ],
)
def test_yaml_that_is_not_plain_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(Refused) as caught:
        load(text, name="harness.yaml")
    assert problem in str(caught.value)
    assert caught.value.field == "harness.yaml"


def test_a_yaml_tag_creates_no_object() -> None:
    assert load("a: !!python/object/apply:os.system ['true']\n", name="t") == {"a": ["true"]}


def test_an_oversized_yaml_text_is_refused() -> None:
    with pytest.raises(OverLimit):
        load("a: " + "x" * TEXT_BYTES_MAX, name="t")


def test_a_yaml_refusal_names_the_line() -> None:
    with pytest.raises(Refused) as caught:
        load("a: 1\nb: 2\nb: 3\n", name="t")
    assert "line 3" in str(caught.value)


_VALUES = st.one_of(
    st.text(st.characters(max_codepoint=0x2FF), max_size=12),
    st.text("ab1:/.-_ #'\"!&*?|>%@`{}[],~=<\t\\\r", max_size=8),
)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b_c", "format", "A"]), _VALUES), min_size=1, max_size=4
    )
)
def test_plain_lines_mean_what_the_yaml_library_reads(lines: list[tuple[str, str]]) -> None:
    text = "# a comment\n\n" + "".join(f"{key}: {value}\n" for key, value in lines)
    assert _read(text) == _read(f"---\n{text}")  # `---` is no plain line: the library reads it


def _read(text: str) -> object:
    try:
        return load(text, name="x.yaml")
    except Refused:
        return "refused"


@pytest.mark.parametrize(
    ("line", "value"),
    [("a: s3://bucket/prefix", "s3://bucket/prefix"), ("a: 0x1F", "0x1F"), ("a: no", "no")],
)
def test_a_plain_line_is_text(line: str, value: str) -> None:
    assert load(f"# a comment\n\n{line}\n", name="x.yaml") == {"a": value}
    assert load(f"---\n{line}\n", name="x.yaml") == {"a": value}
