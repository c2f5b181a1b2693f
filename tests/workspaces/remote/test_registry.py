"""The registry of an account: entries and tombstones in the bucket, and which bytes are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.workspaces.replicas import MemoryPrefix
from tests.workspaces.two_machines import place, prefix
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict, OverLimit, Refused
from workspaces.ids import AccountId, new_id
from workspaces.remote.bucket import SharedBucket
from workspaces.remote.registry import (
    ENTRIES_MAX,
    ENTRY_BYTES_MAX,
    InvalidEntry,
    LiveEntry,
    Registry,
    RegistryKind,
    StoredEntry,
    Tombstone,
)
from workspaces.timestamp import Stamp

__all__ = ["place", "prefix"]

NOW = Stamp("2026-11-18T14:03:18.875130Z")
ACCOUNT = AccountId("acct_" + 24 * "0")


@pytest.fixture
def roster(place: SharedBucket) -> Registry:
    return place.registry(ACCOUNT)


def record(entry_id: str, **more: Any) -> dict[str, Any]:
    return {"id": entry_id, "name": "notes", "createdAt": NOW, "updatedAt": NOW, **more}


def put(prefix: MemoryPrefix, name: str, data: object, account_id: str = ACCOUNT) -> None:
    """As somebody with access to the bucket puts it there."""
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    prefix.store.write(f".records/{account_id}/{name}", raw, expect=ANY)


@pytest.mark.parametrize(
    ("kind", "entry_id", "name"),
    [
        ("account", ACCOUNT, "account.json"),
        ("user", "usr_" + 24 * "0", "users/usr_000000000000000000000000.json"),
        ("workspace", "ws_" + 24 * "a", "workspaces/ws_aaaaaaaaaaaaaaaaaaaaaaaa.json"),
        (
            "workspace",
            f"user:usr_{24 * '0'}:agent:agent_{24 * '1'}",
            f"workspaces/user.usr_{24 * '0'}.agent.agent_{24 * '1'}.json",
        ),
        ("agent", "agent_" + 24 * "f", "agents/agent_ffffffffffffffffffffffff.json"),
    ],
)
def test_a_registry_entry_is_read_back_as_written_from_its_documented_path(
    roster: Registry, prefix: MemoryPrefix, kind: RegistryKind, entry_id: str, name: str
) -> None:
    for entry in (
        LiveEntry(entry_id, record(entry_id, description="für später"), epoch=3),
        Tombstone(entry_id, "notes", NOW, epoch=3, is_swept=True),
    ):
        token = roster.write(kind, entry, expect=ANY)
        assert roster.read(kind, entry_id) == StoredEntry(entry, token)
        assert roster.look().tokens == {(kind, entry_id): token}
    assert [stat.name for stat in prefix.store.scan()] == [f".records/{ACCOUNT}/{name}"]


def test_a_registry_write_with_a_stale_token_is_a_conflict(
    roster: Registry,
) -> None:
    workspace_id = new_id("ws")
    first = roster.write("workspace", LiveEntry(workspace_id, record(workspace_id)), expect=ABSENT)
    other = LiveEntry(workspace_id, record(workspace_id, name="other"))
    with pytest.raises(Conflict):
        roster.write("workspace", other, expect=ABSENT)
    roster.write("workspace", other, expect=first)
    with pytest.raises(Conflict):
        roster.write("workspace", other, expect=first)


def test_a_tombstone_replaces_a_registry_entry_and_is_written_only_once(roster: Registry) -> None:
    workspace_id = new_id("ws")
    roster.write("workspace", LiveEntry(workspace_id, record(workspace_id), epoch=2), expect=ABSENT)
    seen = roster.write_tombstone("workspace", workspace_id, "notes", NOW)
    assert seen.entry == Tombstone(workspace_id, "notes", NOW, epoch=2)
    later = Stamp("2027-01-01T00:00:00.000000Z")
    assert roster.write_tombstone("workspace", workspace_id, "renamed", later) == seen
    never_told = new_id("ws")
    assert roster.write_tombstone("workspace", never_told, "x", NOW).entry == Tombstone(
        never_told, "x", NOW
    )


WS = "ws_" + 24 * "a"
GOOD = {"format": 1, "epoch": 0, "record": record(WS)}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"format": 1, "epoch": NaN, "record": {}}',
        b'{"format": 1, "record": {"id": "\\ud800"}}',
        [],
        None,
        {},
        {**GOOD, "format": 2},
        {**GOOD, "format": "1"},
        {**GOOD, "epoch": -1},
        {**GOOD, "epoch": 1.5},
        {**GOOD, "epoch": True},
        {**GOOD, "epoch": 2**40},
        {**GOOD, "key": "wh_secret"},
        {**GOOD, "record": []},
        {**GOOD, "record": {}},
        {**GOOD, "record": record("ws_" + 24 * "b")},
        {**GOOD, "record": record("../../account")},
        {**GOOD, "record": record(WS, updatedAt="tomorrow")},
        {**GOOD, "record": record(WS, updatedAt="9999-12-31T23:59:59.999999Z")},
        {**GOOD, "record": record(WS, createdAt=20261118)},
        {**GOOD, "record": record(WS, createdAt="2026-11-18")},
        {**GOOD, "deleted": {"name": "notes", "at": NOW}},
        {"format": 1, "deleted": {"name": "notes", "at": "once"}},
        {"format": 1, "deleted": {"name": 300 * "x", "at": NOW}},
        {"format": 1, "deleted": True},
    ],
)
def test_an_invalid_registry_entry_is_refused(
    roster: Registry, prefix: MemoryPrefix, data: object
) -> None:
    put(prefix, f"workspaces/{WS}.json", data)
    with pytest.raises(Refused):
        roster.read("workspace", WS)
    found = roster.read_all([("workspace", WS), ("workspace", new_id("ws"))])
    assert isinstance(found["workspace", WS], InvalidEntry)


def test_an_oversized_registry_entry_is_not_read(roster: Registry, prefix: MemoryPrefix) -> None:
    put(prefix, f"workspaces/{WS}.json", b" " * (ENTRY_BYTES_MAX + 1))
    prefix.asked.clear()
    listing = roster.look()
    assert listing.tokens == {}
    assert [doubt.name for doubt in listing.doubts] == [f"workspaces/{WS}.json"]
    assert prefix.asked == ["LIST"]
    with pytest.raises(OverLimit):
        roster.read("workspace", WS)
    with pytest.raises(OverLimit):
        large = LiveEntry(WS, record(WS, description="x" * ENTRY_BYTES_MAX))
        roster.write("workspace", large, expect=ABSENT)


@pytest.mark.parametrize(
    "name",
    [
        "workspaces/x.json",
        "workspaces/ws_AAAAAAAAAAAAAAAAAAAAAAAA.json",
        f"workspaces/deeper/{WS}.json",
        f"agents/{WS}.json",
        f"workspaces/{WS}.txt",
        f"workspaces/{WS}:x.json",
        "workspaces/user..json",
        "elsewhere.json",
    ],
)
def test_an_unknown_name_in_the_registry_is_listed_and_not_read(
    roster: Registry, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from workspaces.storage.blobs import Stat, Token

    hostile = Registry(ACCOUNT, MemoryPrefix(), lambda: [Stat(name, 10, Token("t"))])
    assert hostile.look().tokens == {}
    assert [doubt.name for doubt in hostile.look().doubts] == [name]


def test_registry_entries_over_the_limit_are_listed_as_doubtful() -> None:
    from workspaces.storage.blobs import Stat, Token

    stats = [Stat(f"agents/agent_{n:024x}.json", 10, Token("t")) for n in range(ENTRIES_MAX + 2)]
    listing = Registry(ACCOUNT, MemoryPrefix(), lambda: stats).look()
    assert (len(listing.tokens), len(listing.doubts)) == (ENTRIES_MAX, 2)


def test_a_bucket_lists_only_accounts_with_a_valid_account_id(
    place: SharedBucket, roster: Registry, prefix: MemoryPrefix
) -> None:
    roster.write("account", LiveEntry(ACCOUNT, record(ACCOUNT)), expect=ABSENT)
    roster.write("user", LiveEntry(f"usr_{24 * '0'}", record(f"usr_{24 * '0'}")), expect=ABSENT)
    put(prefix, "account.json", b"?", "evil")
    found, doubts = place.accounts()
    assert found == [ACCOUNT]
    assert [doubt.name for doubt in doubts] == ["evil/account.json"]


def test_sweeping_a_workspace_from_the_bucket_removes_no_other_workspace(
    place: SharedBucket, prefix: MemoryPrefix
) -> None:
    from workspaces.ids import namespace

    mine, other = namespace(ACCOUNT, WS), namespace(ACCOUNT, "ws_other")
    for name in (f"{mine}/a.md", f"{mine}/n/b.md", f".history/{mine}/head.json", f"{other}/a.md"):
        prefix.store.write(name, b"x", expect=ANY)
    place.sweep(mine)
    assert [stat.name for stat in prefix.store.scan()] == [f"{other}/a.md"]
    place.sweep(mine)
