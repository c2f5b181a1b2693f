"""Repeating a conditional write: how often, after which errors, and with which error in the end."""

from __future__ import annotations

import pytest

from workspaces.errors import AlreadyExists, Conflict, Unavailable
from workspaces.storage.contention import ATTEMPTS_MAX, attempts, until_written


def test_attempts_end_after_their_maximum() -> None:
    assert list(attempts(3)) == [0, 1, 2]
    assert len(list(attempts())) == ATTEMPTS_MAX
    assert list(attempts(3, pause_s_max=1e-9)) == [0, 1, 2]


def test_a_write_is_repeated_until_it_wins() -> None:
    lost = [Conflict("record", "a", expected=number, actual=number + 1) for number in range(2)]

    @until_written("runs")
    def write(name: str, *, value: int) -> str:
        if lost:
            raise lost.pop()
        return f"{name} {value}"

    assert write("a", value=3) == "a 3"
    assert lost == []


def test_a_write_that_always_loses_names_what_it_wrote_and_a_remedy() -> None:
    write = _Failing(Conflict("record", "a", expected=1, actual=2))
    with pytest.raises(Unavailable, match="runs: others keep writing at the same time") as caught:
        until_written("runs", 3)(write)()
    assert caught.value.remedy == "try again"
    assert write.calls == 3


def test_a_conflict_of_another_kind_is_an_answer() -> None:
    write = _Failing(AlreadyExists("agent", "a"))
    with pytest.raises(AlreadyExists):
        until_written("agents")(write)()
    assert write.calls == 1


def test_a_caller_names_the_errors_that_say_that_another_was_faster() -> None:
    write = _Failing(AlreadyExists("agent", "a"))
    with pytest.raises(Unavailable):
        until_written("agents", 3, lost=(AlreadyExists,))(write)()
    assert write.calls == 3


class _Failing:
    def __init__(self, failure: Exception) -> None:
        self.calls = 0
        self._failure = failure

    def __call__(self) -> None:
        self.calls += 1
        raise self._failure
