"""Repeating a conditional write: how often, and with which error after the last attempt."""

from __future__ import annotations

from workspaces.storage.contention import ATTEMPTS_MAX, attempts, contended


def test_attempts_end_after_their_maximum() -> None:
    assert list(attempts(3)) == [0, 1, 2]
    assert len(list(attempts())) == ATTEMPTS_MAX
    assert list(attempts(3, pause_s_max=1e-9)) == [0, 1, 2]


def test_the_error_of_contention_names_the_records_and_a_remedy() -> None:
    error = contended("runs", "them")
    assert (error.code, error.remedy) == ("unavailable", "try again")
    assert "runs" in str(error)
    assert "too many processes write to them at once" in str(error)
