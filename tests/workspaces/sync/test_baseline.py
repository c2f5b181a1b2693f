"""The baseline: conditional changes of rows, durability, damage, and what a connection may remember."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from workspaces.errors import Refused, Unavailable
from workspaces.history.git.objects import ObjectId
from workspaces.ids import Version
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.storage.blobs import Token
from workspaces.sync.baseline import FORMAT, Baseline, BaselineChange, SyncedFile
from workspaces.tree.scan import FileState, Signature

A, B = WorkspacePath("a.md"), WorkspacePath("notes/b.md")


def agreed(number: int) -> SyncedFile:
    return SyncedFile(Version(f"v{number}"), ObjectId(f"o{number}"), Token(f"t{number}"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sync.db"


def test_baseline_rows_are_visible_to_the_next_process(file: Path) -> None:
    baseline = Baseline(file)
    baseline.take([BaselineChange(A, None, agreed(1)), BaselineChange(B, None, agreed(2))])
    baseline.close()
    again = Baseline(file)
    assert again.tree() == {A: agreed(1), B: agreed(2)}
    assert again.find(B) == agreed(2)
    again.take([BaselineChange(A, agreed(1), None)])
    assert again.find(A) is None


@pytest.mark.parametrize("paths", [(), (A,), (A, B)])
def test_baseline_rows_are_given_only_for_the_directory_they_were_noted_for(
    file: Path, paths: tuple[WorkspacePath, ...]
) -> None:
    baseline = Baseline(file)
    rows = {A: agreed(1), B: None}
    assert baseline.of_root("8:1", paths) is None
    assert baseline.of_root(None, paths) == dict.fromkeys(paths), "never synced"
    baseline.note("root", "8:1")
    baseline.take([BaselineChange(A, None, agreed(1))])
    assert baseline.of_root("8:1", paths) == {path: rows[path] for path in paths}
    assert baseline.of_root("8:2", paths) is None
    assert baseline.of_root(None, paths) is None


def test_a_baseline_row_changed_by_another_process_is_not_overwritten(file: Path) -> None:
    one, other = Baseline(file), Baseline(file)
    one.take([BaselineChange(A, None, agreed(1))])
    one.take([BaselineChange(A, agreed(1), agreed(2))])
    other.take([BaselineChange(A, agreed(1), agreed(3)), BaselineChange(B, None, agreed(4))])
    assert one.tree() == {A: agreed(2), B: agreed(4)}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("after", [None, 1, 2])
@pytest.mark.parametrize("before", [None, 1, 2])
@pytest.mark.parametrize("row", [None, 1, 2])
def test_a_baseline_change_applies_only_if_the_row_is_as_expected(
    file: Path, row: int | None, before: int | None, after: int | None, together: bool
) -> None:
    def of(number: int | None) -> SyncedFile | None:
        return None if number is None else agreed(number)

    baseline = Baseline(file)
    baseline.take([BaselineChange(A, None, of(row))])
    baseline.take(
        [
            BaselineChange(A, of(before), of(after)),
            *([BaselineChange(B, None, agreed(9))] if together else []),
        ]
    )
    assert baseline.find(A) == of(after if before == row else row)
    assert baseline.tree() == Baseline(file).tree()


def test_baseline_changes_apply_together_or_not_at_all(file: Path) -> None:
    baseline = Baseline(file)
    broken = BaselineChange(B, None, SyncedFile(Version("v"), ObjectId("o"), Token({})))  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        baseline.take([BaselineChange(A, None, agreed(1)), broken])
    assert baseline.tree() == {}


def test_the_baseline_database_syncs_each_commit_to_disk(file: Path) -> None:
    baseline = Baseline(file)
    baseline.take([BaselineChange(A, None, agreed(1))])
    database = baseline._database
    assert database is not None
    assert database.execute("pragma journal_mode").fetchone()[0] == "wal"
    assert database.execute("pragma synchronous").fetchone()[0] == 2


def test_the_baseline_stores_facts_problems_and_file_signatures(file: Path) -> None:
    baseline = Baseline(file)
    assert baseline.fact("place") is None
    baseline.note("place", "s3://b/p")
    assert Baseline(file).fact("place") == "s3://b/p"
    problem = Problem("a//b", "bad_name", "in the store")
    baseline.keep_problems([problem])
    baseline.keep_problems([problem])
    assert Baseline(file).problems() == [problem]
    state = FileState(Version("v"), ObjectId("o"), 3)
    known = {"a.md": (Signature(3, 1, 2, 10**15), state), "b.md": (Signature(3, 9, 9, 9), state)}
    baseline.keep_known({}, known)
    assert Baseline(file).known() == known
    fewer = {"a.md": (Signature(3, 5, 5, 5), state)}
    baseline.keep_known(known, fewer)
    assert Baseline(file).known() == fewer


def test_resetting_the_baseline_removes_its_rows_but_not_its_facts(file: Path) -> None:
    baseline = Baseline(file)
    baseline.take([BaselineChange(A, None, agreed(1))])
    baseline.note("root", "1:2")
    baseline.begin_anew()
    assert baseline.tree() == {}
    assert baseline.fact("root") == "1:2"


def test_a_baseline_of_a_newer_format_is_refused(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute(f"pragma user_version = {FORMAT + 1}")
    database.close()
    with pytest.raises(Refused, match="newer format"):
        Baseline(file).tree()


def test_a_damaged_baseline_file_is_named_with_a_remedy(file: Path) -> None:
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(Unavailable, match=r"sync\.db") as failure:
        Baseline(file).tree()
    assert "delete the file" in (failure.value.remedy or "")


def test_a_full_disk_is_not_reported_as_a_damaged_baseline(file: Path) -> None:
    baseline = Baseline(file)
    baseline.take([BaselineChange(A, None, agreed(1))])
    with baseline._connection() as database:
        database.execute("pragma max_page_count = 1")  # of a disk that has no room for one more
    steps = [BaselineChange(WorkspacePath(f"{n}.md"), None, agreed(n)) for n in range(1000)]
    with pytest.raises(Unavailable, match="the disk is full") as failure:
        baseline.take(steps)
    assert "free some space" in (failure.value.remedy or "")
    assert baseline.tree() == {A: agreed(1)}


def test_a_forked_child_opens_its_own_connection_to_the_baseline(file: Path) -> None:
    baseline = Baseline(file)
    baseline.take([BaselineChange(A, None, agreed(1))])
    child = os.fork()
    if child == 0:
        baseline.take([BaselineChange(B, None, agreed(2))])
        os._exit(0)
    os.waitpid(child, 0)
    assert baseline.tree() == {A: agreed(1), B: agreed(2)}


def test_baseline_rows_are_read_again_only_after_another_connection_wrote(file: Path) -> None:
    mine, others = Baseline(file), Baseline(file)
    mine.take([BaselineChange(A, None, agreed(1))])
    assert others.tree() == mine.tree() == {A: agreed(1)}  # in this order: opening writes, too
    asked: list[str] = []
    assert mine._database is not None
    mine._database.set_trace_callback(asked.append)
    assert mine.tree() == {A: agreed(1)}
    mine.note("root", "1:2")
    mine.keep_problems([Problem(A, "twin", "of another")])
    assert mine.tree() == {A: agreed(1)}
    assert not any("from agreed" in one for one in asked)
    others.take([BaselineChange(B, None, agreed(2))])
    assert mine.tree() == {A: agreed(1), B: agreed(2)}
    mine.take([BaselineChange(A, agreed(1), agreed(3))])
    assert mine.tree() == others.tree() == {A: agreed(3), B: agreed(2)}
    mine.begin_anew()
    assert mine.tree() == others.tree() == {}


def test_a_change_of_the_baseline_does_not_alter_a_tree_returned_before(file: Path) -> None:
    mine, others = Baseline(file), Baseline(file)
    mine.take([BaselineChange(A, None, agreed(1))])
    given = mine.tree()
    mine.take([BaselineChange(A, agreed(1), agreed(2)), BaselineChange(B, None, agreed(2))])
    assert given == {A: agreed(1)}
    assert mine.tree() == others.tree() == {A: agreed(2), B: agreed(2)}
    mine.take([BaselineChange(A, agreed(2), None)])
    assert mine.tree() == others.tree() == {B: agreed(2)}
    mine.take([BaselineChange(B, agreed(1), None)])  # which it is not
    assert mine.tree() == others.tree() == {B: agreed(2)}
    others.take([BaselineChange(B, agreed(2), agreed(3))])
    mine.take([BaselineChange(A, None, agreed(1))])
    assert mine.tree() == others.tree() == {A: agreed(1), B: agreed(3)}


def test_a_baseline_change_from_absent_to_absent_does_not_hide_an_existing_row(file: Path) -> None:
    """As of a deletion of what was never agreed on, and was by another thread meanwhile."""
    baseline = Baseline(file)
    assert baseline.tree() == {}
    baseline.take([BaselineChange(A, None, agreed(1))])
    baseline.take([BaselineChange(A, None, None)])
    assert baseline.tree() == {A: agreed(1)}


def test_baseline_rows_that_could_not_be_written_are_not_remembered(file: Path) -> None:
    baseline = Baseline(file)
    baseline.take([BaselineChange(A, None, agreed(1))])
    with sqlite3.connect(file) as other:
        refuses = "when new.path = 'notes/b.md' begin select raise(fail, 'no'); end"
        other.execute(f"create trigger refused before insert on agreed {refuses}")
    assert baseline.tree() == {A: agreed(1)}
    with pytest.raises(Unavailable):
        baseline.take([BaselineChange(A, agreed(1), agreed(2)), BaselineChange(B, None, agreed(1))])
    assert baseline.tree() == {A: agreed(1)}


def test_baseline_rows_of_an_earlier_connection_are_not_reused_by_the_next(file: Path) -> None:
    mine = Baseline(file)
    mine.take([BaselineChange(A, None, agreed(1))])
    assert mine.tree() == {A: agreed(1)}
    mine.close()
    others = Baseline(file)
    others.take([BaselineChange(B, None, agreed(2))])
    others.close()
    assert mine.tree() == {A: agreed(1), B: agreed(2)}
