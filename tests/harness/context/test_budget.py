"""The budget of memory in a prompt: which entries are shown, and how mounts share it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.context.budget import ENTRY_CHARACTERS_MAX, budget, cut, shares
from harness.context.memory_entry import entries


def lines_of(count: int, width: int = 10) -> str:
    """Items of so many characters, the newline not counted."""
    return "\n".join(f"- {number:0{width - 2}}" for number in range(count))


def test_a_text_within_the_budget_is_shown_byte_for_byte() -> None:
    text = "\n\n#  odd   layout \n\n\n- x\n" + "y" * 5_000
    assert cut(text, len(text)).text == text


@pytest.mark.parametrize(
    ("room", "left_out"), [(548, 1), (538, 1), (537, 2), (10, 49), (9, 50), (0, 50)]
)
def test_a_text_over_the_budget_loses_whole_entries_the_oldest_first(
    room: int, left_out: int
) -> None:
    text = lines_of(50)
    assert len(text) == 549
    found = cut(text, room)
    assert (found.entries_left_out, found.lines_left_out) == (left_out, left_out)
    if room > 10:
        assert found.text == "\n".join(text.split("\n")[left_out:])


def test_a_text_one_character_over_the_budget_loses_one_entry() -> None:
    text = lines_of(50)
    assert cut(text, len(text) + 1).is_whole
    assert cut(text, len(text)).is_whole
    assert cut(text, len(text) - 1).entries_left_out == 1


def test_the_newest_entries_by_line_origin_stay_wherever_they_stand() -> None:
    text = "- old\n- newest\n- older\n- new"
    ages = ["2026-02", "2026-09", "2026-01", "2026-05"]
    assert cut(text, len("- newest\n- new"), ages).text == "- newest\n- new"
    assert cut(text, len("- newest\n- new") - 1, ages).text == "- newest"


def test_of_two_entries_with_the_same_age_the_lower_counts_as_newer() -> None:
    assert cut("- a\n- b\n- c", 7, ["x"] * 3).text == "- b\n- c"


def test_an_entry_is_as_new_as_its_newest_line() -> None:
    text = "- a\n  more\n- b\n- c"
    assert cut(text, 10, ["1", "9", "2", "3"]).text == "- a\n  more"


def test_an_entry_older_than_an_omitted_entry_is_never_shown() -> None:
    text = "- tiny\n- a long one that does not fit any more\n- new"
    assert cut(text, 20).text == "- new"


def test_a_heading_stays_while_an_entry_below_it_stays() -> None:
    text = "# Memory\n\n## Old\n- a\n- b\n\n## New\n\n- c\n- d"
    assert cut(text, len(text) - 1).text == "# Memory\n\n## Old\n- b\n\n## New\n\n- c\n- d"
    assert cut(text, 30).text == "# Memory\n\n## New\n\n- c\n- d"


def pinned(count: int, others: int) -> str:
    head = "## Pinned\n" + lines_of(count)
    return f"{head}\n\n## Others\n{lines_of(others)}"


def test_pinned_entries_are_shown_even_when_they_are_the_oldest() -> None:
    text = pinned(3, 50)
    found = cut(text, 200)
    assert "## Pinned\n- 00000000\n- 00000001\n- 00000002\n" in found.text
    assert found.text.endswith("- 00000049")
    assert len(found.text) <= 200


@pytest.mark.parametrize(("count", "shown"), [(9, 9), (10, 9)])
def test_pinned_entries_get_at_most_half_of_the_budget(count: int, shown: int) -> None:
    """Nine of ten characters, with the newlines between them, are 98."""
    for room in (198, 196):
        found = cut(pinned(count, 50), room)
        section = found.text.partition("## Others")[0]
        assert section.count("- ") == shown
        assert f"- {count - shown:08}" in section  # the newest of them
        assert found.text.endswith("- 00000049")
    assert cut(pinned(9, 50), 194).text.partition("## Others")[0].count("- ") == 8


def test_a_text_of_pinned_entries_alone_gets_the_whole_budget() -> None:
    found = cut("## Pinned\n" + lines_of(50), 300)
    assert len(found.text) > 280


def test_an_entry_over_2000_characters_is_shown_by_its_beginning() -> None:
    filler = "\n".join(["- " + "z" * 98] * 100)
    for length, is_whole in ((2_000, True), (2_001, False)):
        entry = "- " + "x" * (length - 2)
        found = cut(f"{filler}\n{entry}", 10_000)
        shown = found.text.rpartition("\n")[2]
        assert (shown == entry) == is_whole
        assert len(shown) <= ENTRY_CHARACTERS_MAX
        assert found.shortened == (0 if is_whole else 1)
        if not is_whole:
            more = length - len(shown.partition(" … ")[0])
            assert shown.endswith(f" … ({more} more characters)")


def test_a_text_that_is_one_oversized_entry_is_shown_by_its_beginning() -> None:
    found = cut("x" * 40_001, 40_000)
    assert found.text.startswith("x" * 1_900)
    assert found.text.endswith("more characters)")
    assert (found.entries_left_out, found.shortened) == (0, 1)


@pytest.mark.parametrize(
    ("wanted", "total", "given"),
    [
        ([10, 20], 30, [10, 20]),
        ([10, 20], 29, [9, 19]),
        ([1_000, 1_000], 1_000, [500, 500]),
        ([3_000, 1_000], 1_000, [642, 357]),
        ([100_000, 10], 1_000, [990, 10]),
        ([0, 50], 20, [0, 20]),
        ([], 20, []),
    ],
)
def test_mounts_share_the_budget_in_proportion_with_a_floor(
    wanted: list[int], total: int, given: list[int]
) -> None:
    assert shares(wanted, total) == given


@given(st.lists(st.integers(0, 10_000), max_size=20), st.integers(1, 20_000))
def test_a_share_of_the_budget_is_never_more_than_wanted_and_the_sum_never_more_than_the_total(
    wanted: list[int], total: int
) -> None:
    got = shares(wanted, total)
    assert sum(got) <= total
    assert all(0 <= share <= want for share, want in zip(got, wanted, strict=True))
    floor = total // 2 // len(wanted) if wanted else 0
    assert all(share >= min(want, floor) for share, want in zip(got, wanted, strict=True))


def test_memory_takes_at_most_two_fifths_of_the_context() -> None:
    assert budget() == 40_000
    assert budget(39_999) == 39_999
    assert budget(40_001) == 40_000
    assert budget(40_000, context=50_000) == 20_000


texts = st.lists(
    st.sampled_from(
        ["", "# A", "## Pinned", "- item", "  below", "text of a line", "```", "- " + "w" * 60]
    ),
    max_size=40,
).map("\n".join)


@given(texts, st.integers(0, 300), st.lists(st.sampled_from("123"), min_size=40, max_size=40))
def test_a_shortened_text_stays_within_its_budget_in_order_and_counts_the_entries_left_out(
    text: str, room: int, ages: list[str]
) -> None:
    found = cut(text, room, ages)
    assert len(found.text) <= room
    lines = text.split("\n")
    whole = ["\n".join(lines[entry.first : entry.end]) for entry in entries(lines)]
    shown = [
        "\n".join(found.text.split("\n")[e.first : e.end]) for e in entries(found.text.split("\n"))
    ]
    if not found.shortened:
        remaining = iter(whole)
        assert all(any(one == other for other in remaining) for one in shown)
        if found.text != text:
            assert len(whole) - len(shown) == found.entries_left_out
    assert cut(text, room, ages) == found
