from __future__ import annotations

import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from workspaces.history.line_matching import hunks, shared, split_lines

TEXTS = st.lists(st.sampled_from("abcdefgh"), max_size=40)


@given(TEXTS, TEXTS)
def test_shared_lines_are_equal_and_ascend_on_both_sides(old: list[str], new: list[str]) -> None:
    pairs = shared(old, new)
    assert all(old[i] == new[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))


@given(TEXTS, TEXTS)
def test_the_hunks_turn_the_old_version_into_the_new_version(
    old: list[str], new: list[str]
) -> None:
    rebuilt: list[str] = []
    at = 0
    for hunk in hunks(old, new):
        rebuilt += [*old[at : hunk.old_start], *new[hunk.new_start : hunk.new_end]]
        at = hunk.old_end
    assert rebuilt + old[at:] == new


@given(st.lists(st.integers(), unique=True), st.data())
def test_adding_or_removing_lines_leaves_all_other_lines_shared(
    old: list[int], data: st.DataObject
) -> None:
    gone = data.draw(st.sets(st.sampled_from(old) if old else st.nothing()))
    new: list[object] = [line for line in old if line not in gone]
    for number in range(data.draw(st.integers(0, 5))):
        new.insert(data.draw(st.integers(0, len(new))), f"new {number}")
    assert len(shared(old, new)) == len(old) - len(gone)


@given(st.binary())
def test_splitting_into_lines_loses_no_byte(data: bytes) -> None:
    lines = split_lines(data)
    assert b"".join(lines) == data
    assert all(line.count(b"\n") <= 1 and line for line in lines)


def test_hostile_texts_are_compared_in_bounded_time() -> None:
    size = 20_000
    begin = time.monotonic()
    shared(["a", "b"] * size, ["b", "c"] * size)
    shared([f"{n % 97}" for n in range(size)], [f"{n % 89}" for n in range(size)])
    shared([str(n) for n in range(size)], [str(n) for n in reversed(range(size))])
    assert time.monotonic() - begin < 20
