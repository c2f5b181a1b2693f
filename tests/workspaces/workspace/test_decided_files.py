"""The door for writes of an API: two servers that share records, each with a home of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workspaces.conftest import AGENT, CALLER
from tests.workspaces.replicas import MemoryPrefix, Replica
from tests.workspaces.two_machines import MEMORY, a, b, machine, place, prefix
from workspaces.errors import Conflict, MassDeletion, NotFound, Refused, Undecided
from workspaces.ids import Version, version_of
from workspaces.paths import WorkspacePath
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.faulty import FaultyBlobs, StoreFault
from workspaces.storage.in_memory import MemoryBlobs, MemoryRecords
from workspaces.workspace.decided_files import VersionCheck
from workspaces.workspace.workspace import Workspace

__all__ = ["a", "b", "machine", "place", "prefix"]


def only_if(expected: bytes | None) -> VersionCheck:
    version = None if expected is None else version_of(expected)

    def check(actual: Version | None) -> None:
        if actual != version:
            raise Conflict("file", MEMORY, expected=version, actual=actual)

    return check


def read(machine: Replica, path: str = MEMORY) -> bytes:
    return machine.workspace.decided.read(path).data


def test_a_write_at_one_server_is_read_at_the_other_at_once(a: Replica, b: Replica) -> None:
    a.workspace.decided.write(MEMORY, "one\n", by=CALLER)
    assert read(b) == b"one\n"
    assert b.texts() == {}, "the answer did not wait for the file here"
    b.workspace.decided.write(MEMORY, "two\n", by=AGENT)
    assert read(a) == b"two\n"
    b.workspace.decided.delete(MEMORY, by=AGENT)
    with pytest.raises(NotFound):
        read(a)


def test_an_unconditional_write_replaces_what_the_other_server_wrote_last(
    a: Replica, b: Replica
) -> None:
    a.workspace.decided.write(MEMORY, "one\n", by=CALLER)
    written = b.workspace.decided.write(MEMORY, "two\n", by=CALLER)
    assert (written.durable.files, written.created) == ("s3", False)
    assert b.workspace.find_version(MEMORY, version_of(b"one\n")) == b"one\n"
    a.sync.run()
    b.sync.run()
    assert a.texts() == b.texts() == {MEMORY: "two\n"}


def test_a_stale_condition_is_refused_although_this_server_has_not_heard_of_the_write(
    a: Replica, b: Replica
) -> None:
    a.workspace.decided.write(MEMORY, "one\n", by=CALLER)
    b.sync.run()
    a.workspace.decided.write(MEMORY, "two\n", by=CALLER)
    with pytest.raises(Conflict) as told:
        b.workspace.decided.write(MEMORY, "stale\n", by=CALLER, check=only_if(b"one\n"))
    assert told.value.actual == version_of(b"two\n")
    b.workspace.decided.write(MEMORY, "three\n", by=CALLER, check=only_if(b"two\n"))
    assert read(a) == b"three\n"


def test_a_condition_that_only_the_store_can_confirm_is_asked_before_it_is_refused(
    a: Replica, b: Replica
) -> None:
    a.workspace.decided.write(MEMORY, "one\n", by=CALLER)
    b.sync.run()
    a.workspace.decided.delete(MEMORY, by=CALLER)
    written = b.workspace.decided.write(MEMORY, "new\n", by=CALLER, check=only_if(None))
    assert written.created
    assert read(a) == b"new\n"


def test_the_same_bytes_are_written_again_if_the_store_has_others(a: Replica, b: Replica) -> None:
    a.workspace.decided.write(MEMORY, "one\n", by=CALLER)
    b.sync.run()
    a.workspace.decided.write(MEMORY, "two\n", by=CALLER)
    b.workspace.decided.write(MEMORY, "one\n", by=CALLER)
    assert read(a) == read(b) == b"one\n"


def test_requests_of_a_read_and_of_a_write(a: Replica, prefix: MemoryPrefix) -> None:
    a.workspace.decided.write(MEMORY, "one\n", by=CALLER)
    prefix.asked.clear()
    read(a)
    assert prefix.asked == [f"GET {MEMORY}"]
    prefix.asked.clear()
    a.workspace.decided.write(MEMORY, "two\n", by=CALLER)
    a.workspace.decided.write(MEMORY, "three\n", by=CALLER, check=only_if(b"two\n"))
    assert prefix.asked == [f"PUT {MEMORY}"] * 2


def test_an_edit_by_hand_is_sent_before_it_is_read_and_before_a_condition_is_checked(
    a: Replica, b: Replica
) -> None:
    a.workspace.decided.write(MEMORY, "one\n", by=CALLER)
    a.put(MEMORY, "one\nby hand\n")
    assert read(a) == read(b) == b"one\nby hand\n"
    a.put(MEMORY, "one\nby hand\nagain\n")
    with pytest.raises(Conflict):
        a.workspace.decided.write(MEMORY, "x\n", by=CALLER, check=only_if(b"one\nby hand\n"))
    assert read(b) == b"one\nby hand\nagain\n"


def test_the_object_is_read_while_the_lock_is_held_by_somebody_else(a: Replica, b: Replica) -> None:
    a.workspace.decided.write(MEMORY, "one\n", by=CALLER)
    with a.workspace.command(AGENT):
        a.put(MEMORY, "half done\n")
        assert read(a) == read(b) == b"one\n"
    assert read(a) == read(b) == b"half done\n"


def test_edits_on_both_sides_are_merged_before_a_write_is_decided(a: Replica, b: Replica) -> None:
    a.workspace.decided.write(MEMORY, "1\n2\n3\n", by=CALLER)
    b.sync.run()
    a.workspace.decided.write(MEMORY, "one\n2\n3\n", by=CALLER)
    b.put(MEMORY, "1\n2\nthree\n")
    b.workspace.decided.edit(MEMORY, lambda now: (now or b"") + b"told\n", by=CALLER)
    assert read(a) == read(b) == b"one\n2\nthree\ntold\n"


def test_an_edit_sees_the_newest_content_and_is_repeated_until_the_store_accepts(
    a: Replica, b: Replica
) -> None:
    a.workspace.decided.write(MEMORY, "1\n", by=CALLER)
    b.sync.run()
    a.workspace.decided.write(MEMORY, "2\n", by=CALLER)
    seen: list[bytes | None] = []

    def more(now: bytes | None) -> bytes:
        seen.append(now)
        return (now or b"") + b"more\n"

    b.workspace.decided.edit(MEMORY, more, by=CALLER)
    assert seen == [b"1\n", b"2\n"]
    assert read(a) == b"2\nmore\n"


def test_what_an_edit_raises_on_an_old_content_does_not_count(a: Replica, b: Replica) -> None:
    a.workspace.decided.write(MEMORY, "old\n", by=CALLER)
    b.sync.run()
    a.workspace.decided.write(MEMORY, "new\n", by=CALLER)

    def picky(now: bytes | None) -> bytes:
        if now != b"new\n":
            raise Refused("text", now, "is not what was expected")
        return b"changed\n"

    b.workspace.decided.edit(MEMORY, picky, by=CALLER)
    assert read(a) == b"changed\n"
    with pytest.raises(Refused):
        b.workspace.decided.edit(MEMORY, picky, by=CALLER)


def test_a_file_deleted_by_hand_stays_in_the_register_until_the_sync(a: Replica) -> None:
    for name in ("1.md", "2.md", MEMORY):
        a.workspace.decided.write(name, "one\n", by=CALLER)
    (a.root / "1.md").unlink()
    assert read(a, "1.md") == b"one\n"
    with pytest.raises(Conflict):
        a.workspace.decided.write("1.md", "x\n", by=CALLER, check=only_if(None))
    a.workspace.decided.write("1.md", "one\n", by=CALLER)
    assert a.texts()["1.md"] == "one\n"
    (a.root / "1.md").unlink()
    a.sync.run()
    with pytest.raises(NotFound):
        read(a, "1.md")


def test_what_lies_in_an_unknown_directory_is_not_sent(
    tmp_path: Path, a: Replica, b: Replica, machine: Callable[[str], Replica]
) -> None:
    for name in ("1.md", "2.md", MEMORY):
        a.workspace.decided.write(name, "one\n", by=CALLER)
    a.sync.run()
    a.root.rename(tmp_path / "away")
    a.root.mkdir()
    a.put(MEMORY, "from an old copy\n")
    again = machine("a")
    assert read(again) == read(b) == b"one\n"
    with pytest.raises(MassDeletion):
        again.workspace.decided.write(MEMORY, "x\n", by=CALLER)
    assert read(b) == b"one\n"


def test_a_list_is_one_listing_and_sends_edits_by_hand_first(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    a.workspace.decided.write(MEMORY, "one\n", by=CALLER)
    b.put("2.md", "by hand\n")
    prefix.asked.clear()
    listed = {one.path: (one.size, one.version) for one in b.workspace.decided.list()}
    assert listed == {"2.md": (8, version_of(b"by hand\n")), MEMORY: (4, None)}
    assert prefix.asked == ["PUT 2.md", "LIST"]
    b.sync.run()
    assert {one.version for one in b.workspace.decided.list() if one.path == MEMORY} == {
        version_of(b"one\n")
    }


class Weather:
    """A store that does not answer while `is_down`."""

    def __init__(self) -> None:
        self.is_down = False
        self.faults: list[StoreFault] = []
        plan = iter(self._fault, 0)
        self.bucket = SharedBucket("memory:", MemoryPrefix(FaultyBlobs(MemoryBlobs(), plan)))

    def _fault(self) -> StoreFault:
        if self.faults:
            return self.faults.pop(0)
        return StoreFault.BEFORE if self.is_down else StoreFault.NONE


@pytest.fixture
def weather() -> Weather:
    return Weather()


@pytest.fixture
def here(tmp_path: Path, weather: Weather) -> Workspace:
    return Replica(tmp_path / "here", MemoryRecords(), weather.bucket).workspace


def test_without_the_store_nothing_is_written_unless_the_caller_takes_a_write_that_waits(
    here: Workspace, weather: Weather
) -> None:
    here.decided.write(MEMORY, "one\n", by=CALLER)
    weather.is_down = True
    with pytest.raises(Undecided):
        here.decided.write(MEMORY, "two\n", by=CALLER)
    assert here.read(MEMORY).data == b"one\n"
    with pytest.raises(Undecided):
        here.decided.write(MEMORY, "two\n", by=CALLER, check=only_if(b"one\n"), may_wait=True)
    waits = here.decided.write(MEMORY, "two\n", by=CALLER, may_wait=True)
    assert (waits.is_undecided, waits.durable.files) == (True, "here")
    weather.is_down = False
    assert here.decided.read(MEMORY).data == b"two\n"


def test_a_write_whose_answers_are_lost_is_undecided_and_found_at_the_next_read(
    here: Workspace, weather: Weather
) -> None:
    here.decided.write(MEMORY, "one\n", by=CALLER)
    weather.faults = [StoreFault.AFTER, StoreFault.BEFORE]
    with pytest.raises(Undecided):
        here.decided.write(MEMORY, "two\n", by=CALLER)
    assert here.read(MEMORY).data == b"one\n"
    assert here.decided.read(MEMORY).data == b"two\n"
    here.decided.write(MEMORY, "three\n", by=CALLER, check=only_if(b"two\n"))
    assert here.read(WorkspacePath(MEMORY)).data == b"three\n"


def test_with_own_records_only_a_condition_asks_the_store(a: Replica, prefix: MemoryPrefix) -> None:
    a.workspace.share(a.sync)  # as `Workspaces` does where records are not shared
    a.sync.run()
    prefix.asked.clear()
    written = a.workspace.decided.write(MEMORY, "one\n", by=CALLER)
    assert (written.durable.files, prefix.asked) == ("here", [])
    assert read(a) == b"one\n"
    a.workspace.decided.write(MEMORY, "two\n", by=CALLER, check=only_if(b"one\n"))
    assert prefix.asked == [f"PUT {MEMORY}"]
