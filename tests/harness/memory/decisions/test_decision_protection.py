"""The rule for decisions: a model's change of a decision is put back, and a log may only grow."""

from __future__ import annotations

import pytest

from harness.memory.decisions.decision_protection import protect_decision
from workspaces.paths import WorkspacePath

DECISION = WorkspacePath("decisions/2026-11-20-run_1.md")
LOG = WorkspacePath("decisions/2026-11-20-run_1.log.md")


@pytest.mark.parametrize("after", [b"other", None, b""])
def test_a_change_or_deletion_of_a_decision_is_put_back(after: bytes | None) -> None:
    put_back = protect_decision(DECISION, b"decided", after)
    assert put_back is not None
    assert put_back.data == b"decided"


def test_a_new_decision_is_kept() -> None:
    assert protect_decision(DECISION, None, b"decided") is None


def test_a_log_may_grow_and_nothing_else() -> None:
    assert protect_decision(LOG, b"one\n", b"one\ntwo\n") is None
    assert protect_decision(LOG, b"one\n", b"two\n") is not None
    assert protect_decision(LOG, b"one\n", None) is not None


def test_other_files_are_not_touched() -> None:
    assert protect_decision(WorkspacePath("notes/a.md"), b"one", b"two") is None
