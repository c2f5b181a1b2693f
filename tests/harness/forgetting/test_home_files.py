"""What killed processes leave in a home, and what nobody can search there."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Harness
from harness.forgetting.forgetting import Forgetting
from harness.forgetting.selection import ForgettingRequest
from tests.harness.forgetting.scan import holders
from workspaces.history.git.objects import blob_id
from workspaces.home.deletion_hold import hold_off_deletions
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.tree.port import label_of

SECRET = "the heron nests in Galway"


def forget(harness: Harness) -> Forgetting:
    forgettings = harness.rooms.forgettings
    planned = forgettings.plan(ForgettingRequest(text=SECRET))
    return forgettings.run_here(forgettings.start(planned).id)


def test_what_killed_processes_left_goes(harness: Harness, home: Path) -> None:
    notes = harness.workspaces.get("notes")
    staging = harness.settings.home.staging(notes.namespace)
    path = WorkspacePath("a.md")
    old, new = b"- tea\n", b"- tea\n- milk\n"
    notes.write(path, new.decode(), by=harness.rooms.principal.author("api"))
    label = label_of(path, blob_id(old), version_of(new), "00000000+")
    (staging / label).write_text(f"- tea\n- {SECRET}\n")
    for name in ("come-1", "new-1"):
        (staging / name).write_text(f"- {SECRET}\n")
    (home / "staging" / "entries" / "new-2").write_text(f'{{"text": "{SECRET}"}}')
    (home / "staging" / "backup-1.db").write_bytes(SECRET.encode())
    (home / ".forget-1").write_text("half")

    done = forget(harness)
    assert done.status == "done", done.waits_for
    assert done.unreachable == ()
    assert "temporary file" in {one.place.where for one in done.found}
    assert holders(home, SECRET) == []
    assert sorted(one.name for one in staging.iterdir() if one.name != ".lock") == ["new-1"]
    assert [*home.glob(".forget-*")] == []
    assert notes.read(path).text == f"- tea\n- milk\n- [forgotten {done.tombstones[0]}]\n"


def test_a_backup_that_runs_is_waited_for(harness: Harness, home: Path) -> None:
    copy = home / "staging" / "backup-1.db"
    copy.write_bytes(SECRET.encode())
    with hold_off_deletions(harness.settings.home):
        waiting = forget(harness)
    assert (waiting.status, copy.exists()) == ("waiting", True)
    (done,) = harness.rooms.forgettings.run_pending()
    assert (done.status, copy.exists()) == ("done", False)


def test_a_history_in_the_trash_goes_in_one_step(harness: Harness) -> None:
    by = harness.rooms.principal.author("api")
    for name in ("one", "two"):
        harness.workspaces.create(name).write("a.md", f"{SECRET}\n", by=by)
    one, two = (harness.rooms.workspaces.delete(name) for name in ("one", "two"))
    (one / "history.git").rename(one / "history.gone")  # killed before it was removed
    (two / "history.git" / "HEAD").unlink()
    done = forget(harness)
    assert done.status == "done", done.waits_for
    assert [*one.glob("history.*")] == []
    (named,) = done.unreachable
    assert named.where == "trash"
    assert "cannot be searched" in named.why


@pytest.mark.parametrize(
    ("name", "says"),
    [("state.db.damaged-2026", "delete it"), ("staging/restore", "`harness restore` again")],
)
def test_what_nobody_can_search_is_named(
    harness: Harness, home: Path, name: str, says: str
) -> None:
    (home / name).mkdir()
    (named,) = forget(harness).unreachable
    assert name.rpartition("/")[2] in named.why
    assert says in named.why


def test_only_what_cannot_be_read_was_not_looked_at(harness: Harness, home: Path) -> None:
    root = harness.workspaces.get("notes").root
    (root / "link.md").symlink_to(home / "elsewhere")
    (root / "a:b.md").write_text("no path of a workspace\n")
    for twin in ("twin.md", "TWIN.md"):  # a problem that can be read
        (root / twin).write_text(f"{SECRET}\n")
    names = [one.why.partition(" cannot be read")[0] for one in forget(harness).unreachable]
    assert sorted(names) == ["notes/a:b.md", "notes/link.md"]
    assert SECRET not in (root / "twin.md").read_text() + (root / "TWIN.md").read_text()
