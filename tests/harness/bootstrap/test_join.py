"""Joining: a new home becomes another machine of an account in S3, or is refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.bootstrap.composition import wire
from harness.bootstrap.join import join
from harness.runtime.settings import read_settings
from tests.harness.laptops import LOCATION, Laptop
from tests.workspaces.replicas import MemoryPrefix
from workspaces.accounts.account import JOINING
from workspaces.clock import ManualClock
from workspaces.conditions import ANY
from workspaces.errors import NotFound, Refused, Unavailable
from workspaces.ids import new_id
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.faulty import FaultyBlobs, StoreFault
from workspaces.storage.records import Key, Put, RecordChange
from workspaces.storage.sqlite import SqliteRecords


@pytest.fixture
def prefix() -> MemoryPrefix:
    return MemoryPrefix()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def a(tmp_path: Path, prefix: MemoryPrefix, clock: ManualClock) -> Laptop:
    first = Laptop(tmp_path / "a", prefix, clock, joins=False)
    first.put("notes", "MEMORY.md", "one\n")
    first.sync()
    return first


def joined_home(home: Path, prefix: MemoryPrefix, account: str | None = None) -> str:
    return join(home, LOCATION, account=account, place=SharedBucket(LOCATION, prefix)).account.id


def test_a_joined_home_takes_the_ids_of_account_and_owner_and_gets_its_own_key(
    a: Laptop, tmp_path: Path, prefix: MemoryPrefix, clock: ManualClock
) -> None:
    a.harness.rooms.keys.create(label="of the first")
    b = Laptop(tmp_path / "b", prefix, clock)
    assert b.harness.rooms.principal == a.harness.rooms.principal
    assert b.harness.rooms.account.get() == a.harness.rooms.account.get()
    assert [key.label for key in b.harness.rooms.keys.list()] == ["joined"]
    assert b.joined is not None
    assert b.joined.secret
    assert b.joined.secret not in repr(b.joined)
    assert read_settings(tmp_path / "b", environment={}).s3 == LOCATION
    assert b.names() == set()
    assert [sandbox.name for sandbox in b.harness.rooms.sandboxes.list()] == ["default"]


def test_joining_again_changes_nothing(
    a: Laptop, tmp_path: Path, prefix: MemoryPrefix, clock: ManualClock
) -> None:
    b = Laptop(tmp_path / "b", prefix, clock)
    b.attach("notes")
    again = b.join()
    assert (again.account.id, again.secret) == (a.harness.rooms.principal.account_id, None)
    assert b.names() == {"notes"}
    slash = join(b.home, f"{LOCATION}/", place=b.place())
    assert slash.secret is None
    settings = a.home / "harness.yaml"
    settings.write_text(settings.read_text() + f"s3: {LOCATION}\n")
    assert a.join().secret is None, "the first machine is one of them already"


def test_joining_replaces_the_untouched_records_of_a_new_home(
    a: Laptop, tmp_path: Path, prefix: MemoryPrefix, clock: ManualClock
) -> None:
    born = Laptop(tmp_path / "b", MemoryPrefix(), clock, joins=False)
    assert born.names() == {"notes"}
    b = Laptop(tmp_path / "b", prefix, clock)
    assert b.harness.rooms.principal == a.harness.rooms.principal
    assert len(b.harness.house.accounts.list()) == 1
    b.attach("notes")
    assert b.texts("notes")["MEMORY.md"] == "one\n"
    a.follow()
    assert a.roster.look().doubts == []


@pytest.mark.parametrize(
    "touch",
    ["edited", "revised", "workspace", "agent", "sandbox", "user", "key", "talked", "account"],
)
def test_a_home_with_its_own_data_is_refused_with_a_remedy(
    a: Laptop, tmp_path: Path, prefix: MemoryPrefix, clock: ManualClock, touch: str
) -> None:
    other = Laptop(tmp_path / "b", MemoryPrefix(), clock, joins=False)
    rooms = other.harness.rooms
    match touch:
        case "edited":
            other.put("notes", "MEMORY.md", "mine\n")
        case "revised":
            other.workspaces.get("notes").write("x.md", b"x", by=rooms.principal.author("api"))
        case "workspace":
            other.workspaces.create("plans")
        case "agent":
            clock.advance(1)
            rooms.agents.patch("assistant", {"config": {"system": "x"}})
        case "sandbox":
            rooms.sandboxes.add({"name": "open"})
        case "user":
            rooms.users.add({"name": "Ann"})
        case "key":
            rooms.keys.create()
        case "talked":
            other.harness.run("hello", conversation="c1")
        case _:
            other.harness.house.accounts.add({"name": "second"})
    before = other.texts("notes")
    with pytest.raises(Refused) as refused:
        joined_home(tmp_path / "b", prefix)
    assert "--home" in (refused.value.remedy or "")
    other.again()
    assert other.texts("notes") == before
    assert not (tmp_path / "b" / "harness.yaml").read_text().count("s3://")


def test_joining_a_bucket_with_several_accounts_requires_a_name(
    a: Laptop, tmp_path: Path, prefix: MemoryPrefix, clock: ManualClock
) -> None:
    second = Laptop(tmp_path / "second", prefix, clock, joins=False)
    clock.advance(1)
    second.harness.rooms.account.patch({"name": "work"})
    second.sync()
    with pytest.raises(Refused) as refused:
        joined_home(tmp_path / "b", prefix)
    first_id, second_id = (one.harness.rooms.principal.account_id for one in (a, second))
    for told in ("default", "work", first_id, second_id, "--account"):
        assert told in (refused.value.remedy or "")
    with pytest.raises(NotFound) as missing:
        joined_home(tmp_path / "b", prefix, "elsewhere")
    assert "work" in (missing.value.remedy or "")
    assert joined_home(tmp_path / "b", prefix, "work") == second_id
    assert joined_home(tmp_path / "c", prefix, first_id) == first_id


def test_joining_an_empty_bucket_names_the_command_for_the_first_machine(
    tmp_path: Path, prefix: MemoryPrefix
) -> None:
    with pytest.raises(NotFound) as missing:
        joined_home(tmp_path / "b", prefix)
    assert "harness sync" in (missing.value.remedy or "")


def test_a_deleted_account_cannot_be_joined(
    a: Laptop, tmp_path: Path, prefix: MemoryPrefix
) -> None:
    a.harness.deletion.account()
    with pytest.raises(NotFound):
        joined_home(tmp_path / "b", prefix)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b" " * 10**6,
        b'{"format": 1, "record": {"id": "acct_000000000000000000000000"}}',
        b'{"format": 9}',
    ],
)
def test_a_malformed_account_entry_is_reported_and_never_joined(
    tmp_path: Path, prefix: MemoryPrefix, data: bytes
) -> None:
    account_id = new_id("acct")
    prefix.store.write(f".records/{account_id}/account.json", data, expect=ANY)
    prefix.store.write(".records/../account.json".replace("../", "x/"), data, expect=ANY)
    with pytest.raises(NotFound) as missing:
        joined_home(tmp_path / "b", prefix)
    assert account_id in (missing.value.remedy or "")
    with pytest.raises(NotFound):
        joined_home(tmp_path / "b", prefix, account_id)


def test_a_joined_home_cannot_join_a_second_bucket(
    a: Laptop, tmp_path: Path, prefix: MemoryPrefix, clock: ManualClock
) -> None:
    b = Laptop(tmp_path / "b", prefix, clock)
    with pytest.raises(Refused) as refused:
        join(b.home, "s3://other/prefix", place=SharedBucket("s3://other/prefix", prefix))
    assert "harness.yaml" in (refused.value.remedy or "")
    for wrong in ("https://bucket", "s3:bucket", "s3://UPPER", ""):
        with pytest.raises(Refused):
            join(tmp_path / "c", wrong)


def test_joining_creates_an_owner_missing_in_the_registry(
    a: Laptop, tmp_path: Path, prefix: MemoryPrefix, clock: ManualClock
) -> None:
    """The first machine died between telling of the account and of its owner."""
    owner = a.harness.rooms.principal.user_id
    account_id = a.harness.rooms.principal.account_id
    prefix.store.delete(f".records/{account_id}/users/{owner}.json", expect=ANY)
    b = Laptop(tmp_path / "b", prefix, clock)
    assert b.harness.rooms.principal.user_id == owner
    a.sync()
    b.sync()
    a.sync()
    assert a.harness.rooms.users.get(owner) == b.harness.rooms.users.get(owner)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("is_born", [False, True])
def test_a_join_that_crashed_at_any_write_can_be_resumed(
    a: Laptop,
    tmp_path: Path,
    prefix: MemoryPrefix,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    is_born: bool,
) -> None:
    write = SqliteRecords.write
    deaths = 0
    for number in range(60):
        home = tmp_path / f"b{number}"
        if is_born:
            Laptop(home, MemoryPrefix(), clock, joins=False).harness.close()
        left = [number]

        def dying(self: SqliteRecords, *changes: RecordChange, left: list[int] = left) -> object:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return write(self, *changes)

        with monkeypatch.context() as patched:
            patched.setattr(SqliteRecords, "write", dying)
            try:
                joined_home(home, prefix)
                break
            except Killed:
                deaths += 1
        interrupted(home, clock)
        b = Laptop(home, prefix, clock)
        assert b.harness.rooms.principal == a.harness.rooms.principal
        assert len(b.harness.house.accounts.list()) == 1
        assert len(b.harness.rooms.keys.list()) == 1
        assert b.attach("notes") == a.workspaces.get("notes").record.id
        b.harness.close()
    assert deaths > 8


def interrupted(home: Path, clock: ManualClock) -> None:
    """No other command works on half a home: it is refused, or everything is there."""
    settings = read_settings(home, environment={})
    house = wire(settings, clock=clock, place=SharedBucket(LOCATION, MemoryPrefix()))
    note = house.records.get(JOINING)
    if note is not None and not house.accounts.has_default():
        with pytest.raises(Refused) as refused:
            house.owner()
        assert f"harness join {LOCATION}" in (refused.value.remedy or "")
    house.close()


def test_an_unfinished_join_of_another_bucket_must_be_finished_first(
    a: Laptop, tmp_path: Path, prefix: MemoryPrefix, clock: ManualClock
) -> None:
    house = wire(read_settings(tmp_path / "b", environment={}), clock=clock)
    begun = {"location": "s3://other/prefix", "accountId": new_id("acct")}
    house.records.write(Put(Key("accounts", "joining"), begun))
    house.close()
    with pytest.raises(Refused) as refused:
        joined_home(tmp_path / "b", prefix)
    assert "is already joining" in str(refused.value)


def test_a_join_that_failed_on_an_unreachable_bucket_can_be_repeated(
    a: Laptop, tmp_path: Path, prefix: MemoryPrefix
) -> None:
    for number in range(30):
        home = tmp_path / f"b{number}"
        faults = iter([StoreFault.NONE] * number + [StoreFault.BEFORE] * 1000)
        cut = MemoryPrefix(FaultyBlobs(prefix.store, faults, "cut"))
        try:
            joined_home(home, cut)
            break
        except Unavailable:
            assert joined_home(home, prefix) == a.harness.rooms.principal.account_id
            note = f"machines/{read_settings(home, environment={}).home.machine}.json"
            prefix.store.delete(  # the next attempt finds the bucket as it was
                f".records/{a.harness.rooms.principal.account_id}/{note}", expect=ANY
            )
    else:
        pytest.fail("it asks more than 30 times")
