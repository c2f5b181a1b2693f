"""A home that lost its records: what it says, and how its workspaces come back."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from harness import Harness
from harness.bootstrap.adoption import GONE, adopt
from harness.bootstrap.authentication import start_token
from harness.bootstrap.doctor import examine
from tests.harness.cli.terminal import Terminal
from workspaces.errors import Busy, NotFound, Refused
from workspaces.home.cards import read_card
from workspaces.home.layout import Home
from workspaces.ids import Namespace

REMEDY = "→ put back a copy of the record store; or run `harness admin adopt --dry-run`"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with three workspaces, one of them private, and something in each."""
    place = tmp_path / "home"
    with Harness.open(place) as harness:
        harness.workspaces.create("garden", description="what grows")
        agent = harness.agents.get("assistant")
        harness.agents.patch(agent.id, {"config": {"private": "rw"}})
        harness.agents.bindings(harness.agents.get(agent.id))  # creates the private workspaces
        by = harness.rooms.principal.author("api")
        for name in ("notes", "garden"):
            harness.workspaces.get(name).write("MEMORY.md", f"- of {name}\n", by=by)
    return place


def ids(place: Path) -> dict[str, tuple[str, str]]:
    """Account and id of every workspace, by name."""
    with Harness.open(place) as harness:
        account_id = harness.rooms.principal.account_id
        return {one.name: (account_id, one.id) for one in harness.workspaces.list(private=True)}


def lose_records(place: Path) -> None:
    for file in place.glob("state.db*"):
        file.unlink()


def contents(place: Path) -> dict[str, bytes]:
    """Every file that is no lock and no database."""
    files = (path for path in place.rglob("*") if path.is_file())
    kept = (path for path in files if ".db" not in path.name and path.suffix != ".lock")
    return {str(path.relative_to(place)): path.read_bytes() for path in kept}


def test_every_command_on_a_home_with_trees_and_no_records_exits_1_with_the_remedy(
    home: Path,
) -> None:
    lose_records(home)
    terminal = Terminal(home, {})
    for ended in terminal.all(
        ("ls", "notes"),
        ("run", "Hello."),
        ("workspace", "list"),
        ("status",),
        ("up", "--port", "0"),
        ("join", "s3://bucket/prefix"),
    ):
        ended.refused("has the files of", REMEDY)
        assert ended.out == ""
    findings = {one.check: one for one in examine(home)}
    assert findings["records"].state == "broken"
    assert "harness admin adopt" in (findings["records"].remedy or "")
    with closing(sqlite3.connect(home / "state.db")) as database:
        assert database.execute("select count(*) from item").fetchone() == (0,)


def test_adoption_restores_the_same_ids_and_says_what_is_gone(home: Path) -> None:
    before = ids(home)
    assert len(before) == 5
    lose_records(home)
    terminal = Terminal(home, {})
    files = contents(home)
    planned = terminal("admin", "adopt", "--dry-run").done()
    assert "would be restored  garden  with the ids that it had" in planned.out
    assert contents(home) == files
    assert not (home / "state.db").exists(), "a dry run made a record store"
    told = terminal("admin", "adopt", "--json").done().json
    assert (told["dryRun"], told["left"], told["movedAside"]) == (False, [], None)
    assert {one["name"]: one["id"] for one in told["restored"]} == {
        name: workspace_id for name, (_, workspace_id) in before.items()
    }
    assert told["gone"] == list(GONE)
    assert ids(home) == before
    with Harness.open(home) as harness:
        garden = harness.workspaces.get("garden")
        assert garden.read("MEMORY.md").data == b"- of garden\n"
        assert garden.record.description == "what grows"
        assert len(garden.log()) == 2
        assert harness.run("Remember that tea is green.").status == "done"
    again = terminal("admin", "adopt").done()
    assert again.out == "nothing to adopt: every workspace of this home has its record\n"


@pytest.mark.parametrize("damage", ["header", "page"])
def test_a_damaged_record_store_is_moved_aside_and_never_deleted(home: Path, damage: str) -> None:
    before = ids(home)
    with closing(sqlite3.connect(home / "state.db")) as database:
        database.execute("pragma wal_checkpoint(truncate)")
    data = bytearray((home / "state.db").read_bytes())
    where = slice(0, 100) if damage == "header" else slice(4096, len(data))
    data[where] = b"\xa5" * len(data[where])
    (home / "state.db").write_bytes(data)
    Terminal(home, {})("ls", "notes").refused("state.db", "damaged", "harness admin adopt")
    planned = adopt(home, names={}, is_dry_run=True)
    assert (home / "state.db").read_bytes() == data
    assert planned.moved_aside is not None
    assert not planned.moved_aside.exists()
    done = adopt(home, names={})
    assert done.moved_aside is not None
    assert done.moved_aside.read_bytes() == data
    assert ids(home) == before


def test_a_tree_without_a_card_becomes_a_new_workspace_only_under_a_given_name(
    home: Path,
) -> None:
    with Harness.open(home) as harness:
        namespace = harness.workspaces.get("garden").namespace
    lose_records(home)
    for card in (home / "cards").glob("*.json"):
        card.unlink()
    planned = adopt(home, names={}, is_dry_run=True)
    assert planned.restored == ()
    (garden,) = (one for one in planned.left if one.namespace == namespace)
    assert garden.files > 0
    assert garden.newest is not None
    assert "--name" in garden.reason
    with pytest.raises(Refused, match="names no trees"):
        adopt(home, names={"fs-zzzz": "garden"})
    with pytest.raises(Refused, match="--name"):
        adopt(home, names={"fs-": "garden"})
    done = adopt(home, names={namespace[:12]: "garden"})
    assert [one.name for one in done.restored] == ["garden"]
    assert len(done.left) == len(planned.left) - 1
    with Harness.open(home) as harness:
        workspace = harness.workspaces.get("garden")
        assert workspace.namespace == done.restored[0].namespace != namespace
        assert workspace.read("MEMORY.md").data == b"- of garden\n"
        assert len(workspace.log()) == 2
        assert workspace.edits.pending() == []
    assert not (home / "workspaces" / namespace).exists()
    assert all((home / "workspaces" / one.namespace).is_dir() for one in done.left)


def test_a_history_whose_tree_is_lost_too_gets_its_files_back(home: Path) -> None:
    with Harness.open(home) as harness:
        garden = harness.workspaces.get("garden")
        namespace, root = garden.namespace, garden.root
    lose_records(home)
    (home / "cards" / f"{namespace}.json").unlink()
    for file in sorted(root.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    root.rmdir()
    adopt(home, names={namespace: "garden"})
    with Harness.open(home) as harness:
        workspace = harness.workspaces.get("garden")
        assert workspace.read("MEMORY.md").data == b"- of garden\n"
        assert workspace.edits.pending() == []


def test_a_card_is_written_with_each_record_and_holds_no_secret(home: Path) -> None:
    with Harness.open(home) as harness:
        _, secret = harness.rooms.keys.create()
        record = harness.workspaces.patch("garden", {"name": "orchard"})
        namespace = harness.workspaces.get("orchard").namespace
        card = read_card(harness.settings.home, namespace)
        assert card is not None
        assert card.workspace == record
        assert card.account.owner_id == harness.rooms.principal.user_id
        assert card.account.is_default
        assert len(list((home / "cards").glob("*.json"))) == 5
        assert not any(secret in file.read_text() for file in (home / "cards").glob("*.json"))
        harness.deletion.workspace("orchard")
        assert read_card(harness.settings.home, namespace) is None


def test_an_old_home_gets_its_cards_when_it_is_opened(home: Path) -> None:
    before = {file.name: file.read_text() for file in (home / "cards").glob("*.json")}
    for file in (home / "cards").iterdir():
        file.unlink()
    (home / "cards").rmdir()
    with Harness.open(home):
        pass
    after = {file.name: file.read_text() for file in (home / "cards").glob("*.json")}
    assert after == before


def test_a_card_of_another_namespace_is_not_believed(home: Path) -> None:
    lose_records(home)
    first, second = sorted((home / "cards").glob("*.json"))[:2]
    forged = json.loads(second.read_text())
    first.write_text(json.dumps(forged))
    done = adopt(home, names={})
    assert [one.namespace for one in done.left] == [first.stem]
    assert "another namespace" in done.left[0].reason
    second.write_text("{")
    with pytest.raises(Refused, match="is not JSON"):
        read_card(Home(home), Namespace(second.stem))


def test_adoption_waits_for_no_server_but_names_it(home: Path) -> None:
    with start_token(Home(home)), pytest.raises(Busy, match="a running `harness up`"):
        adopt(home, names={})


def test_a_home_whose_only_account_was_deleted_is_not_lost(home: Path) -> None:
    with Harness.open(home) as harness:
        harness.house.accounts.add({"name": "second"})
        harness.deletion.account()
    with Harness.open(home) as harness, pytest.raises(NotFound):
        harness.workspaces.get("garden")
