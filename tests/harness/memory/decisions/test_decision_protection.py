"""The rule for decisions: its run makes one, nobody but a person rewrites it, and its log may only grow."""

from __future__ import annotations

import pytest

from harness.memory.decisions.decision_protection import SUBMITTED, protect_decision
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.workspace.protection import PutBack

DECISION = "decisions/2026-11-20-run_1.md"
LOG = "decisions/2026-11-20-run_1.log.md"
MODEL = Author("assistant", "agent_1", "turn", {"Call": "c1"})
ITS_RUN = MODEL.saying(SUBMITTED, "run_1")


def protected(
    path: str, before: bytes | None, after: bytes | None, by: Author = MODEL
) -> PutBack | None:
    return protect_decision(WorkspacePath(path), before, after, by)


@pytest.mark.parametrize("by", [MODEL, ITS_RUN])
@pytest.mark.parametrize("after", [b"other", None, b""])
def test_a_change_or_deletion_of_a_decision_is_put_back(after: bytes | None, by: Author) -> None:
    put_back = protected(DECISION, b"decided", after, by)
    assert put_back is not None
    assert put_back.data == b"decided"


def test_a_decision_is_made_by_its_run_alone() -> None:
    assert protected(DECISION, None, b"decided", ITS_RUN) is None
    for by in (MODEL, MODEL.saying(SUBMITTED, "run_2")):
        put_back = protected(DECISION, None, b"decided", by)
        assert put_back is not None
        assert put_back.data is None


def test_a_log_may_grow_by_the_harness_and_nothing_else() -> None:
    assert protected(LOG, b"one\n", b"one\ntwo\n", ITS_RUN) is None
    assert protected(LOG, None, b"one\n", ITS_RUN) is None
    assert protected(LOG, b"one\n", b"one\ntwo\n") is not None
    assert protected(LOG, b"one\n", b"two\n", ITS_RUN) is not None
    assert protected(LOG, b"one\n", None, ITS_RUN) is not None


@pytest.mark.parametrize("path", ["notes/a.md", "decisions/0001-use-sqlite.md", "decisions/x/y.md"])
def test_other_files_are_not_touched(path: str) -> None:
    assert protected(path, b"one", b"two") is None
    assert protected(path, None, b"two") is None
