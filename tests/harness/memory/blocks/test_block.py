"""A block's limits, and what counts as an entry."""

from __future__ import annotations

import pytest

from harness.memory.blocks.block import check_limits, content_of, entry_starts
from workspaces.errors import OverLimit


@pytest.mark.parametrize(
    ("content", "starts"),
    [
        ("", []),
        ("\n \n", []),
        ("- one\n- two", [0, 1]),
        ("- one\n  more of it\n\n  and more\n- two", [0, 4]),
        ("1. one\n2) two\n* three\n+ four", [0, 1, 2, 3]),
        ("- one\n  - below it\n\tand this", [0]),
        ("# Title\n\n- one\n## Other\nplain text\nmore text", [2, 4, 5]),
        ("- one\nnot indented", [0, 1]),
        ("plain\n  indented below no item", [0, 1]),
        ("#tag is no heading", [0]),
    ],
)
def test_an_entry_is_a_list_item_with_its_continuation_or_any_other_line(
    content: str, starts: list[int]
) -> None:
    assert entry_starts(content) == starts


def test_a_core_block_holds_four_thousand_characters_and_twenty_entries() -> None:
    check_limits("core", "é" * 4_000)
    with pytest.raises(OverLimit) as caught:
        check_limits("core", "é" * 4_001)
    assert (caught.value.maximum, caught.value.actual) == (4_000, 4_001)
    check_limits("core", "# Facts\n" + "- x\n" * 20)
    with pytest.raises(OverLimit) as caught:
        check_limits("core", "- x\n" * 21)
    assert (caught.value.maximum, caught.value.actual, caught.value.unit) == (20, 21, "entries")


def test_an_archival_block_holds_eight_thousand_characters_in_any_number_of_entries() -> None:
    check_limits("archival", "- x\n" * 2_000)
    with pytest.raises(OverLimit, match=r"8,001 characters is over the limit of 8,000"):
        check_limits("archival", "x" * 8_001)


def test_the_content_is_the_text_without_its_last_line_ends() -> None:
    assert content_of("- a\n- b\n\n") == "- a\n- b"
    assert content_of("- a\r\n") == "- a"
    assert content_of("\n") == ""
