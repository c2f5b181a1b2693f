"""Memory entries: how Markdown is split into items, paragraphs and headings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.context.memory_entry import entries, heading_of


def split(text: str) -> list[str]:
    lines = text.split("\n")
    return ["\n".join(lines[entry.first : entry.end]) for entry in entries(lines)]


def test_list_items_and_paragraphs_are_entries_and_headings_are_not() -> None:
    text = "# Memory\nA paragraph\nof two lines.\n\n- one\n- two\n\n## More\n1. three\n2) four\n"
    assert split(text) == [
        "A paragraph\nof two lines.",
        "- one",
        "- two",
        "1. three",
        "2) four",
    ]


def test_indented_and_lazy_lines_belong_to_the_list_item_above() -> None:
    text = "- one\n  more of it\n  - nested\n\n  a second paragraph\n- two\nlazy\n\nafter"
    assert split(text) == [
        "- one\n  more of it\n  - nested\n\n  a second paragraph",
        "- two\nlazy",
        "after",
    ]


def test_a_fenced_code_block_is_one_entry() -> None:
    text = "before\n```sh\n# no heading\n\n- no item\n```\n\n~~~\n```\n~~~\n"
    assert split(text) == ["before\n```sh\n# no heading\n\n- no item\n```", "~~~\n```\n~~~"]


def test_an_unclosed_code_fence_is_an_ordinary_line() -> None:
    assert split("```\n- one\n\n- two") == ["```", "- one", "- two"]


def test_an_entry_knows_the_headings_above_it() -> None:
    lines = ["# A", "- a", "## B ##", "- b", "### PINNED", "- c", "## D", "- d"]
    found = [[heading.title for heading in entry.headings] for entry in entries(lines)]
    assert found == [["A"], ["A", "B"], ["A", "B", "PINNED"], ["A", "D"]]
    assert [entry.is_pinned for entry in entries(lines)] == [False, False, True, False]


def test_a_thematic_break_is_no_entry() -> None:
    assert split("one\n\n---\n\n* * *\ntwo") == ["one", "two"]


def test_only_a_heading_line_has_a_title() -> None:
    assert heading_of("## Notes on `x` #") == "Notes on `x`"
    assert heading_of("#tag") is None
    assert heading_of("#") == ""
    assert heading_of("text") is None


def test_many_unclosed_code_fences_are_split_in_linear_time() -> None:
    lines = ["```a"] * 200_000
    assert len(entries(lines)) == 1


markdown = st.lists(
    st.sampled_from(
        [
            "",
            "",
            "# A",
            "## Pinned",
            "- item",
            "  below",
            "text",
            "```",
            "~~~",
            "```x",
            "---",
            "\t- in",
        ]
    ),
    max_size=30,
)


@given(markdown)
def test_every_line_with_text_belongs_to_exactly_one_entry_or_heading(lines: list[str]) -> None:
    found = entries(lines)
    covered = [number for entry in found for number in range(entry.first, entry.end)]
    assert len(covered) == len(set(covered))
    assert covered == sorted(covered)
    outside = [lines[n] for n in range(len(lines)) if n not in set(covered)]
    assert all(not line.strip() or line.startswith("#") or line == "---" for line in outside)
    assert all(entry.first < entry.end and lines[entry.end - 1].strip() for entry in found)


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("## a b ##", "a b"),
        ("# a # #", "a #"),
        ("# C#", "C#"),
        ("#  #", "#"),
        ("#", ""),
        ("#\ta \t###   ", "a"),
        ("#######", None),
        ("#a", None),
    ],
)
def test_a_heading_title_ends_before_its_closing_marks(line: str, title: str | None) -> None:
    assert heading_of(line) == title
