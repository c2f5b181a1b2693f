"""The union of two Markdown files by lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.integrations.line_union import union

OURS = "# Memory\n\n## Facts\n\n- likes tea\n"


def test_line_union_adds_new_lines_under_their_heading() -> None:
    theirs = "# Memory\n\n## People\n\n- Ann leads\n- likes tea\n\n## Empty now\n\n- likes tea\n"
    assert union(OURS, theirs) == f"{OURS}\n## People\n\n- Ann leads\n"


def test_line_union_of_known_lines_changes_nothing() -> None:
    assert union(OURS, OURS) == OURS
    assert union(OURS, "# Memory\n\n\n- likes tea\n") == OURS
    assert union(OURS, "") == OURS


def test_line_union_treats_a_code_block_as_one_statement() -> None:
    block = "```sh\nmake test\n\n# comment\n```"
    assert union(OURS, f"## How\n\n{block}\n") == f"{OURS}\n## How\n\n{block}\n"
    both = union(OURS, f"{block}\n")
    assert union(both, f"{block}\n") == both
    assert union(both, "```sh\nmake test\n```\n") == f"{both}\n```sh\nmake test\n```\n"


def test_line_union_with_an_empty_first_text_is_the_second_text() -> None:
    assert union("", OURS) == OURS


LINES = st.lists(st.sampled_from(["# Memory", "## A", "### B", "- x", "- y", "", "```", "text"]))


@given(LINES, LINES)
def test_line_union_loses_no_line_and_is_idempotent(first: list[str], second: list[str]) -> None:
    ours, theirs = "\n".join(first), "\n".join(second)
    both = union(ours, theirs)
    assert both.startswith(ours.rstrip())
    statements = {line for line in (*first, *second) if line and not line.startswith("#")}
    assert statements <= set(both.splitlines())
    if "```" not in second and "```" not in first:
        assert union(both, theirs) == both
