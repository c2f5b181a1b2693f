"""The checker of histories of one register."""

from __future__ import annotations

import random

from tests.harness.web.linearizable import Operation, is_linearizable


def read(value: str | None, begin: float, end: float) -> Operation:
    return Operation("read", "done", begin, end, value)


def write(value: str, begin: float, end: float) -> Operation:
    return Operation("write", "done", begin, end, value)


def swap(expects: str | None, value: str, begin: float, end: float, done: bool = True) -> Operation:
    outcome = "done" if done else "refused"
    return Operation("write", outcome, begin, end, value, expects, is_conditional=True)


def test_a_read_after_a_write_has_ended_must_see_it() -> None:
    assert is_linearizable([write("a", 0, 1), read("a", 2, 3)])
    assert not is_linearizable([write("a", 0, 1), read(None, 2, 3)])
    assert is_linearizable([write("a", 0, 3), read(None, 1, 2)]), "they overlap"


def test_two_swaps_of_one_version_cannot_both_succeed() -> None:
    begun = [write("a", 0, 1)]
    assert is_linearizable([*begun, swap("a", "b", 2, 5), swap("a", "c", 3, 6, done=False)])
    assert not is_linearizable([*begun, swap("a", "b", 2, 5), swap("a", "c", 3, 6)])


def test_two_reads_may_not_see_two_writes_in_different_orders() -> None:
    writes = [write("a", 0, 9), write("b", 0, 9)]
    assert is_linearizable([*writes, read("a", 1, 2), read("b", 3, 4)])
    assert not is_linearizable([*writes, read("a", 1, 2), read("b", 3, 4), read("a", 5, 6)])


def test_an_undecided_write_may_take_effect_late_or_never() -> None:
    lost = Operation("write", "open", 0, 1, "a")
    assert is_linearizable([lost, read(None, 5, 6), read("a", 7, 8)])
    assert is_linearizable([lost, read(None, 5, 6), read(None, 7, 8)])
    assert not is_linearizable([lost, read("a", 5, 6), read(None, 7, 8)])


def test_a_write_of_others_happens_once() -> None:
    history = [write("a", 0, 1), read("x", 2, 3), write("b", 4, 5)]
    assert not is_linearizable(history)
    assert is_linearizable(history, has_others=True)
    assert not is_linearizable([*history, read("x", 6, 7)], has_others=True)
    assert not is_linearizable([*history, read("a", 6, 7)], has_others=True)


def test_a_long_history_of_a_real_register_is_linearizable_and_an_old_read_in_it_is_not() -> None:
    rng, value, at = random.Random(1), None, 0.0
    history: list[Operation] = []
    for number in range(1_000):
        at += 1
        begin, end = at - rng.uniform(0, 2), at + rng.uniform(0, 2)
        if rng.random() < 0.5:
            history.append(read(value, begin, end))
        else:
            value = str(number)
            history.append(write(value, begin, end))
    assert is_linearizable(history)
    assert not is_linearizable([*history, read("5", 2_000, 2_001)])
