"""The trash: a deleted workspace gets a tombstone in the bucket first and then moves to the trash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.workspaces.replicas import MemoryPrefix, Replica
from tests.workspaces.two_machines import place, prefix
from workspaces.accounts.account import default_owner
from workspaces.clock import SystemClock
from workspaces.errors import Deleted, Forbidden, NotFound, Unavailable
from workspaces.history.history import History
from workspaces.home.layout import Home
from workspaces.home.trash import trash_entries
from workspaces.home.workspaces import Workspaces, private_to_user, shared_json
from workspaces.remote.bucket import SharedBucket
from workspaces.remote.registry import LiveEntry, Tombstone
from workspaces.storage.faulty import FaultyBlobs, StoreFault
from workspaces.storage.in_memory import MemoryRecords

__all__ = ["place", "prefix"]


@pytest.fixture
def records() -> MemoryRecords:
    return MemoryRecords()


@pytest.fixture
def a(tmp_path: Path, records: MemoryRecords, place: SharedBucket) -> Replica:
    return Replica(tmp_path / "a", records, place)


@pytest.fixture
def b(tmp_path: Path, a: Replica, records: MemoryRecords, place: SharedBucket) -> Replica:
    """Another machine with the same records, and so of the same account."""
    del a
    return Replica(tmp_path / "b", records, place)


def account_of(replica: Replica) -> str:
    return replica.workspaces._principal.account_id


def test_deleting_a_workspace_leaves_only_a_tombstone_in_the_bucket(
    a: Replica, prefix: MemoryPrefix, place: SharedBucket
) -> None:
    a.put("MEMORY.md", "one\n")
    a.put("notes/x.md", "two\n")
    a.sync.run()
    record = a.workspace.record
    trash = a.workspaces.delete("notes")
    assert (trash / "files/MEMORY.md").read_text() == "one\n"
    left = [s.name for s in prefix.store.scan() if not s.name.startswith(".probe")]
    assert left == [f".records/{account_of(a)}/workspaces/{record.id}.json"]
    seen = place.registry(a.workspaces._principal.account_id).read("workspace", record.id)
    assert seen is not None
    assert seen.entry == Tombstone(record.id, "notes", seen.entry.at, is_swept=True)  # type: ignore[union-attr]
    assert not a.root.exists()
    assert list((a.home.root / "sync").iterdir()) == []


def test_a_tombstone_is_written_before_any_file_of_the_workspace_is_removed(
    tmp_path: Path, prefix: MemoryPrefix, records: MemoryRecords
) -> None:
    """Whatever request fails: the record is here, or the tombstone is there."""
    for number in range(8):
        faults = iter([StoreFault.NONE] * number + [StoreFault.BEFORE] * 100)
        wire = MemoryPrefix(FaultyBlobs(prefix.store, faults, "wire"))
        calm = Replica(tmp_path / str(number), records, SharedBucket("memory:", prefix))
        calm.put("MEMORY.md", "one\n")
        calm.sync.run()
        record = calm.workspace.record
        shaky = Replica(tmp_path / str(number), records, SharedBucket("memory:", wire))
        try:
            shaky.workspaces.delete("notes")
        except Unavailable as error:
            assert "--storage local" in (error.remedy or "")
            assert calm.workspaces.get("notes").record == record
            assert calm.texts() == {"MEMORY.md": "one\n"}
        else:
            seen = calm.workspaces._registry().read("workspace", record.id)
            assert seen is not None
            assert isinstance(seen.entry, Tombstone)
        if calm.workspaces.list():
            calm.workspaces.delete("notes")


def test_another_machine_moves_a_deleted_workspace_with_unpushed_files_to_its_trash(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    for name in ("MEMORY.md", "same.md", "notes/x.md"):
        a.put(name, f"{name}\n")
    a.sync.run()
    b.sync.run()
    stale = b.sync
    record = b.workspace.record
    a.workspaces.delete("notes")
    b.put("MEMORY.md", "edited offline\n")
    b.put("new.md", "never pushed\n")
    asked = len(prefix.asked)
    with pytest.raises(Deleted):
        stale.run()
    with pytest.raises(Deleted):
        stale.plan()
    assert not any(one.startswith("PUT") for one in prefix.asked[asked:])
    # the records are shared, so the record went with a's deletion: what is left is the tree
    buried = b.workspaces.disposal.move_to_trash(record.id, why="elsewhere", name="notes")
    assert buried is not None
    assert (buried.name, buried.unpushed) == ("notes", ("MEMORY.md", "new.md"))
    assert (buried.files / "new.md").read_text() == "never pushed\n"
    assert (buried.files / "MEMORY.md").read_text() == "edited offline\n"
    assert not b.root.exists()
    assert b.workspaces.disposal.move_to_trash(record.id, why="elsewhere") is None


def test_the_trash_note_and_the_history_contain_unpushed_files(a: Replica) -> None:
    for name in ("MEMORY.md", "same.md"):
        a.put(name, f"{name}\n")
    a.sync.run()
    a.put("MEMORY.md", "edited offline\n")
    a.put("new.md", "never pushed\n")
    buried = a.workspaces.disposal.move_to_trash(a.workspace.record.id, why="elsewhere")
    assert buried is not None
    assert buried.unpushed == ("MEMORY.md", "new.md")
    assert list(trash_entries(a.home)) == [buried]
    with pytest.raises(NotFound):
        a.workspaces.get("notes")
    history = History(buried.place / "history.git", a.workspaces._clock)
    found = history.find(history.tip(), "new.md")  # type: ignore[arg-type]
    assert found is not None
    assert history.read(found) == b"never pushed\n"


@pytest.mark.parametrize("dies_at", ["record", "files", "history"])
def test_an_interrupted_move_to_the_trash_is_completed(
    a: Replica, dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a.put("MEMORY.md", "one\n")
    workspace_id, tree = a.workspace.record.id, a.root

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        if dies_at == "record":
            patched.setattr(a.workspaces._catalog, "delete", killed)
        else:
            renamed, after = Path.rename, {"files": 0, "history": 1}[dies_at]
            done: list[Path] = []

            def rename(self: Path, target: Path) -> Path:
                if self.parent.name in {"workspaces", "history"}:
                    if len(done) == after:
                        raise Killed
                    done.append(self)
                return renamed(self, target)

            patched.setattr(Path, "rename", rename)
        with pytest.raises(Killed):
            a.workspaces.disposal.move_to_trash(workspace_id, why="elsewhere")
    a.workspaces.disposal.move_to_trash(workspace_id, why="elsewhere")
    assert not tree.exists()
    assert not a.home.history(a.workspace.namespace).exists()
    files = [
        one.files / "MEMORY.md"
        for one in trash_entries(a.home)
        if (one.files / "MEMORY.md").exists()
    ]
    assert [file.read_text() for file in files] == ["one\n"]
    assert {one.unpushed for one in trash_entries(a.home)} == {("MEMORY.md",)}


def test_deleting_a_local_workspace_makes_no_request_to_the_bucket(
    a: Replica, prefix: MemoryPrefix, tmp_path: Path
) -> None:
    own = MemoryRecords()
    home = Home(tmp_path / "alone")
    home.prepare()
    clock = SystemClock()
    alone = Workspaces(
        default_owner(own, clock),
        home,
        own,
        clock,
        lambda _: {},
        place=SharedBucket("memory:", prefix),
    )
    alone.create("mine", config={"storage": {"provider": "local"}})
    prefix.asked.clear()
    alone.delete("mine")
    assert prefix.asked == []


def test_a_user_key_cannot_delete_a_workspace_or_write_a_tombstone(
    a: Replica, prefix: MemoryPrefix, records: MemoryRecords, place: SharedBucket
) -> None:
    principal = replace(a.workspaces._principal, may_configure=False)
    other = Workspaces(principal, a.home, records, a.workspaces._clock, lambda _: {}, place=place)
    prefix.asked.clear()
    with pytest.raises(Forbidden):
        other.delete("notes")
    assert prefix.asked == []


def test_the_storage_setting_of_a_workspace_is_not_shared_in_the_registry(a: Replica) -> None:
    record = a.workspaces.patch("notes", {"config": {"quota": {"files": 5}}})
    assert shared_json(record)["config"] == {"quota": {"files": 5}}
    a.workspaces.disposal.move_to_trash(record.id, why="elsewhere")
    adopted = a.workspaces.adopt(shared_json(record), instead_of=None)
    assert adopted == record


def test_deleting_a_private_workspace_writes_a_tombstone(a: Replica, place: SharedBucket) -> None:
    workspace_id = private_to_user(a.workspaces._principal.user_id)
    assert a.workspaces.private(workspace_id, create=True) is not None
    a.workspaces.delete(workspace_id)
    seen = place.registry(a.workspaces._principal.account_id).read("workspace", workspace_id)
    assert seen is not None
    assert not isinstance(seen.entry, LiveEntry)


def test_foreign_files_in_the_trash_are_not_listed_as_trash_entries(a: Replica) -> None:
    trash = a.home.trash_root
    (trash / "mine").mkdir()
    (trash / "mine" / "note.json").write_text('{"workspace": 7}')
    (trash / "list").mkdir()
    (trash / "list" / "note.json").write_text("[]")
    (trash / "loose.txt").write_text("x")
    assert list(trash_entries(a.home)) == []
