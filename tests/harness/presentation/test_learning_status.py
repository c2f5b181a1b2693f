"""What the status says of learning in the background."""

from __future__ import annotations

from collections.abc import Callable

from harness import Harness
from harness.learning.learning_jobs import LEARN
from harness.learning.pass_records import told_key
from harness.models.scripted import ScriptedModel
from harness.presentation.status import StatusRow, status
from tests.harness.learning.saying import fact, said, saves
from workspaces.storage.records import Delete

Scripted = Callable[..., tuple[Harness, ScriptedModel]]


def lines(harness: Harness, section: str = "learning") -> list[StatusRow]:
    return list(next(one.lines for one in status(harness) if one.name == section))


def test_a_new_home_says_nothing_until_something_was_learned(scripted: Scripted) -> None:
    harness, _ = scripted("a", saves(fact()))
    assert lines(harness) == []
    harness.learn(said(harness))
    (line,) = lines(harness)
    assert "read once, 1 fact stored" in line.told and "of 0.50 dollars" in line.told
    assert "usage --by purpose" in (line.remedy or "")


def test_an_upgraded_home_says_once_that_learning_is_on(scripted: Scripted) -> None:
    harness, _ = scripted()
    harness.rooms.records.write(Delete(told_key(harness.rooms.principal.account_id)))
    (line,) = lines(harness)
    assert "at most 0.50 dollars a day" in line.told
    assert '{"extract": {"enabled": false}}' in (line.remedy or "")
    harness.tell_learning()
    assert lines(harness) == []


def test_skipped_and_failed_passes_are_counted(scripted: Scripted) -> None:
    harness, _ = scripted("a", "no call", "b")
    account = harness.rooms.principal.account_id
    harness.learn(said(harness))
    limits = {"limits": {"learningDollarsPerDay": 0}}
    harness.house.accounts.patch(account, {"config": limits})
    harness.learn(said(harness))
    told = {line.told: line.state for line in lines(harness)}
    assert told == {
        "today: 1 not read: the day's limit was reached": "pending",
        "today: 1 without a usable reply": "problem",
    }


def test_conversations_that_wait_to_be_read_are_one_row(scripted: Scripted) -> None:
    harness, _ = scripted("a", "b")
    for key in ("c1", "c2"):
        harness.jobs.retry(f"{LEARN}:{said(harness, key=key).id}")
    assert [line.told for line in lines(harness)] == ["2 conversations wait to be read"]
    assert lines(harness, "jobs") == []
