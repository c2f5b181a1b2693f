"""The sync engine on real directories and real histories; the bucket is in memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces.conftest import CALLER
from tests.workspaces.replicas import MemoryPrefix, Replica
from tests.workspaces.two_machines import MEMORY, a, b, filled, machine, place, prefix, set_status
from workspaces.accounts.account import default_owner
from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict, MassDeletion, Refused, Unavailable
from workspaces.history.git.objects import blob_id
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.blobs import BlobName, Expect
from workspaces.storage.faulty import FaultyBlobs, StoreFault
from workspaces.storage.in_memory import MemoryBlobs, MemoryRecords
from workspaces.sync.reconcile import Pull, Push, reconcile
from workspaces.tree.conflict_copy import conflict_path

__all__ = ["a", "b", "machine", "place", "prefix"]


def test_sync_carries_writes_and_deletions_to_the_other_machine(a: Replica, b: Replica) -> None:
    a.put(MEMORY, "- likes tea\n")
    a.put("notes/x.md", "deep\n")
    assert sorted(a.sync.run().pushed) == [MEMORY, "notes/x.md"]
    assert sorted(b.sync.run().pulled) == [MEMORY, "notes/x.md"]
    assert b.texts() == a.texts()
    (b.root / MEMORY).unlink()
    b.put("notes/x.md", "deeper\n")
    assert sorted(b.sync.run().pushed) == [MEMORY, "notes/x.md"]
    a.sync.run()
    assert a.texts() == {"notes/x.md": "deeper\n"}


def test_a_pulled_edit_keeps_the_revision_of_its_machine(a: Replica, b: Replica) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    b.sync.run()
    assert b.workspace.history.tip() == a.workspace.history.tip()
    b.put("mine.md", "by hand\n")
    b.sync.run()
    told = {revision.paths: revision.trailers["Source"] for revision in b.workspace.log()}
    assert told == {(MEMORY,): "edit", ("mine.md",): "edit"}


def test_a_pulled_file_without_history_gets_a_revision_by_sync(a: Replica, b: Replica) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    b.sync.run()
    a.put(MEMORY, "two\n")
    assert not a.sync.push([WorkspacePath(MEMORY)]).history
    b.sync.run()
    assert [one.trailers["Source"] for one in b.workspace.log()] == ["sync", "edit"]
    a.sync.run()
    b.sync.run()
    assert a.workspace.history.tip() == b.workspace.history.tip()
    assert len(a.workspace.log()) == 4
    assert a.texts() == b.texts() == {MEMORY: "two\n"}


def test_sync_merges_edits_of_both_machines_and_blame_keeps_each_revision(
    a: Replica, b: Replica
) -> None:
    a.put(MEMORY, "one\ntwo\nthree\n")
    a.sync.run()
    b.sync.run()
    a.put(MEMORY, "ONE\ntwo\nthree\n")
    b.put(MEMORY, "one\ntwo\nTHREE\n")
    a.sync.run()
    report = b.sync.run()
    assert (report.merged, report.pushed, report.pending) == ([MEMORY], [MEMORY], [])
    a.sync.run()
    assert a.texts() == b.texts() == {MEMORY: "ONE\ntwo\nTHREE\n"}
    blamed = b.workspace.history.blame(WorkspacePath(MEMORY))
    person = b.workspace._person.name
    assert [line.author for line in blamed] == [person, person, person]
    assert len({line.revision for line in blamed}) == 3
    assert a.workspace.history.tip() == b.workspace.history.tip()
    theirs = version_of(b"ONE\ntwo\nthree\n")
    assert b.workspace.find_version(MEMORY, theirs) is not None


def by_hand_and_seen_by_the_sync_alone(a: Replica, b: Replica, clock: ManualClock) -> None:
    set_status(a, "earlier")
    a.sync.run()
    clock.advance(60)
    set_status(b, "later")


def by_hand_and_pushed_first(a: Replica, b: Replica, clock: ManualClock) -> None:
    set_status(b, "earlier")
    b.workspace.edits.commit()
    clock.advance(60)
    set_status(a, "later")
    a.sync.run()


def by_a_program_that_has_not_pushed_its_revision(
    a: Replica, b: Replica, clock: ManualClock
) -> None:
    set_status(b, "earlier")
    b.workspace.edits.commit()
    clock.advance(60)
    seen = a.workspace.read(MEMORY)
    a.workspace.write(MEMORY, seen.text.replace("begun", "later"), by=CALLER, expect=seen.version)


def before_the_other_changed_something_else(a: Replica, b: Replica, clock: ManualClock) -> None:
    set_status(a, "earlier")
    a.workspace.edits.commit()
    clock.advance(60)
    set_status(b, "later")
    b.workspace.edits.commit()
    clock.advance(60)
    a.put("notes/x.md", "something else\n")
    a.sync.run()


@pytest.mark.parametrize(
    "story",
    [
        by_hand_and_seen_by_the_sync_alone,
        by_hand_and_pushed_first,
        by_a_program_that_has_not_pushed_its_revision,
        before_the_other_changed_something_else,
    ],
)
def test_a_key_set_on_both_machines_has_the_later_value_after_sync(
    tmp_path: Path, place: SharedBucket, story: Callable[[Replica, Replica, ManualClock], None]
) -> None:
    records, clock = MemoryRecords(), ManualClock()
    a, b = (Replica(tmp_path / name, records, place, clock) for name in "ab")
    set_status(a, "begun")
    a.sync.run()
    b.sync.run()
    clock.advance(60)
    story(a, b, clock)
    b.sync.run()
    a.sync.run()
    assert a.texts()[MEMORY] == b.texts()[MEMORY] == "---\nstatus: later\n---\n"


def test_an_unmergeable_file_gets_a_conflict_copy_that_is_listed(a: Replica, b: Replica) -> None:
    a.put("decisions/d.md", "first\n")
    b.put("decisions/d.md", "second\n")
    a.sync.run()
    report = b.sync.run()
    second = f"decisions/d.conflict-{version_of(b'second' + chr(10).encode())[:12]}.md"
    assert report.conflicts == [second]
    a.sync.run()
    assert a.texts() == b.texts() == {"decisions/d.md": "first\n", second: "second\n"}
    assert [(p.path, p.kind) for p in a.workspace.tree.scan().problems] == [(second, "conflict")]
    assert second not in a.workspace.files()


def test_a_conflict_copy_edited_on_another_machine_is_not_overwritten(
    a: Replica, b: Replica
) -> None:
    path = "decisions/d.md"
    a.put(path, "seen\n")
    a.sync.run()
    b.sync.run()
    b.put(path, "theirs\n")
    b.sync.run()
    second = conflict_path(WorkspacePath(path), version_of(b"mine\n"))
    b.put(second, "mine\nand more\n")
    b.sync.run()
    a.put(path, "mine\n")
    a.sync.run()
    b.sync.run()
    assert a.texts() == b.texts() == {path: "theirs\n", second: "mine\nand more\n"}


def test_an_edit_wins_over_a_deletion_on_the_other_machine(a: Replica, b: Replica) -> None:
    for path in (MEMORY, "here.md", "there.md"):
        a.put(path, f"{path}\n")
    a.sync.run()
    b.sync.run()
    (a.root / "here.md").unlink()
    a.put("there.md", "edited\n")
    b.put("here.md", "edited\n")
    (b.root / "there.md").unlink()
    a.sync.run()
    b.sync.run()
    a.sync.run()
    assert a.texts() == b.texts()
    assert a.texts() == {MEMORY: "MEMORY.md\n", "here.md": "edited\n", "there.md": "edited\n"}


def test_a_line_whose_two_copies_were_removed_stays_in_the_history(a: Replica, b: Replica) -> None:
    for path in (MEMORY, "one.md", "two.md"):
        a.put(path, "- a line\n" if path != MEMORY else "# Memory\n")
    a.sync.run()
    b.sync.run()
    (a.root / "two.md").rename(a.root / "one.md")
    b.put("one.md", "- something else\n")
    b.sync.run()
    a.sync.run()
    b.sync.run()
    assert a.texts() == b.texts() == {MEMORY: "# Memory\n", "one.md": "- something else\n"}
    for one in (a, b):
        before = one.workspace.log(path=WorkspacePath("two.md"))[-1].id
        assert one.workspace.read("two.md", view=before).text == "- a line\n"


def test_a_sync_without_changes_costs_a_get_of_the_history_head_and_a_listing(
    a: Replica, prefix: MemoryPrefix
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    prefix.asked.clear()
    assert a.sync.run().requests == 2
    assert prefix.asked == ["GET head.json", "LIST"]
    prefix.asked.clear()
    assert a.sync.pull().requests == 1
    assert prefix.asked == ["GET head.json"]


def test_a_sync_without_changes_does_not_reconcile_again(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[object] = []

    def reconciling(*arguments: Any, **how: Any) -> Any:
        planned.append(arguments)
        return reconcile(*arguments, **how)

    monkeypatch.setattr("workspaces.sync.survey.reconcile", reconciling)
    monkeypatch.setattr("workspaces.tree.scan.YOUNG_S", -3600)

    def look_twice() -> None:
        a.sync.run()
        a.sync.run()
        planned.clear()
        assert a.sync.run().requests == 2
        assert planned == []

    for number in range(4):
        a.put(f"{number}.md", "text\n")
    look_twice()
    b.sync.run()
    b.put("0.md", "theirs\n")
    b.sync.run()
    assert a.sync.run().pulled == ["0.md"]
    look_twice()
    a.put("1.md", "ours\n")
    assert a.sync.run().pushed == ["1.md"]
    look_twice()
    a.sync._baseline.begin_anew()
    a.sync.run()
    assert len(a.sync._baseline.tree()) == 4


def test_a_file_pushed_during_a_listing_is_not_treated_as_deleted(
    a: Replica, machine: Callable[[str], Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    a.sync.run()
    other, walk = machine("a"), MemoryPrefix.walk

    def overtaken(self: MemoryPrefix, *arguments: Any, **how: Any) -> Any:
        found = list(walk(self, *arguments, **how))
        monkeypatch.setattr(MemoryPrefix, "walk", walk)
        assert other.sync.push([WorkspacePath("new.md")]).pushed == ["new.md"]
        return iter(found)

    monkeypatch.setattr(MemoryPrefix, "walk", overtaken)
    a.put("new.md", "one\n")
    a.sync.run()
    assert a.texts() == {"new.md": "one\n"}
    assert a.sync.run().pushed == []


def test_pulling_a_single_changed_file_costs_four_requests(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    b.sync.run()
    a.put(MEMORY, "two\n")
    a.sync.run()
    prefix.asked.clear()
    assert b.sync.pull().requests == 4
    (pack,) = [one for one in prefix.asked if one.endswith(".bundle")]
    assert prefix.asked[0] == "GET head.json"
    assert sorted(prefix.asked[1:]) == sorted([pack, "LIST", f"GET {MEMORY}"]), "at the same time"


def test_pushing_a_known_dirty_file_costs_a_single_put(a: Replica, prefix: MemoryPrefix) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    a.put(MEMORY, "two\n")
    prefix.asked.clear()
    report = a.sync.push([WorkspacePath(MEMORY)])
    assert (report.pushed, report.requests, prefix.asked) == ([MEMORY], 1, [f"PUT {MEMORY}"])
    assert a.sync.push([WorkspacePath(MEMORY)]).requests == 0


def test_pushing_a_dirty_file_merges_a_remote_change_first(a: Replica, b: Replica) -> None:
    a.put(MEMORY, "1\n2\n3\n")
    a.sync.run()
    b.sync.run()
    a.put(MEMORY, "one\n2\n3\n")
    a.sync.run()
    b.put(MEMORY, "1\n2\nthree\n")
    assert b.sync.push_dirty().is_durable
    a.sync.run()
    assert a.texts() == b.texts() == {MEMORY: "one\n2\nthree\n"}


def test_sync_pushes_memory_md_after_all_other_files(a: Replica, prefix: MemoryPrefix) -> None:
    for name in (MEMORY, "a.md", "notes/z.md"):
        a.put(name, name)
    a.sync.run()
    put = [one for one in prefix.asked if one.startswith("PUT") and ".probe" not in one]
    assert sorted(put[:2]) == ["PUT a.md", "PUT notes/z.md"]
    assert put[2] == f"PUT {MEMORY}"
    assert put[3].endswith(".bundle")
    assert put[4:] == ["PUT head.json"]


def test_a_pushed_object_carries_its_version_and_its_origin(a: Replica) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    blob = a.sync._there.read(WorkspacePath(MEMORY))
    (revision,) = a.workspace.log()
    assert blob.meta == {
        "version": version_of(b"one\n"),
        "revision": revision.id,
        "stamp": revision.at,
        "created": revision.at,
        "source": "manual",
        "author": a.workspace.history.commit(revision.id).author_id,
    }


# What stops the hand.


def test_sync_stops_at_an_emptied_directory_instead_of_emptying_the_store(
    a: Replica, b: Replica
) -> None:
    filled(a, b, 2)
    for file in list(a.root.iterdir()):
        file.unlink()
    with pytest.raises(MassDeletion, match="directory is empty") as stopped:
        a.sync.run()
    assert "--accept-deletions" in (stopped.value.remedy or "")
    assert b.sync.run().pulled == []
    assert len(b.texts()) == 2
    a.sync.run(accept_deletions=True)
    with pytest.raises(MassDeletion, match="store is empty"):
        b.sync.run()
    b.sync.run(accept_deletions=True)
    assert b.texts() == {}


def test_sync_stops_at_an_empty_listing_instead_of_emptying_the_directory(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    filled(a, b)
    prefix.store._blobs.clear()
    with pytest.raises(MassDeletion, match="store is empty"):
        a.sync.run()
    assert len(a.texts()) == 6


def test_sync_stops_if_more_than_half_of_the_files_are_missing(a: Replica, b: Replica) -> None:
    filled(a, b)
    for number in range(3):
        (a.root / f"{number}.md").unlink()
    assert len(a.sync.run().pushed) == 3
    b.put("x.md", "x")
    for number in (3, 4, 5):
        a.put(f"{number}b.md", "new\n")
    a.sync.run()
    for file in list(a.root.iterdir())[:4]:
        file.unlink()
    with pytest.raises(MassDeletion, match="4 of 6 files are gone"):
        a.sync.run()


def test_a_push_of_many_known_deletions_stops_at_the_mass_deletion_guard(
    a: Replica, b: Replica
) -> None:
    filled(a, b)
    paths = [WorkspacePath(name) for name in a.texts()]
    for path in paths:
        (a.root / path).unlink()
    with pytest.raises(MassDeletion):
        a.sync.push(paths)
    with pytest.raises(MassDeletion):
        a.sync.push_dirty()


def test_sync_stops_if_the_root_is_missing_or_another_directory(
    a: Replica, b: Replica, machine: Callable[[str], Replica]
) -> None:
    """As when a volume is not mounted, or was restored from an old copy."""
    filled(a, b)
    a.root.rename(a.root.with_name("away"))
    with pytest.raises(MassDeletion, match="missing"):
        a.sync.run()
    a.root.mkdir(mode=0o700)
    a.put("other.md", "something else\n")
    with pytest.raises(MassDeletion):
        machine("a").sync.run()
    for number in range(6):
        a.put(f"{number}.md", "an old copy\n")
    with pytest.raises(MassDeletion, match="not the directory of the last sync"):
        machine("a").sync.run()


def test_sync_accepts_the_same_files_in_a_new_root_directory(
    a: Replica, b: Replica, machine: Callable[[str], Replica]
) -> None:
    filled(a, b)
    moved = a.root.with_name("moved")
    shutil.copytree(a.root, moved)
    shutil.rmtree(a.root)
    moved.rename(a.root)
    assert machine("a").sync.run().requests == 2


def test_sync_with_another_store_resets_the_baseline_and_deletes_no_file(
    a: Replica, b: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(a, b)
    elsewhere = MemoryPrefix()
    monkeypatch.setattr(MemoryPrefix, "address", lambda self: "elsewhere")
    a.workspaces._place = SharedBucket("memory:", elsewhere)
    a.workspaces._close(a.workspace.record.id)
    assert len(a.workspaces.sync("notes").run().pushed) == 6
    assert len(a.texts()) == 6


def test_a_sync_plan_lists_actions_without_carrying_them_out(a: Replica, b: Replica) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    plan = b.sync.plan()
    assert plan.actions == (Pull(WorkspacePath(MEMORY), None),)
    assert b.texts() == {}
    for file in list(a.root.iterdir()):
        file.unlink()
    assert a.sync.plan().alarm is not None


def test_a_sync_plan_with_another_store_does_not_reset_the_baseline(
    a: Replica, b: Replica, machine: Callable[[str], Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(a, b)
    (a.root / "1.md").unlink()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(MemoryPrefix, "address", lambda self: "elsewhere")
        a.workspaces._place = SharedBucket("memory:", MemoryPrefix())
        a.workspaces._close(a.workspace.record.id)
        plan = a.workspaces.sync("notes").plan()
        assert {type(action) for action in plan.actions} == {Push}
        assert (len(plan.actions), plan.alarm) == (5, None)
    machine("a").sync.run()
    assert "1.md" not in a.texts()
    b.sync.run()
    assert "1.md" not in b.texts()


class Liar(MemoryBlobs):
    """Accepts conditions and ignores them."""

    def _check(self, name: str, expect: object) -> None:
        return


class HalfLiar(MemoryBlobs):
    """Honours conditions on writes alone."""

    def delete(self, name: str, *, expect: object) -> None:
        super().delete(name, expect=ANY)


def test_sync_refuses_a_store_that_ignores_conditions_with_the_reason(tmp_path: Path) -> None:
    place = SharedBucket("s3://liar/x", MemoryPrefix(Liar()))
    a = Replica(tmp_path / "a", MemoryRecords(), place)
    a.put(MEMORY, "one\n")
    with pytest.raises(Refused, match="overwrite each other"):
        a.sync.run()
    with pytest.raises(Refused, match="overwrite each other"):
        a.workspace.write("x.md", "x", by=CALLER, expect=ABSENT)


def test_sync_deletes_under_a_lease_if_the_store_has_no_conditional_delete(tmp_path: Path) -> None:
    prefix = MemoryPrefix(HalfLiar())
    records = MemoryRecords()
    place = SharedBucket("s3://half/x", prefix)
    a, b = (Replica(tmp_path / name, records, place) for name in "ab")
    filled(a, b)
    (a.root / "1.md").unlink()
    prefix.asked.clear()
    assert a.sync.run().pushed == ["1.md"]
    lease = f".lease/{a.workspace.namespace}"
    begin = prefix.asked.index(f"PUT {lease}")
    assert prefix.asked[begin : begin + 4] == [
        f"PUT {lease}", "GET 1.md", "DELETE 1.md", f"DELETE {lease}"
    ]  # fmt: skip
    b.put("2.md", "edited\n")
    b.sync.push_dirty()
    (a.root / "2.md").unlink()
    a.sync.run()
    assert a.texts()["2.md"] == "edited\n"


class Cut(FaultyBlobs):
    """A wire that is cut with a deletion, before it is carried out or after."""

    def __init__(self) -> None:
        super().__init__(MemoryBlobs(), iter(self._fault, None))
        self.cut_with: StoreFault | None = None
        self._is_cut = False

    def _fault(self) -> StoreFault:
        return StoreFault.BEFORE if self._is_cut else StoreFault.NONE

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        if self.cut_with is StoreFault.AFTER and not self._is_cut:
            super().delete(name, expect=expect)
        self._is_cut = self.cut_with is not None
        super().delete(name, expect=expect)

    def mend(self) -> None:
        self.cut_with, self._is_cut = None, False


@pytest.fixture
def wire() -> Cut:
    return Cut()


@pytest.fixture
def on_wire(tmp_path: Path, wire: Cut) -> tuple[Replica, Replica]:
    records, place = MemoryRecords(), SharedBucket("memory:", MemoryPrefix(wire))
    a, b = (Replica(tmp_path / name, records, place) for name in "ab")
    filled(a, b)
    return a, b


def deletes_unheard(machine: Replica, wire: Cut, cut_with: StoreFault) -> None:
    wire.cut_with = cut_with
    with pytest.raises(Unavailable):
        machine.sync.run()
    wire.mend()


def moves_away_and_back(machine: Replica, wire: Cut, cut_with: StoreFault) -> None:
    file, elsewhere = machine.root / "1.md", machine.root / "moved.md"
    file.rename(elsewhere)
    deletes_unheard(machine, wire, cut_with)
    elsewhere.rename(file)


@pytest.mark.parametrize("cut_with", [StoreFault.BEFORE, StoreFault.AFTER])
def test_a_file_moved_back_after_an_unconfirmed_deletion_is_pushed_as_new(
    on_wire: tuple[Replica, Replica], wire: Cut, cut_with: StoreFault
) -> None:
    """The same file, moved away and back: it has not been deleted there by somebody else."""
    a, b = on_wire
    whole = a.texts()
    moves_away_and_back(a, wire, cut_with)
    for one in (a, b, a):
        one.sync.run()
    assert a.texts() == b.texts() == whole
    assert a.sync.run().requests == 2


def test_push_of_a_path_restores_a_file_after_an_unconfirmed_deletion(
    on_wire: tuple[Replica, Replica], wire: Cut
) -> None:
    a, b = on_wire
    whole = a.texts()
    moves_away_and_back(a, wire, StoreFault.AFTER)
    assert a.sync.push([WorkspacePath("1.md")]).pending == []
    b.sync.run()
    assert b.texts() == whole
    expect = a.workspace.read("1.md").version
    a.workspace.write("1.md", "by a program\n", by=CALLER, expect=expect)


def test_a_conditional_write_succeeds_after_an_unconfirmed_deletion(
    on_wire: tuple[Replica, Replica], wire: Cut
) -> None:
    a, _ = on_wire
    moves_away_and_back(a, wire, StoreFault.AFTER)
    expect = a.workspace.read("1.md").version
    a.workspace.write("1.md", "by a program\n", by=CALLER, expect=expect)
    assert a.sync.run().pending == []
    assert a.texts()["1.md"] == "by a program\n"


def test_a_file_moved_back_is_merged_with_a_new_remote_file(
    on_wire: tuple[Replica, Replica], wire: Cut
) -> None:
    a, b = on_wire
    moves_away_and_back(a, wire, StoreFault.AFTER)
    b.sync.run()
    b.put("1.md", "theirs\n")
    b.sync.run()
    for one in (a, b, a):
        one.sync.run()
    assert a.texts() == b.texts()
    assert set(a.texts()["1.md"].splitlines()) == {"1", "theirs"}


@pytest.mark.parametrize("cut_with", [StoreFault.BEFORE, StoreFault.AFTER])
def test_an_unconfirmed_deletion_is_completed_by_the_next_sync(
    on_wire: tuple[Replica, Replica], wire: Cut, cut_with: StoreFault
) -> None:
    a, b = on_wire
    (a.root / "1.md").unlink()
    deletes_unheard(a, wire, cut_with)
    for one in (a, b, a):
        one.sync.run()
    assert a.texts() == b.texts()
    assert "1.md" not in a.texts()
    assert a.sync.run().requests == 2


def gone_on_both_sides(machine: Replica, prefix: MemoryPrefix) -> None:
    """A program's deletion has gone out, and it died; then a person has deleted the file here."""
    prefix.below(machine.workspace.namespace).delete("1.md", expect=ANY)
    (machine.root / "1.md").unlink()


def newest(machine: Replica) -> set[str]:
    return set(machine.workspace.history.tree(machine.workspace.history.tip()))


def test_a_file_missing_on_both_sides_is_absent_from_the_newest_revision(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    filled(a, b)
    gone_on_both_sides(a, prefix)
    (b.root / "1.md").unlink()
    assert a.sync.run().history
    b.sync.run()
    assert newest(a) == newest(b) == set(a.texts()) == set(b.texts())
    assert "1.md" not in newest(a)
    assert a.workspace.history.tip() == b.workspace.history.tip()


@pytest.mark.parametrize("before", [None, "before\n"])
def test_equal_bytes_written_on_both_sides_are_in_the_newest_revision(
    a: Replica, b: Replica, prefix: MemoryPrefix, before: str | None
) -> None:
    """By hand, here and in the bucket: neither has told of it."""
    a.put("0.md", "0\n")
    if before is not None:
        a.put("1.md", before)
    a.sync.run()
    there = prefix.below(a.workspace.namespace)
    there.write("1.md", b"alike\n", expect=ANY)
    a.put("1.md", "alike\n")
    assert a.sync.run().history
    found = a.workspace.history.find(a.workspace.history.tip(), WorkspacePath("1.md"))
    assert found == blob_id(b"alike\n")
    b.sync.run()
    assert b.texts() == a.texts()
    assert b.workspace.history.tip() == a.workspace.history.tip()
    assert a.sync.run().requests == 2


def test_a_conditional_write_recreates_a_file_missing_on_both_sides(
    a: Replica, prefix: MemoryPrefix
) -> None:
    a.put("1.md", "1\n")
    a.sync.run()
    gone_on_both_sides(a, prefix)
    a.workspace.write("1.md", "anew\n", by=CALLER, expect=ABSENT)
    assert a.texts() == {"1.md": "anew\n"}
    assert a.sync.run().pending == []


def test_a_remote_file_that_cannot_exist_here_stays_remote_and_is_listed(
    a: Replica, prefix: MemoryPrefix
) -> None:
    below = prefix.below(a.workspace.namespace)
    a.put("dir/file.md", "x\n")
    for name in ("good.md", "GOOD.md", "dir"):
        below.write(name, b"theirs\n", expect=ABSENT)
    bad = f"{a.workspace.namespace}/bad name.md "
    prefix.store._blobs[bad] = replace(below.read("good.md"), name=bad)
    report = a.sync.run()
    assert {problem.path for problem in report.refused} == {"bad name.md ", "dir", "good.md"}
    assert a.texts() == {"GOOD.md": "theirs\n", "dir/file.md": "x\n"}
    assert {p.path for p in a.sync.problems()} == {"bad name.md ", "dir", "good.md"}


def test_a_remote_file_that_cannot_exist_here_is_not_recorded_as_deleted(
    a: Replica, b: Replica
) -> None:
    filled(a, b)
    (a.root / "1.md").rename(a.root / "1.MD")
    a.sync.run()
    b.put("2.md", "edited\n")
    b.sync.run()
    (a.root / "2.md").rename(a.root / "2.MD")
    assert [problem.path for problem in a.sync.run().refused] == ["2.md"]
    with pytest.raises(Conflict):
        a.workspace.write("2.md", "told\n", by=CALLER, expect=version_of(b"2\n"))
    assert a.sync.run().history
    b.sync.run()
    assert a.workspace.history.tip() == b.workspace.history.tip()
    assert b.texts()["2.md"] == "edited\n"


def test_a_file_over_quota_is_neither_pushed_nor_pulled(
    tmp_path: Path, place: SharedBucket, prefix: MemoryPrefix
) -> None:
    records = MemoryRecords()
    a = Replica(tmp_path / "a", records, place)
    a.workspaces.patch("notes", {"config": {"quota": {"fileBytes": 10}}})
    a = Replica(tmp_path / "a", records, place)
    a.put("large.md", "x" * 20)
    a.put("small.md", "x")
    prefix.below(a.workspace.namespace).write("there.md", b"y" * 20, expect=ABSENT)
    report = a.sync.run()
    assert report.pushed == ["small.md"]
    assert [problem.path for problem in report.refused] == ["there.md"]
    a.put("small.md", "x" * 20)
    assert a.sync.run().pushed == [], "it has not been deleted"
    assert a.sync.push_dirty().pushed == []


# What is refused when a workspace is made.


def test_a_home_without_an_s3_location_refuses_s3_storage_and_names_the_setting(
    tmp_path: Path,
) -> None:
    home, records, clock = Home(tmp_path), MemoryRecords(), ManualClock()
    home.prepare()
    owner = default_owner(records, clock)
    workspaces = Workspaces(owner, home, records, clock, lambda _: {})
    with pytest.raises(Refused, match="no S3 location") as refused:
        workspaces.create("x", config={"storage": {"provider": "s3"}})
    assert "HARNESS_S3" in (refused.value.remedy or "")
    assert refused.value.field == "config.storage.provider"
    local = workspaces.create("local")
    assert not local.record.is_shared
    with pytest.raises(Refused, match="only on this machine"):
        workspaces.sync("local")


def test_shared_records_refuse_a_workspace_with_local_storage(a: Replica) -> None:
    with pytest.raises(Refused, match="other machines share the records"):
        a.workspaces.create("x", config={"storage": {"provider": "local"}})


def test_a_shared_workspace_without_an_s3_location_is_read_only_for_conditional_writes(
    a: Replica,
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    a.workspaces._place = None
    a.workspaces._close(a.workspace.record.id)
    workspace = a.workspaces.get("notes")
    assert workspace.read(MEMORY).text == "one\n"
    with pytest.raises(Unavailable, match="no S3 location"):
        workspace.write(MEMORY, "two\n", by=CALLER, expect=version_of(b"one\n"))
    with pytest.raises(Refused, match="no S3 location"):
        a.workspaces.sync("notes")
