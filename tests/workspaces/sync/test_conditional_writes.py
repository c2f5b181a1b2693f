"""Conditional writes of a shared workspace: the store decides for all machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces.conftest import AGENT, CALLER
from tests.workspaces.replicas import MemoryPrefix, Replica
from tests.workspaces.two_machines import (
    MEMORY,
    a,
    at_the_next_exchange,
    b,
    in_staging,
    machine,
    place,
    prefix,
    set_status,
)
from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, Unavailable
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.faulty import FaultyBlobs, StoreFault
from workspaces.storage.in_memory import MemoryBlobs, MemoryRecords
from workspaces.tree.conflict_copy import conflict_path

__all__ = ["a", "b", "machine", "place", "prefix"]


def test_the_second_of_two_writes_with_the_same_condition_is_a_conflict(
    a: Replica, b: Replica
) -> None:
    a.workspace.write(MEMORY, "one\n", by=CALLER, expect=ABSENT)
    b.sync.run()
    seen = version_of(b"one\n")
    a.workspace.write(MEMORY, "one\na\n", by=AGENT, expect=seen)
    with pytest.raises(Conflict) as told:
        b.workspace.write(MEMORY, "one\nb\n", by=AGENT, expect=seen)
    assert told.value.actual == version_of(b"one\na\n")
    assert b.texts() == {MEMORY: "one\na\n"}, "what is there was brought, so that it can be merged"
    with pytest.raises(Conflict):
        b.workspace.write(MEMORY, "x", by=CALLER, expect=ABSENT)
    with pytest.raises(Conflict):
        b.workspace.delete(MEMORY, by=CALLER, expect=seen)


def test_a_conditional_write_costs_a_single_put_and_its_revision_names_the_author(
    a: Replica, prefix: MemoryPrefix
) -> None:
    a.workspace.write(MEMORY, "one\n", by=AGENT, expect=ABSENT)
    prefix.asked.clear()
    a.workspace.write(MEMORY, "two\n", by=AGENT, expect=version_of(b"one\n"))
    a.workspace.delete(MEMORY, by=AGENT, expect=version_of(b"two\n"))
    assert prefix.asked == [f"PUT {MEMORY}", f"DELETE {MEMORY}"]
    assert {revision.author for revision in a.workspace.log()} == {AGENT.name}
    assert not a.sync.run().pushed


def test_a_conditional_write_also_pushes_an_earlier_manual_edit(a: Replica) -> None:
    a.put(MEMORY, "by hand\n")
    a.workspace.write(MEMORY, "by hand\nmore\n", by=AGENT, expect=version_of(b"by hand\n"))
    assert not a.sync.run().pushed


def test_a_manual_edit_after_a_first_conditional_write_is_pushed_by_sync(a: Replica) -> None:
    a.workspace.write(MEMORY, "one\n", by=CALLER, expect=ABSENT)
    a.put(MEMORY, "one\nby hand\n")
    assert a.sync.run().pushed == [MEMORY]


def test_an_unconditional_write_is_merged_at_the_next_sync(a: Replica, b: Replica) -> None:
    a.put(MEMORY, "1\n2\n3\n")
    a.sync.run()
    b.sync.run()
    a.workspace.write(MEMORY, "one\n2\n3\n", by=CALLER)
    b.workspace.write(MEMORY, "1\n2\nthree\n", by=CALLER)
    for one in (a, b, a):
        one.sync.run()
    assert a.texts() == b.texts() == {MEMORY: "one\n2\nthree\n"}


def test_a_conditional_write_fails_if_the_store_does_not_answer(
    tmp_path: Path,
) -> None:
    is_down = False
    store = FaultyBlobs(
        MemoryBlobs(), iter(lambda: StoreFault.BEFORE if is_down else StoreFault.NONE, 0)
    )
    a = Replica(tmp_path / "a", MemoryRecords(), SharedBucket("memory:", MemoryPrefix(store)))
    a.workspace.write(MEMORY, "one\n", by=CALLER, expect=ABSENT)
    is_down = True
    with pytest.raises(Unavailable):
        a.workspace.write(MEMORY, "two\n", by=CALLER, expect=version_of(b"one\n"))
    assert a.texts() == {MEMORY: "one\n"}
    a.workspace.write(MEMORY, "two\n", by=CALLER)
    assert a.texts() == {MEMORY: "two\n"}


def test_a_push_whose_answer_was_lost_is_not_repeated_or_merged(tmp_path: Path) -> None:
    faults: list[StoreFault] = []
    plan = iter(lambda: faults.pop() if faults else StoreFault.NONE, 0)
    store = FaultyBlobs(MemoryBlobs(), plan)
    a = Replica(tmp_path / "a", MemoryRecords(), SharedBucket("memory:", MemoryPrefix(store)))
    a.sync.run()
    a.put(MEMORY, "one\n")
    faults.append(StoreFault.AFTER)
    assert a.sync.push([WorkspacePath(MEMORY)]).is_durable
    done = a.sync.run()
    assert (done.pushed, done.pulled, done.merged) == ([], [], [])
    a.put(MEMORY, "two\n")
    faults.extend([StoreFault.BEFORE, StoreFault.AFTER])
    with pytest.raises(Unavailable):
        a.sync.push([WorkspacePath(MEMORY)])
    assert a.sync.run().pending == []
    assert a.sync.run().requests == 2


@pytest.mark.parametrize("was_agreed", [True, False])
def test_a_key_edited_by_a_person_during_a_conditional_write_stays_edited(
    tmp_path: Path, place: SharedBucket, monkeypatch: pytest.MonkeyPatch, was_agreed: bool
) -> None:
    """Both come from what was not pushed yet, and before they meet the other machine changes another line."""
    records, clock = MemoryRecords(), ManualClock()
    a, b = (Replica(tmp_path / name, records, place, clock) for name in "ab")
    if was_agreed:
        set_status(a, "begun")
    a.sync.run()
    b.sync.run()
    set_status(a, "seen")
    at_the_next_exchange(a, monkeypatch, before="---\nstatus: replaced\n---\n")
    seen = a.workspace.read(MEMORY)
    a.workspace.write(MEMORY, f"{seen.text}told\n", by=CALLER, expect=seen.version)
    blamed = {line.text: line.author for line in a.workspace.history.blame(WorkspacePath(MEMORY))}
    assert (blamed["told"], blamed["status: replaced"]) == (CALLER.name, a.workspace._person.name)
    b.sync.run()
    clock.advance(60)
    b.put(MEMORY, f"{b.texts()[MEMORY]}later\n")
    b.sync.run()
    a.sync.run()
    b.sync.run()
    assert a.texts() == b.texts() == {MEMORY: "---\nstatus: replaced\n---\ntold\nlater\n"}


def test_a_person_wins_a_key_also_set_by_a_conditional_write_and_the_merge_is_listed(
    a: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_status(a, "seen")
    a.sync.run()
    at_the_next_exchange(a, monkeypatch, before="---\nstatus: by hand\n---\n")
    seen = a.workspace.read(MEMORY)
    a.workspace.write(MEMORY, "---\nstatus: told\n---\n", by=CALLER, expect=seen.version)
    assert a.texts() == {MEMORY: "---\nstatus: by hand\n---\n"}
    assert a.workspace.log()[0].trailers["Merged"] == f"{MEMORY}: keys status"
    assert a.workspace.find_version(MEMORY, version_of(b"---\nstatus: told\n---\n")) is not None
    assert a.sync.run().pushed == [MEMORY]


def test_an_unmergeable_save_during_a_conditional_write_becomes_a_conflict_copy(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "decisions/d.md"
    a.put(path, "seen\n")
    a.sync.run()
    at_the_next_exchange(a, monkeypatch, before="by hand\n")
    a.workspace.write(path, "told\n", by=CALLER, expect=version_of(b"seen\n"))
    second = conflict_path(WorkspacePath(path), version_of(b"by hand\n"))
    assert a.texts() == {path: "told\n", second: "by hand\n"}
    assert [(one.path, one.kind) for one in a.workspace.edits.problems()] == [(second, "conflict")]
    a.sync.run()
    b.sync.run()
    assert b.texts() == a.texts() == {path: "told\n", second: "by hand\n"}


@pytest.mark.parametrize("moment", ["confirm", "enter"])
def test_a_sync_does_not_remove_the_staged_file_of_a_conditional_write(
    a: Replica, machine: Callable[[str], Replica], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    other = machine("a")
    move = getattr(a.workspace._blobs, moment)

    def beside(*given: Any) -> Any:
        moving = move(*given) if moment == "confirm" else None
        with other.workspace.staging():
            pass
        return moving if moment == "confirm" else move(*given)

    monkeypatch.setattr(a.workspace._blobs, moment, beside)
    a.workspace.write(MEMORY, "told\n", by=CALLER, expect=ABSENT)
    assert a.texts() == {MEMORY: "told\n"}
    assert in_staging(a) == []
