"""A backup of a home: what it holds, what the next one reads, and what a restored home is."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness import Harness
from harness.backup import restore as restoring
from harness.backup.create import create
from harness.backup.reader import YOUNG_S
from harness.backup.restore import restore
from harness.backup.verify import verify
from harness.bootstrap.adoption import adopt
from harness.conversations.conversation import ERASE
from harness.jobs.job import Job
from harness.sandboxes.none import NoSandbox
from harness.webhooks.notices import WEBHOOK
from tests.harness.cli.terminal import Terminal
from tests.servers import BUCKET, S3Server
from workspaces.errors import Busy, NotFound, Refused
from workspaces.home.deletion_hold import hold_off_deletions
from workspaces.home.layout import Home
from workspaces.ids import new_id

LARGE = "tea " * 20_000


def opened(home: Path) -> Harness:
    return Harness.open(home, sandbox=NoSandbox("not in this test"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a talk, a key, a template, a decision card, and a file larger than a piece."""
    place = tmp_path / "home"
    with opened(place) as harness:
        assert harness.run(f"Remember that tea is green. {LARGE}").status == "done"
        harness.rooms.keys.create(label="kept")
        harness.rooms.jobs.enqueue(Job("w", WEBHOOK, harness.rooms.clock.now(), {}))
        harness.rooms.jobs.enqueue(Job("other", "other", harness.rooms.clock.now(), {}))
        root = harness.workspaces.get("notes").root
    (root / "large.bin").write_bytes(bytes(range(256)) * 20_000)
    (root / "private.md").write_text("mine\n")
    (root / "private.md").chmod(0o600)
    (place / "templates/mine").mkdir(parents=True)
    (place / "templates/mine/MEMORY.md").write_text("# Mine\n")
    (place / "cards/lunch.yaml").write_text("type: lunch\n")
    (place / "admin.key").write_text("secret\n")
    (place / "admin.key").chmod(0o600)
    (place / "tokens/0").touch()
    return place


def files(home: Path, *without: str) -> dict[str, tuple[int, bytes]]:
    """Modes and bytes of all files that a backup keeps as they are."""
    changed = (
        "search",
        "sync",
        "staging",
        "locks",
        "tokens",
        "machine",
        "state.db",
        "bin",
        *without,
    )
    found = (path for path in sorted(home.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(home)): (path.stat().st_mode, path.read_bytes())
        for path in found
        if not str(path.relative_to(home)).startswith(changed)
    }


def items(home: Path) -> dict[tuple[str, str], dict[str, object]]:
    with closing(sqlite3.connect(home / "state.db")) as database:
        rows = database.execute("select partition, sort, value from item")
        return {(partition, sort): json.loads(value) for partition, sort, value in rows}


def wait_until_old(home: Path) -> None:
    """Wait until every file is older than the time within which a file may change unseen."""
    newest = max(one.stat().st_ctime for one in home.rglob("*") if one.is_file())
    while time.time() <= newest + YOUNG_S:
        time.sleep(0.05)


def test_a_restored_home_has_everything_but_what_belonged_to_the_old_process(
    home: Path, tmp_path: Path
) -> None:
    place, new = str(tmp_path / "backups"), tmp_path / "new"
    created = create(home, place)
    assert created.troubles == []
    assert verify(place).is_whole
    before = items(home)
    restored = restore(new, place)
    assert restored.files == created.snapshot.files
    assert files(new) == files(home)
    after = items(new)
    assert ("jobs", "w") in before
    assert not [key for key in after if key[0] == "jobs-claims" or key[0].startswith("session:")]
    assert not [key for key in after if key[0] == "jobs-due" and key[1].endswith(":w")]
    assert ("jobs", "w") not in after
    assert after["jobs", "other"] == before["jobs", "other"]
    leases = {key for key in after if key[0].startswith("conversation-lease:")}
    assert leases
    assert all(after[key] == {"holder": None} for key in leases)
    assert list((new / "tokens").iterdir()) == []
    assert not (new / "machine").exists()
    with opened(new) as harness:
        assert [key.label for key in harness.rooms.keys.list()] == ["kept"]
        notes = harness.workspaces.get("notes")
        assert "green" in notes.read("MEMORY.md").data.decode()
        assert notes.edits.pending() == []
        (conversation,) = harness.conversations.list()
        entries = list(harness.conversations.transcript(conversation).entries())
        assert LARGE in str(entries[0].message)
        assert harness.run("Hello again.").status == "done"
    assert Home(new).machine != Home(home).machine


def test_a_second_backup_reads_what_changed_and_stores_it_once(home: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "backups")
    first = create(home, place)
    wait_until_old(home)
    create(home, place)  # what was young before is known now
    read: list[int] = []
    again = create(home, place, on_bytes=read.append)
    assert (sum(read), again.stored) == (0, 0)
    assert again.snapshot.files == first.snapshot.files
    notes = next(home.glob("workspaces/*/MEMORY.md"))
    notes.chmod(0o640)
    assert create(home, place).stored > 0  # the listing
    notes.chmod(0o600)
    with opened(home) as harness:
        by = harness.rooms.principal.author("api")
        harness.workspaces.get("notes").write("new.md", b"new\n", by=by)
    changed = create(home, place)
    assert 0 < changed.stored < 500_000  # the file, its revision and the records, not large.bin
    assert verify(place).is_whole
    for stamp, has_it in ((again.snapshot.stamp, False), (None, True)):
        new = tmp_path / f"new{has_it}"
        restore(new, place, stamp=stamp)
        assert bool(list(new.glob("workspaces/*/new.md"))) is has_it


def test_a_backup_is_in_s3_as_in_a_directory(
    home: Path, tmp_path: Path, seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    place = f"s3://{BUCKET}/{new_id('test')}"
    create(home, place)
    assert create(home, place).stored < 1_000_000
    assert verify(place).is_whole
    restore(tmp_path / "new", place)
    assert files(tmp_path / "new") == files(home)


def test_a_backup_is_only_restored_into_a_home_without_records_and_trees(
    home: Path, tmp_path: Path
) -> None:
    place = str(tmp_path / "backups")
    create(home, place)
    before = files(home)
    with pytest.raises(Refused, match="records") as refused:
        restore(home, place)
    assert "--home" in (refused.value.remedy or "")
    for file in home.glob("state.db*"):
        file.unlink()
    with pytest.raises(Refused, match="files of a workspace"):
        restore(home, place)
    assert files(home) == before
    with pytest.raises(NotFound):
        restore(tmp_path / "new", place, stamp="2026-01-01T000000.000000Z")
    with pytest.raises(NotFound):
        verify(str(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(Refused, match="inside the home"):
        create(home, str(home / "backups"))


def test_an_interrupted_restore_is_finished_by_the_next(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, new = str(tmp_path / "backups"), tmp_path / "new"
    create(home, place)
    with monkeypatch.context() as patched:
        patched.setattr(restoring, "_prepare", interrupted)
        with pytest.raises(KeyboardInterrupt):
            restore(new, place)
    assert not list((new / "workspaces").iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(restoring, "_move_records", interrupted)
        with pytest.raises(KeyboardInterrupt):
            restore(new, place)
    Terminal(new, {})("ls", "notes").refused("has the files of 1 workspace, but no records")
    assert restore(new, place).was_finished
    assert files(new) == files(home)
    with pytest.raises(Refused, match="records"):
        restore(new, place)


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def pieces(place: Path) -> list[Path]:
    """The pieces of a backup, the largest last."""
    found = [one for one in (place / "blobs/objects").rglob("*") if one.is_file()]
    return sorted(found, key=lambda one: one.stat().st_size)


def test_verify_names_what_is_missing_and_again_stores_it_anew(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    create(home, str(place))
    *_, other, large = pieces(place)
    large.unlink()
    other.write_bytes(other.read_bytes()[:-1] + b"?")
    damaged = verify(str(place))
    assert not damaged.is_whole
    assert any(f"{large.name} is missing" in one for one in damaged.missing)
    assert any(f"{other.name} has other bytes" in one for one in damaged.missing)
    with pytest.raises(Refused, match="piece"):
        restore(tmp_path / "new", str(place))
    assert not list((tmp_path / "new/workspaces").iterdir())
    create(home, str(place))
    assert not verify(str(place)).is_whole  # a backup trusts what it stored
    create(home, str(place), again=True)
    assert verify(str(place)).is_whole


def test_verify_refuses_a_truncated_snapshot_and_the_next_backup_uses_an_older_one(
    home: Path, tmp_path: Path
) -> None:
    place = tmp_path / "backups"
    first = create(home, str(place)).snapshot
    second = create(home, str(place)).snapshot
    file = place / f"blobs/snapshots/{second.stamp}.json"
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(Refused, match=second.stamp):
        verify(str(place))
    assert verify(str(place), stamp=first.stamp).is_whole
    assert create(home, str(place)).stored < 1_000_000
    assert verify(str(place)).is_whole


def test_verify_finds_a_reference_that_leads_nowhere(home: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "backups")
    (value, *_) = [one for one in home.glob("entries/*/*.json") if one.stat().st_size > 70_000]
    value.unlink()
    (git,) = home.glob("history/*.git")
    lost = max((git / "objects").glob("??/*"), key=lambda one: one.stat().st_mtime)
    lost.unlink()
    create(home, place)
    found = " ".join(verify(place).missing)
    assert f"entries/{value.relative_to(home / 'entries')} is missing" in found
    assert f"history history/{git.name} is incomplete" in found


def test_what_is_no_file_of_its_own_is_left_out_and_named(home: Path, tmp_path: Path) -> None:
    (root,) = home.glob("workspaces/fs-*")
    (tmp_path / "secret").write_text("secret\n")
    (root / "link.md").symlink_to(tmp_path / "secret")
    (root / "second.md").hardlink_to(tmp_path / "secret")
    created = create(home, str(tmp_path / "backups"))
    names = [one.rpartition("/")[2] for one in created.snapshot.left_out]
    assert names == ["link.md", "second.md"]
    restore(tmp_path / "new", str(tmp_path / "backups"))
    assert not list((tmp_path / "new").rglob("link.md"))


def test_manual_edits_are_committed_first(home: Path, tmp_path: Path) -> None:
    (root,) = home.glob("workspaces/fs-*")
    (root / "edited.md").write_text("by hand\n")
    create(home, str(tmp_path / "backups"))
    restore(tmp_path / "new", str(tmp_path / "backups"))
    with opened(tmp_path / "new") as harness:
        notes = harness.workspaces.get("notes")
        assert [one.trailers["Source"] for one in notes.log("edited.md")] == ["edit"]
        assert notes.edits.pending() == []


@pytest.fixture
def harness(home: Path) -> Iterator[Harness]:
    with opened(home) as harness:
        yield harness


def test_deletions_wait_until_a_backup_has_ended(harness: Harness, home: Path) -> None:
    (conversation,) = harness.conversations.list()
    values = home / "entries" / conversation.id
    with hold_off_deletions(Home(home)):
        with pytest.raises(Busy, match="a backup"):
            harness.deletion.workspace("notes", force=True)
        with pytest.raises(Busy, match="another backup"), hold_off_deletions(Home(home), wait_s=0):
            pass
        harness.conversations.delete(conversation)
        assert list(values.rglob("*.json"))
        (job,) = [one for one in harness.jobs.list() if one.job.kind == ERASE]
        assert not job.is_aside
    harness.rooms.conversations.erase(conversation.id)
    assert not list(values.rglob("*.json"))
    assert harness.deletion.workspace("notes", force=True).trash


def test_a_damaged_workspace_is_told_and_the_others_are_saved(home: Path, tmp_path: Path) -> None:
    with opened(home) as harness:
        harness.workspaces.create("garden")
        root = harness.workspaces.get("garden").root
    root.rename(tmp_path / "elsewhere")
    created = create(home, str(tmp_path / "backups"))
    (trouble,) = created.troubles
    assert root.name in trouble
    assert verify(str(tmp_path / "backups")).missing == [
        f"tree of the workspace 'garden' is missing (workspaces/{root.name})"
    ]


def test_files_alone_are_saved_where_the_records_are_elsewhere(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, new = str(tmp_path / "backups"), tmp_path / "new"
    with monkeypatch.context() as patched:
        patched.setenv("HARNESS_RECORDS", "dynamodb:table")
        with pytest.raises(Refused, match="not on this machine") as refused:
            create(home, place)
        assert "point-in-time recovery" in (refused.value.remedy or "")
    create(home, place, files_only=True)
    assert verify(place).is_whole
    with pytest.raises(Refused, match="no records"):
        restore(new, place)
    assert not restore(new, place, files_only=True).has_records
    assert [one.name for one in adopt(new, names={}).restored] == ["notes"]
    with opened(new) as harness:
        assert "green" in harness.workspaces.get("notes").read("MEMORY.md").data.decode()


def test_a_home_keeps_its_own_settings_and_leaves_no_temporary_file(
    home: Path, tmp_path: Path
) -> None:
    place, new = str(tmp_path / "backups"), tmp_path / "new"
    (home / "harness.yaml").write_text("format: 1\nmodel: demo\n")
    (home / "staging/backup-killed.db").touch()
    create(home, place)
    assert not list((home / "staging").glob("backup-*"))
    new.mkdir()
    (new / "harness.yaml").write_text("format: 1\nmodel: other\n")
    assert restore(new, place).settings_kept
    assert "other" in (new / "harness.yaml").read_text()
    assert not restore(tmp_path / "fresh", place).settings_kept
    assert "demo" in (tmp_path / "fresh/harness.yaml").read_text()
    assert not (new / "staging/restore").exists()


def test_the_commands_print_results_documents_and_errors(home: Path, tmp_path: Path) -> None:
    place, terminal = str(tmp_path / "backups"), Terminal(home, {})
    created = terminal("backup", "create", place, "--json").done().json
    assert (created["records"], created["troubles"]) == (True, [])
    new = str(tmp_path / "new")
    whole, used, restored = terminal.all(
        ("backup", "verify", place, "--json"),
        ("backup", "restore", place),
        ("backup", "restore", place, "--home", new),
    )
    assert whole.done().json["whole"]
    used.refused("has records", "--home")
    assert f"snapshot: {created['snapshot']}" in restored.done().out
    pieces(Path(place))[-1].unlink()
    broken = terminal("backup", "verify", place)
    assert (broken.code, "NOT whole" in broken.out) == (1, True)
