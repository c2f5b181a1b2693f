from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.integrations.line_union import union

OURS = "# Memory\n\n## Facts\n\n- likes tea\n"


def test_what_is_new_is_added_under_its_heading() -> None:
    theirs = "# Memory\n\n## People\n\n- Ann leads\n- likes tea\n\n## Empty now\n\n- likes tea\n"
    assert union(OURS, theirs) == f"{OURS}\n## People\n\n- Ann leads\n"


def test_nothing_new_changes_nothing() -> None:
    assert union(OURS, OURS) == OURS
    assert union(OURS, "# Memory\n\n\n- likes tea\n") == OURS
    assert union(OURS, "") == OURS


def test_a_block_of_code_is_one_statement() -> None:
    block = "```sh\nmake test\n\n# comment\n```"
    assert union(OURS, f"## How\n\n{block}\n") == f"{OURS}\n## How\n\n{block}\n"
    both = union(OURS, f"{block}\n")
    assert union(both, f"{block}\n") == both
    assert union(both, "```sh\nmake test\n```\n") == f"{both}\n```sh\nmake test\n```\n"


def test_the_first_may_be_empty() -> None:
    assert union("", OURS) == OURS


LINES = st.lists(st.sampled_from(["# Memory", "## A", "### B", "- x", "- y", "", "```", "text"]))


@given(LINES, LINES)
def test_no_line_of_either_is_lost_and_once_more_changes_nothing(
    first: list[str], second: list[str]
) -> None:
    ours, theirs = "\n".join(first), "\n".join(second)
    both = union(ours, theirs)
    assert both.startswith(ours.rstrip())
    statements = {line for line in (*first, *second) if line and not line.startswith("#")}
    assert statements <= set(both.splitlines())
    if "```" not in second and "```" not in first:
        assert union(both, theirs) == both
