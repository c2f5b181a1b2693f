"""Registry sync: the records of an account become the same on all its machines."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.presentation.status import status
from harness.sync.registry_sync import SyncResult
from tests.harness.laptops import Laptop
from tests.workspaces.replicas import MemoryPrefix
from workspaces.clock import ManualClock
from workspaces.conditions import ANY
from workspaces.errors import Deleted, NotFound, Refused, Unavailable
from workspaces.home.trash import trash_entries
from workspaces.home.workspaces import private_to_agent, private_to_user
from workspaces.ids import new_id
from workspaces.paths import WorkspacePath
from workspaces.remote.registry import LiveEntry, Tombstone
from workspaces.storage.faulty import FaultyBlobs, StoreFault


@pytest.fixture
def prefix() -> MemoryPrefix:
    return MemoryPrefix()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def machine(tmp_path: Path, prefix: MemoryPrefix, clock: ManualClock) -> Callable[[str], Laptop]:
    return lambda name: Laptop(tmp_path / name, prefix, clock)


@pytest.fixture
def a(tmp_path: Path, prefix: MemoryPrefix, clock: ManualClock) -> Laptop:
    """The first machine, with the workspace `notes` and the agent `assistant`."""
    first = Laptop(tmp_path / "a", prefix, clock, joins=False)
    first.put("notes", "MEMORY.md", "one\n")
    first.sync()
    return first


@pytest.fixture
def b(a: Laptop, machine: Callable[[str], Laptop]) -> Laptop:
    """The second one, with `notes` attached."""
    del a
    second = machine("b")
    second.attach("notes")
    return second


def told_by(followed: SyncResult) -> str:
    return "\n".join(f"{one.name}: {one.reason}" for one in followed.troubles)


def put_entry(laptop: Laptop, name: str, document: object) -> None:
    """As somebody with access to the bucket puts it there."""
    account_id = laptop.harness.rooms.principal.account_id
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    laptop.prefix.store.write(f".records/{account_id}/{name}", data, expect=ANY)


# What follows.


def test_registry_sync_copies_a_changed_name_configuration_and_agent(a: Laptop, b: Laptop) -> None:
    a.workspaces.patch("notes", {"name": "plans", "config": {"quota": {"files": 50}}})
    a.harness.agents.patch("assistant", {"config": {"system": "You are brief."}})
    assert a.follow().published == ["workspace plans", "agent assistant"]
    assert b.sync().applied == ["workspace plans", "agent assistant"]
    record = b.workspaces.get("plans").record
    assert record == a.workspaces.get("plans").record
    assert b.workspaces.get("plans").record.config.quota.files == 50
    assert b.harness.agents.get("assistant").config.system == "You are brief."
    b.put("plans", "MEMORY.md", "two\n")
    b.sync()
    a.sync()
    assert a.texts("plans")["MEMORY.md"] == "two\n"


def test_registry_sync_without_changes_costs_a_single_listing(
    a: Laptop, b: Laptop, prefix: MemoryPrefix
) -> None:
    for laptop in (a, b, a):
        laptop.follow()
    prefix.asked.clear()
    followed = a.follow()
    assert (followed.published, followed.applied, followed.troubles) == ([], [], [])
    assert prefix.asked == ["LIST"]


def test_changes_of_two_machines_to_different_fields_of_a_record_are_merged(
    a: Laptop, b: Laptop
) -> None:
    a.workspaces.patch("notes", {"name": "plans"})
    b.workspaces.patch("notes", {"description": "What we know."})
    a.follow()
    assert b.follow().clashes == []
    a.follow()
    for laptop in (a, b):
        record = laptop.workspaces.get("plans").record
        assert (record.name, record.description) == ("plans", "What we know.")
    assert a.workspaces.get("plans").record == b.workspaces.get("plans").record


@pytest.mark.parametrize("first_to_sync", ["a", "b"])
def test_the_later_change_to_a_field_wins_and_the_clash_is_reported(
    a: Laptop, b: Laptop, clock: ManualClock, first_to_sync: str
) -> None:
    a.workspaces.patch("notes", {"name": "earlier"})
    clock.advance(5)
    b.workspaces.patch("notes", {"name": "later"})
    one, other = (a, b) if first_to_sync == "a" else (b, a)
    one.follow()
    clashes = other.follow().clashes
    one.follow()
    assert a.names() == b.names() == {"later"}
    assert clashes == (["workspace later: name"] if first_to_sync == "b" else [])


def test_an_agent_appears_on_a_machine_with_the_first_attached_workspace_of_its_mounts(
    a: Laptop, machine: Callable[[str], Laptop]
) -> None:
    a.workspaces.create("plans")
    a.harness.agents.create("planner", workspaces=["plans"])
    a.harness.agents.create("free")
    a.follow()
    b = machine("b")
    assert [agent.name for agent in b.harness.agents.list()] == ["free"]
    b.attach("plans")
    assert [agent.name for agent in b.harness.agents.list()] == ["free", "planner"]
    both = a.harness.agents.patch(
        "planner", {"config": {"workspaces": a.harness.agents.mounts(["plans", "notes"])}}
    )
    a.follow()
    b.follow()
    agent = b.harness.agents.get("planner")
    assert agent.config.workspaces == both.config.workspaces
    assert [mount.name for mount in b.harness.agents.bindings(agent)] == ["plans"]
    b.harness.agents.patch("planner", {"config": {"system": "x"}})


def test_private_workspaces_are_synced_with_their_user_or_agent(a: Laptop, b: Laptop) -> None:
    owner, agent = a.harness.rooms.principal.user_id, a.harness.agents.get("assistant").id
    for workspace_id in (private_to_user(owner), private_to_agent(agent)):
        assert a.workspaces.private(workspace_id, create=True) is not None
        a.put(workspace_id, "MEMORY.md", f"{workspace_id}\n")
    a.sync()
    b.sync()
    for workspace_id in (private_to_user(owner), private_to_agent(agent)):
        assert b.texts(workspace_id) == {"MEMORY.md": f"{workspace_id}\n"}


def test_users_are_synced_with_their_external_ids(a: Laptop, b: Laptop) -> None:
    user = a.harness.rooms.users.add({"externalId": "ann@example.com", "name": "Ann"})
    a.follow()
    b.follow()
    assert b.harness.rooms.users.get("ann@example.com") == user
    a.harness.deletion.user(user.id)
    a.follow()
    b.follow()
    with pytest.raises(NotFound):
        b.harness.rooms.users.get(user.id)


# Sandboxes stay where they are.


def test_a_sandbox_is_synced_by_name_and_created_read_only_without_network(
    a: Laptop, b: Laptop
) -> None:
    a.harness.rooms.sandboxes.add({"name": "open", "config": {"network": "host"}})
    a.harness.agents.create("networker", workspaces=["notes"], sandbox="open")
    a.sync()
    b.sync()
    assert (
        a.harness.rooms.sandboxes.get("default").id != b.harness.rooms.sandboxes.get("default").id
    )
    assistant = b.harness.agents.get("assistant")
    assert assistant.config.sandbox == b.harness.rooms.sandboxes.get("default").id
    made = b.harness.rooms.sandboxes.get("open")
    assert (made.config.mode, made.config.network) == ("ro", "none")
    assert b.harness.agents.get("networker").config.sandbox == made.id
    (mount,) = b.harness.agents.bindings(b.harness.agents.get("networker"))
    assert not mount.is_writable
    b.harness.rooms.sandboxes.patch("open", {"config": {"mode": "rw"}})
    b.follow()
    a.follow()
    assert a.harness.rooms.sandboxes.get("open").config.network == "host"
    entry = a.entry("agent", a.harness.agents.get("networker").id).entry
    assert isinstance(entry, LiveEntry)
    assert entry.record["config"]["sandbox"] == "open"


def test_a_registry_entry_holds_no_secret_and_no_sandbox_network(
    a: Laptop, prefix: MemoryPrefix
) -> None:
    _, secret = a.harness.rooms.keys.create(label="mine")
    a.follow()
    entries = [prefix.store.read(s.name).data for s in prefix.store.scan(".records/")]
    assert entries
    for word in (secret.encode(), b"network", b"key_", b"sb_"):
        assert not any(word in data for data in entries), word


# Deletions.


def test_a_workspace_deleted_elsewhere_goes_to_the_trash_with_its_unpushed_changes(
    a: Laptop, b: Laptop, prefix: MemoryPrefix
) -> None:
    b.put("notes", "MEMORY.md", "edited offline\n")
    b.put("notes", "new.md", "never pushed\n")
    a.harness.deletion.workspace("notes", force=True)
    followed = b.sync()
    assert b.names() == set()
    (buried,) = followed.trashed
    assert (buried.name, buried.unpushed) == ("notes", ("MEMORY.md", "new.md"))
    assert (buried.files / "MEMORY.md").read_text() == "edited offline\n"
    assert (buried.files / "new.md").read_text() == "never pushed\n"
    for laptop in (a, b, a):
        laptop.again()
        laptop.sync()
    assert a.names() == b.names() == set()
    left = [s.name for s in prefix.store.scan() if not s.name.startswith((".records/", ".probe"))]
    assert left == []


def test_files_pushed_after_a_deletion_are_moved_from_s3_to_the_local_trash(
    a: Laptop, b: Laptop, prefix: MemoryPrefix
) -> None:
    a.harness.deletion.workspace("notes", force=True)
    b.put("notes", "late.md", "pushed too late\n")
    b.workspaces.sync("notes").push([WorkspacePath("late.md")])
    assert [s.name for s in prefix.store.scan("fs-")] != []
    (buried,) = b.follow().trashed
    assert (buried.files / "late.md").read_text() == "pushed too late\n"
    assert [s.name for s in (*prefix.store.scan("fs-"), *prefix.store.scan(".history/"))] == []


def test_status_lists_unpushed_changes_in_the_trash_until_the_trash_is_emptied(
    a: Laptop, b: Laptop
) -> None:
    def said() -> str:
        lines = [line for section in status(b.harness) for line in section.lines]
        return "\n".join(f"{one.state} {one.told} {one.remedy}" for one in lines)

    b.put("notes", "new.md", "never pushed\n")
    a.harness.deletion.workspace("notes", force=True)
    b.sync()
    (buried,) = trash_entries(b.home_paths())
    assert "new.md" in said()
    assert str(buried.place) in said()
    shutil.rmtree(buried.place)
    assert "new.md" not in said()


def test_a_new_workspace_under_the_name_of_a_deleted_workspace_has_another_id(
    a: Laptop, b: Laptop
) -> None:
    old = a.workspaces.get("notes").record.id
    b.put("notes", "old.md", "of the old one\n")
    a.harness.deletion.workspace("notes", force=True)
    new = a.workspaces.create("notes").record.id
    a.put("notes", "MEMORY.md", "anew\n")
    a.sync()
    assert new != old
    b.sync()
    assert b.names() == set()
    assert b.attach("notes") == new
    assert b.texts("notes") == a.texts("notes")
    assert "old.md" not in b.texts("notes")
    assert (trash_entries(b.home_paths()).__next__().files / "old.md").exists()


def test_a_deleted_agent_is_deleted_elsewhere_with_its_private_workspaces(
    a: Laptop, b: Laptop
) -> None:
    agent = b.harness.agents.get("assistant")
    mine = private_to_agent(agent.id)
    assert a.workspaces.private(mine, create=True) is not None
    a.put(mine, "MEMORY.md", "private\n")
    a.sync()
    b.sync()
    b.harness.run("Remember that tea is green.", agent="assistant", conversation="c1")
    b.put(mine, "offline.md", "never pushed\n")
    a.harness.deletion.agent("assistant")
    a.follow()
    followed = b.sync()
    with pytest.raises(NotFound):
        b.harness.agents.get("assistant")
    assert b.harness.conversations.list() == []
    assert [(one.id, one.unpushed) for one in followed.trashed] == [(mine, ("offline.md",))]
    assert a.follow().troubles == b.follow().troubles == []


def test_a_deletion_is_refused_while_the_registry_is_unreachable(
    tmp_path: Path, a: Laptop, prefix: MemoryPrefix, clock: ManualClock
) -> None:
    mine = private_to_agent(a.harness.agents.get("assistant").id)
    assert a.workspaces.private(mine, create=True) is not None
    a.harness.run("Remember that tea is green.", conversation="c1")
    a.sync()
    cut = MemoryPrefix(FaultyBlobs(prefix.store, iter([StoreFault.BEFORE] * 10_000), "cut"))
    offline = Laptop(tmp_path / "a", cut, clock, joins=False)
    for delete in (
        lambda: offline.harness.deletion.workspace("notes", force=True),
        lambda: offline.harness.deletion.agent("assistant"),
        offline.harness.deletion.account,
    ):
        with pytest.raises(Unavailable):
            delete()
    assert offline.names() == {"notes"}
    assert offline.harness.agents.get("assistant")
    assert len(offline.harness.conversations.list()) == 1
    a.again()
    a.sync()
    assert "one\n" in a.texts("notes")["MEMORY.md"]


def test_the_next_registry_sync_removes_the_files_of_an_interrupted_deletion(
    tmp_path: Path, a: Laptop, prefix: MemoryPrefix, clock: ManualClock
) -> None:
    workspace_id = a.workspaces.get("notes").record.id
    faults = iter(
        [StoreFault.NONE] * 2 + [StoreFault.BEFORE] * 10_000
    )  # the tombstone is read, and written
    cut = Laptop(
        tmp_path / "a", MemoryPrefix(FaultyBlobs(prefix.store, faults, "cut")), clock, joins=False
    )
    cut.harness.deletion.workspace("notes", force=True)
    assert cut.names() == set()
    assert [s.name for s in prefix.store.scan("fs-")] != []
    a.again()
    a.follow()
    assert [s.name for s in (*prefix.store.scan("fs-"), *prefix.store.scan(".history/"))] == []
    entry = a.entry("workspace", workspace_id).entry
    assert isinstance(entry, Tombstone)
    assert entry.is_swept


def test_a_live_entry_written_over_a_known_tombstone_is_replaced_by_the_tombstone(
    a: Laptop, b: Laptop
) -> None:
    record = a.workspaces.get("notes").record
    alive = a.entry("workspace", record.id).entry
    a.harness.deletion.workspace("notes", force=True)
    a.follow()
    b.follow()
    a.roster.write("workspace", alive, expect=ANY)
    assert isinstance(a.entry("workspace", record.id).entry, LiveEntry)
    for laptop in (b, a):
        laptop.follow()
    assert isinstance(a.entry("workspace", record.id).entry, Tombstone)
    assert a.names() == b.names() == set()


def test_deleting_a_workspace_made_local_does_not_delete_the_shared_workspace(
    a: Laptop, b: Laptop
) -> None:
    record = b.workspaces.patch("notes", {"config": {"storage": {"provider": "local"}}})
    b.follow()
    b.harness.deletion.workspace("notes", force=True)
    for laptop in (b, a, b):
        laptop.sync()
    assert (a.names(), b.names()) == ({"notes"}, set())
    assert isinstance(a.entry("workspace", record.id).entry, LiveEntry)
    b.attach("notes")
    assert b.texts("notes") == a.texts("notes")


def test_an_account_deleted_elsewhere_is_reported_and_not_restored(a: Laptop, b: Laptop) -> None:
    state = a.harness.following.state
    assert state.all()
    a.harness.deletion.account()
    assert state.all() == {}  # the entries hold the records of the account
    followed = b.follow()
    assert "deleted on another machine" in told_by(followed)
    assert b.names() == set()
    entry = b.entry("account", b.harness.rooms.principal.account_id).entry
    assert isinstance(entry, Tombstone)


# Epochs.


def test_a_private_workspace_created_again_after_deletion_has_a_new_epoch(
    a: Laptop, b: Laptop
) -> None:
    mine = private_to_user(a.harness.rooms.principal.user_id)
    assert a.workspaces.private(mine, create=True) is not None
    a.put(mine, "MEMORY.md", "first life\n")
    a.sync()
    b.sync()
    b.put(mine, "offline.md", "never pushed\n")
    a.workspaces.delete(mine)
    assert a.workspaces.private(mine, create=True) is not None
    a.put(mine, "MEMORY.md", "second life\n")
    a.sync()
    assert a.entry("workspace", mine).entry.epoch == 1
    followed = b.sync()
    assert [one.unpushed for one in followed.trashed] == [("offline.md",)]
    assert b.texts(mine) == a.texts(mine) == {"MEMORY.md": "second life\n"}


@pytest.mark.parametrize("had_seen_the_old_head", [True, False])
@pytest.mark.parametrize("has_new_head", [True, False])
def test_a_sync_unaware_of_a_new_epoch_pushes_no_data_of_the_older_epoch(
    a: Laptop, b: Laptop, had_seen_the_old_head: bool, has_new_head: bool
) -> None:
    """All of it happens between a pass of its records and the sync."""
    mine = private_to_user(a.harness.rooms.principal.user_id)
    assert a.workspaces.private(mine, create=True) is not None
    a.put(mine, "MEMORY.md", "first life\n")
    a.sync()
    if had_seen_the_old_head:
        b.sync()
    else:
        b.follow()
    b.put(mine, "old.md", "first life\n")
    b.workspaces.get(mine).edits.commit()
    a.workspaces.delete(mine)
    assert a.workspaces.private(mine, create=True) is not None
    a.put(mine, "MEMORY.md", "second life\n")
    a.sync()
    head = f".history/{a.workspaces.get(mine).namespace}/head.json"
    if not has_new_head:  # as if the machine had died before it
        a.prefix.store.delete(head, expect=ANY)
    assert (head in {stat.name for stat in a.prefix.store.scan(".history/")}) == has_new_head
    with pytest.raises(Deleted):
        b.workspaces.sync(mine).run()
    assert (head in {stat.name for stat in a.prefix.store.scan(".history/")}) == has_new_head
    a.sync()
    assert "first" not in str(a.workspaces.get(mine).history.changes())
    followed = b.sync()
    assert "old.md" in followed.trashed[0].unpushed
    assert "first" not in str(b.workspaces.get(mine).history.changes())
    a.sync()
    assert a.texts(mine) == b.texts(mine)


def test_a_machine_of_an_older_epoch_keeps_its_changes_in_the_trash_and_drops_its_history(
    a: Laptop, b: Laptop
) -> None:
    """As when something was erased from a history: nobody brings it back."""
    workspace_id = a.workspaces.get("notes").record.id
    b.put("notes", "offline.md", "never pushed\n")
    seen = a.entry("workspace", workspace_id)
    assert isinstance(seen.entry, LiveEntry)
    a.roster.write("workspace", LiveEntry(workspace_id, seen.entry.record, 1), expect=seen.token)
    for stat in list(a.prefix.store.scan(".history/")):
        a.prefix.store.delete(stat.name, expect=ANY)
    before = {revision.id for revision in b.workspaces.get("notes").log()}
    (buried,) = b.sync().trashed
    assert (buried.why, buried.unpushed) == ("over", ("offline.md",))
    assert (buried.files / "offline.md").read_text() == "never pushed\n"
    after = b.workspaces.get("notes")
    assert b.texts("notes") == {**b.texts("notes"), "MEMORY.md": "one\n"}
    assert "offline.md" not in b.texts("notes")
    assert not before & {revision.id for revision in after.log()}
    assert b.follow().trashed == []


# What stands in the way, and what cannot be believed.


def test_a_name_clash_is_reported_and_renames_no_workspace(a: Laptop, b: Laptop) -> None:
    b.workspaces.create("plans", config={"storage": {"provider": "local"}})
    a.workspaces.patch("notes", {"name": "plans"})
    a.follow()
    assert "already has this name" in told_by(b.follow())
    assert b.names() == {"notes", "plans"}
    assert b.harness.following is not None
    assert [trouble.remedy for trouble in b.harness.following.state.troubles()] == [
        "rename one of the two"
    ]
    b.workspaces.patch("plans", {"name": "mine"})
    assert b.follow().troubles == []
    assert b.names() == {"mine", "plans"}
    with pytest.raises(NotFound):
        b.attach("notes")


def test_two_workspaces_with_the_same_name_are_attached_by_id(
    a: Laptop, machine: Callable[[str], Laptop]
) -> None:
    b = machine("b")
    b.workspaces.create("notes")
    b.sync()
    c = machine("c")
    with pytest.raises(Refused) as refused:
        c.attach("notes")
    workspace_id = a.workspaces.get("notes").record.id
    assert workspace_id in (refused.value.remedy or "")
    assert c.attach(workspace_id) == workspace_id
    assert c.texts("notes")["MEMORY.md"] == "one\n"


def hostile(a: Laptop) -> dict[str, Any]:
    """Entries that somebody with access to the bucket may put in the place of ours."""
    agent = a.harness.agents.get("assistant")
    workspace = a.workspaces.get("notes").record
    owner, account = a.harness.rooms.principal.user_id, a.harness.rooms.account.get().as_json()
    other = new_id("ws")

    def of(record: dict[str, Any]) -> dict[str, Any]:
        return {"format": 1, "epoch": 0, "record": record}

    def agent_with(**config: Any) -> dict[str, Any]:
        return of({**agent.as_json(), "updatedAt": "2030-01-01T00:00:00.000000Z", "config": config})

    mount = {"name": "x", "workspaceId": private_to_user(new_id("usr"))}  # type: ignore[arg-type]
    return {
        "an agent that mounts what is private": (
            f"agents/{agent.id}.json",
            agent_with(workspaces=[mount]),
        ),
        "an agent with a sandbox that is none": (
            f"agents/{agent.id}.json",
            agent_with(sandbox="two\nlines"),
        ),
        "an agent with what nobody knows": (f"agents/{agent.id}.json", agent_with(secret="x")),
        "a workspace with the name of an id": (
            f"workspaces/{workspace.id}.json",
            of({**_told(workspace.as_json()), "name": other}),
        ),
        "a workspace kept elsewhere": (
            f"workspaces/{workspace.id}.json",
            of({**workspace.as_json(), "config": {"storage": {"provider": "ftp"}, "x": 1}}),
        ),
        "a workspace with a configuration that is none": (
            f"workspaces/{workspace.id}.json",
            of({**workspace.as_json(), "config": 7}),
        ),
        "another account's id inside": (
            "account.json",
            of({**account, "id": new_id("acct")}),
        ),
        "another owner": ("account.json", of({**account, "ownerId": new_id("usr")})),
        "an owner who was deleted": (
            f"users/{owner}.json",
            {"format": 1, "deleted": {"name": "owner", "at": account["createdAt"]}},
        ),
        "no JSON": (f"workspaces/{workspace.id}.json", b"{"),
        "an absurd size": (f"workspaces/{workspace.id}.json", b" " * 10**6),
        "a path for an id": ("workspaces/x.y.z.json", of({"id": "../../x"})),
    }


def _told(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "config": {}}


HOSTILE = (
    "an agent that mounts what is private",
    "an agent with a sandbox that is none",
    "an agent with what nobody knows",
    "a workspace with the name of an id",
    "a workspace kept elsewhere",
    "a workspace with a configuration that is none",
    "another account's id inside",
    "another owner",
    "an owner who was deleted",
    "no JSON",
    "an absurd size",
    "a path for an id",
)


@pytest.mark.parametrize("which", HOSTILE)
def test_a_hostile_registry_entry_is_reported_and_changes_no_record(
    a: Laptop, b: Laptop, which: str
) -> None:
    def state() -> list[Any]:
        rooms = b.harness.rooms
        catalogs = (rooms.workspaces.list(private=True), rooms.agents.list(), rooms.users.list())
        return [rooms.account.get(), *(record for catalog in catalogs for record in catalog)]

    b.sync()
    before, sandboxes = state(), b.harness.rooms.sandboxes.list()
    name, document = hostile(a)[which]
    put_entry(a, name, document)
    followed = b.follow()
    assert followed.troubles, which
    assert state() == before
    assert b.harness.rooms.sandboxes.list() == sandboxes
    assert b.texts("notes")["MEMORY.md"] == "one\n"
    assert followed.trashed == []


def test_a_lost_registry_entry_is_published_again(
    a: Laptop, b: Laptop, prefix: MemoryPrefix
) -> None:
    for stat in list(prefix.store.scan(".records/")):
        prefix.store.delete(stat.name, expect=ANY)
    b.follow()
    a.follow()
    assert a.names() == b.names() == {"notes"}
    assert isinstance(a.entry("workspace", a.workspaces.get("notes").record.id).entry, LiveEntry)


# Interruptions.


@pytest.mark.parametrize("fault", [StoreFault.BEFORE, StoreFault.AFTER])
def test_a_registry_sync_interrupted_at_any_call_is_completed_by_the_next(
    tmp_path: Path,
    prefix: MemoryPrefix,
    clock: ManualClock,
    a: Laptop,
    b: Laptop,
    fault: StoreFault,
) -> None:
    for number in range(12):
        clock.advance(60)
        a.workspaces.patch("notes", {"description": f"a {number}"})
        a.harness.agents.patch("assistant", {"config": {"system": f"s {number}"}})
        b.workspaces.patch("notes", {"config": {"quota": {"files": 100 + number}}})
        faults = iter([StoreFault.NONE] * number + [fault] * 3)
        wire = MemoryPrefix(FaultyBlobs(prefix.store, faults, "wire"))
        cut = Laptop(tmp_path / "a", wire, clock, joins=False)
        cut.sync_if_possible()
        for laptop in (b, a, b):
            laptop.follow()
        record = a.workspaces.get("notes").record
        assert record == b.workspaces.get("notes").record
        assert (record.description, record.config.quota.files) == (f"a {number}", 100 + number)
        assert b.harness.agents.get("assistant").config.system == f"s {number}"


def test_closing_the_harness_publishes_changed_records(a: Laptop, b: Laptop) -> None:
    a.workspaces.patch("notes", {"description": "told in passing"})
    assert a.harness.following is not None
    assert a.harness.following.pending() == ["workspace notes"]
    a.harness.close()
    b.follow()
    assert b.workspaces.get("notes").record.description == "told in passing"


def test_an_unreachable_store_is_asked_at_most_once_a_minute_on_close(
    tmp_path: Path, a: Laptop, prefix: MemoryPrefix, clock: ManualClock
) -> None:
    a.workspaces.patch("notes", {"description": "not told"})
    dead = MemoryPrefix(FaultyBlobs(prefix.store, iter([StoreFault.BEFORE] * 10_000), "dead"))
    for _ in range(3):
        Laptop(tmp_path / "a", dead, clock, joins=False).harness.close()
    assert len(dead.asked) == 1
    clock.advance(61)
    Laptop(tmp_path / "a", dead, clock, joins=False).harness.close()
    assert len(dead.asked) == 2


def test_a_turn_uses_the_agent_as_changed_on_another_machine(a: Laptop, b: Laptop) -> None:
    a.harness.agents.patch("assistant", {"config": {"system": "You are brief."}})
    a.put("notes", "MEMORY.md", "- the day is Thursday\n")
    a.sync()
    b.clock.advance(60)
    asked = b.harness.preview("assistant", message="When?")
    assert "You are brief." in str(asked)
    assert WorkspacePath("MEMORY.md") in b.texts("notes")


# The machines of an account.


def noted(laptop: Laptop) -> set[str]:
    notes = laptop.harness.house.place.machine_notes(laptop.harness.rooms.principal.account_id)
    return {note.machine for note in notes.all()}


def test_every_machine_notes_itself_once_whether_it_joined_or_was_the_first(
    a: Laptop, b: Laptop, prefix: MemoryPrefix
) -> None:
    ids = [one.home_paths().machine for one in (a, b)]
    assert noted(a) == set(ids)
    account = a.harness.rooms.principal.account_id
    # as a machine that joined before there were notes
    prefix.store.delete(f".records/{account}/machines/{ids[1]}.json", expect=ANY)
    a.follow()
    assert noted(a) == {ids[0]}
    b.follow()
    assert noted(a) == set(ids)
    prefix.asked.clear()
    b.follow()
    assert prefix.asked == ["LIST"]


def test_a_machine_writes_no_note_into_a_deleted_account(
    a: Laptop, b: Laptop, prefix: MemoryPrefix
) -> None:
    a.harness.deletion.account()
    account, machine = b.harness.rooms.principal.account_id, b.home_paths().machine
    prefix.store.delete(f".records/{account}/machines/{machine}.json", expect=ANY)
    b.follow()
    assert machine not in noted(b)
