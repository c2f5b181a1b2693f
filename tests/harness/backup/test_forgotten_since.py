"""A text that was forgotten after a backup does not come back with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import Harness
from harness.backup import restore as restoring
from harness.backup.create import create
from harness.backup.depot import depot_at
from harness.backup.restore import restore
from harness.backup.verify import verify
from harness.bootstrap.adoption import adopt
from harness.forgetting.selection import ForgettingRequest
from tests.harness.backup.test_backup import opened
from tests.harness.forgetting.scan import holders
from tests.harness.homes import prefix as prefix
from workspaces.errors import ForbiddenText, Refused
from workspaces.ids import AccountId
from workspaces.storage.records import Key

SECRET = "the heron nests in Galway"
KEPT = "a crane stands in Sligo town"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the text in a file, its past, and a conversation."""
    place = tmp_path / "home"
    with opened(place) as harness:
        notes = harness.workspaces.get("notes")
        by = harness.rooms.principal.author("api")
        notes.write("a.md", f"1\n- {SECRET}\n- {KEPT}\n", by=by)
        notes.write("gone.md", f"{SECRET}\n", by=by)
        notes.delete("gone.md", by=by)
        harness.run(f"Remember that {SECRET}. And {KEPT}.", conversation="c1")
    return place


def forget(harness: Harness, text: str = SECRET) -> str:
    forgettings = harness.rooms.forgettings
    done = forgettings.run_here(
        forgettings.start(forgettings.plan(ForgettingRequest(text=text))).id
    )
    assert done.status == "done"
    return done.id


def saved_before_forgetting(home: Path, tmp_path: Path) -> str:
    """Make a backup, forget the secret, and return the place of the backup."""
    place = str(tmp_path / "saved")
    create(home, place)
    with opened(home) as harness:
        forget(harness)
    return place


def check_forgotten(home: Path, mark: str) -> None:
    assert holders(home, SECRET) == []
    assert holders(home, KEPT) != []
    with opened(home) as harness:
        notes = harness.workspaces.get("notes")
        assert notes.read("a.md").text == f"1\n- [forgotten {mark}]\n- {KEPT}\n"
        with pytest.raises(ForbiddenText):
            notes.write("b.md", SECRET, by=harness.rooms.principal.author("api"))
        entries = harness.conversations.transcript(harness.conversation("c1")).entries()
        assert f"[forgotten {mark}]. And {KEPT}" in next(entries).message.text


def test_an_older_backup_comes_back_without_what_was_forgotten_since(
    home: Path, tmp_path: Path
) -> None:
    """The forgetting tells the place itself: no backup was made since."""
    place = saved_before_forgetting(home, tmp_path)
    with opened(home) as harness:
        (mark,) = harness.rooms.forgettings.rules.known().rules
    assert holders(tmp_path / "saved", SECRET) != []
    assert verify(place).is_whole
    restored = restore(tmp_path / "new", place)
    assert (restored.forgotten, restored.left) == (1, ())
    check_forgotten(tmp_path / "new", mark)


def test_a_later_backup_at_the_same_place_tells_the_older_ones(home: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "saved")
    first = create(home, place).snapshot.stamp
    (home / "locks/backups.json").unlink()  # so the forgetting does not know of the place
    with opened(home) as harness:
        forget(harness)
        (mark,) = harness.rooms.forgettings.rules.known().rules
    create(home, place)
    restore(tmp_path / "new", place, stamp=first)
    check_forgotten(tmp_path / "new", mark)
    newest = restore(tmp_path / "newest", place)
    assert (newest.forgotten, holders(tmp_path / "newest", SECRET)) == (0, [])


def test_a_restored_home_tells_the_backups_that_it_came_from(home: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "saved")
    create(home, place)
    restore(tmp_path / "new", place)
    with opened(tmp_path / "new") as harness:
        forget(harness)
    create(home, place)  # the first home goes on, and knows nothing of it
    restore(tmp_path / "again", place)
    assert holders(tmp_path / "again", SECRET) == []
    assert holders(home, SECRET) != []


def test_files_alone_are_mended_by_records_that_know_more(
    tmp_path: Path, prefix: str, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files go back into a new home. Its records, which are elsewhere, know what was forgotten since."""
    del prefix
    monkeypatch.setenv("HARNESS_RECORDS", postgres_address)
    place, old, new = str(tmp_path / "saved"), tmp_path / "old", tmp_path / "new"
    with opened(old) as harness:
        notes = harness.workspaces.get("notes")
        notes.write("a.md", f"{SECRET}\n{KEPT}\n", by=harness.rooms.principal.author("api"))
    create(old, place, files_only=True)
    with opened(old) as harness:
        forget(harness)
    restored = restore(new, place, files_only=True)
    assert (restored.forgotten, restored.left) == (
        0,
        (),
    )  # what is shared is mended with the bucket
    with opened(new) as harness:
        harness.rooms.forgettings.run_pending()
    assert holders(new, SECRET) == [] and holders(new, KEPT) != []


def test_records_that_are_made_again_learn_from_the_backups_what_was_forgotten(
    home: Path, tmp_path: Path
) -> None:
    """Files alone come back, and the cards make their records again. Nothing here knew of the forgetting."""
    place, new = str(tmp_path / "saved"), tmp_path / "new"
    create(home, place, files_only=True)
    with opened(home) as harness:
        forget(harness)
        (mark,) = harness.rooms.forgettings.rules.known().rules
    restore(new, place, files_only=True)
    adopted = adopt(new, names={})
    assert ([one.name for one in adopted.restored], adopted.unheard) == (["notes"], ())
    assert holders(new, SECRET) == [] and holders(new, KEPT) != []
    with opened(new) as harness:
        assert f"[forgotten {mark}]" in harness.workspaces.get("notes").read("a.md").text
    (new / "state.db").unlink()
    (tmp_path / "saved").rename(tmp_path / "away")
    assert place in adopt(new, names={}).unheard[0]


def test_a_restore_that_dies_before_it_forgot_leaves_the_job(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = saved_before_forgetting(home, tmp_path)

    def die(*_: object) -> None:
        raise RuntimeError("killed")

    monkeypatch.setattr(restoring, "_finished", die)
    with pytest.raises(RuntimeError):
        restore(tmp_path / "new", place)
    with opened(tmp_path / "new") as harness:
        (pending,) = harness.rooms.forgettings.stored.list()
        assert pending.status == "planned"
        assert harness.rooms.records.get(Key("jobs", f"forget:{pending.id}")) is not None
        harness.rooms.forgettings.run_pending()
    assert holders(tmp_path / "new", SECRET) == []


def test_damaged_rules_stop_a_restore_and_the_next_backup_writes_them_anew(
    home: Path, tmp_path: Path
) -> None:
    place = saved_before_forgetting(home, tmp_path)
    (rules,) = (tmp_path / "saved/blobs/forbidden").glob("*.json")
    for damaged in (
        b"{",
        json.dumps({"format": 1, "rules": [{}]}).encode(),
    ):
        rules.write_bytes(damaged)
        with pytest.raises(Refused, match="is damaged") as raised:
            restore(tmp_path / "new", place)
        assert "backup create" in str(raised.value.remedy)
        create(home, place)
    assert restore(tmp_path / "new", place).forgotten == 0
    known = depot_at(place).rules.read(AccountId(rules.stem))
    (found,) = [one for one in known if one.id.startswith("f_")]
    assert SECRET not in rules.read_text() and found.id in rules.read_text()


def test_rules_of_a_newer_version_are_neither_read_nor_replaced(home: Path, tmp_path: Path) -> None:
    place = saved_before_forgetting(home, tmp_path)
    (rules,) = (tmp_path / "saved/blobs/forbidden").glob("*.json")
    newer = b'{"format": 2, "rules": []}'
    rules.write_bytes(newer)
    for use in (lambda: restore(tmp_path / "new", place), lambda: create(home, place)):
        with pytest.raises(Refused, match="newer"):
            use()
    assert rules.read_bytes() == newer


def test_a_place_that_is_away_is_named_in_the_report(home: Path, tmp_path: Path) -> None:
    create(home, str(tmp_path / "saved"))
    (tmp_path / "saved").rename(tmp_path / "away")
    with opened(home) as harness:
        done = harness.rooms.forgettings.show(forget(harness))
    named = [one.why for one in done.unreachable if one.where == "backup"]
    assert any("was not told" in one and "harness backup create" in one for one in named)
    assert not (tmp_path / "saved").exists()
