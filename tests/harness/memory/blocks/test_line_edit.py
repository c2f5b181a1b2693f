"""Edits of single entries of a block."""

from __future__ import annotations

import pytest

from harness.memory.blocks.line_edit import with_entry, with_entry_replaced, without_entry
from workspaces.errors import Refused

CONTENT = "# Facts\n- likes tea\n  green, no sugar\n- lives in Graz\n\n# Work\nplain line"


def test_an_entry_is_added_at_the_end_as_a_list_item() -> None:
    assert with_entry("", "likes tea") == "- likes tea"
    assert with_entry("- a", "- b") == "- a\n- b"
    assert with_entry("- a", "b\nmore of b") == "- a\n- b\n  more of b"


def test_an_entry_that_is_there_is_not_added_again() -> None:
    assert with_entry(CONTENT, "* lives  in Graz") == CONTENT


def test_an_entry_is_replaced_with_the_lines_that_continue_it() -> None:
    changed = with_entry_replaced(CONTENT, "likes tea", "likes coffee")
    assert changed == CONTENT.replace("tea\n  green, no sugar", "coffee")
    whole = with_entry_replaced(CONTENT, "- likes tea\n  green, no sugar", "likes coffee")
    assert whole == changed


def test_an_entry_is_removed_and_headings_stay() -> None:
    assert without_entry(CONTENT, "lives in Graz") == CONTENT.replace("- lives in Graz\n", "")
    assert without_entry(CONTENT, "plain line") == CONTENT.removesuffix("\nplain line")
    assert without_entry("- a", "a") == ""


def test_an_entry_must_be_there_exactly_once() -> None:
    with pytest.raises(Refused, match="is not in the block"):
        without_entry(CONTENT, "likes coffee")
    with pytest.raises(Refused, match="more than once"):
        without_entry("- a\n* a", "a")
