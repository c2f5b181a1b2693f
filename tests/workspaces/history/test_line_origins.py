from __future__ import annotations

import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.clock import ManualClock
from workspaces.errors import NotFound
from workspaces.history.history import History
from workspaces.history.line_matching import split_lines
from workspaces.history.line_origins import LineOrigins
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId

MEMORY = WorkspacePath("MEMORY.md")
NOTE = WorkspacePath("notes/a.md")
PATHS = [MEMORY, NOTE, WorkspacePath("notes/ --x ü.md")]


@pytest.fixture
def history(tmp_path: Path, clock: ManualClock) -> History:
    return History.create(tmp_path / "h.git", clock)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "search" / "x.db"


@pytest.fixture
def origins(file: Path, history: History) -> Iterator[LineOrigins]:
    origins = LineOrigins(file, history)
    yield origins
    origins.close()


def test_an_unchanged_line_keeps_its_origin(history: History, origins: LineOrigins) -> None:
    first = history.record({MEMORY: b"one\ntwo\n"}, CALLER)
    assert origins.origins(MEMORY) == [first, first]
    second = history.record({MEMORY: b"zero\none\ntwo\nthree"}, AGENT)
    assert origins.origins(MEMORY) == [second, first, first, second]
    third = history.record({MEMORY: b"zero\ntwo\nthree\n"}, AGENT)
    assert origins.origins(MEMORY) == [second, first, third]


def test_a_renamed_file_keeps_the_origins_of_its_lines(
    history: History, origins: LineOrigins
) -> None:
    first = history.record({MEMORY: b"one\ntwo\n"}, CALLER)
    history.record({MEMORY: None, NOTE: b"one\ntwo\n"}, CALLER)
    assert origins.origins(NOTE) == [first, first]


def test_a_file_created_again_has_new_origins(history: History, origins: LineOrigins) -> None:
    history.record({MEMORY: b"one\n"}, CALLER)
    history.record({MEMORY: None}, CALLER)
    with pytest.raises(NotFound):
        origins.origins(MEMORY)
    third = history.record({MEMORY: b"one\n"}, CALLER)
    assert origins.origins(MEMORY) == [third]


def test_file_times_are_the_stamps_of_the_first_and_the_newest_revision(
    history: History, origins: LineOrigins, clock: ManualClock
) -> None:
    history.record({MEMORY: b"1"}, CALLER)
    clock.advance(60)
    history.record({MEMORY: b"2"}, CALLER)
    clock.advance(60)
    history.record({NOTE: b"1"}, CALLER)
    newest, middle, oldest = history.log()
    assert origins.times(MEMORY).created_at == oldest.at
    assert origins.times(MEMORY).updated_at == middle.at
    assert origins.times(NOTE).created_at == newest.at
    history.record({MEMORY: None}, CALLER)
    assert origins.times(MEMORY).updated_at == history.log()[0].at
    with pytest.raises(NotFound):
        origins.times(WorkspacePath("never.md"))


def test_a_damaged_origins_database_is_rebuilt(
    history: History, origins: LineOrigins, file: Path
) -> None:
    first = history.record({MEMORY: b"one\n"}, CALLER)
    origins.origins(MEMORY)
    origins.close()
    file.write_bytes(b"no database, surely" * 1000)
    assert origins.origins(MEMORY) == [first]


def test_a_replaced_history_discards_the_stored_origins(
    history: History, tmp_path: Path, clock: ManualClock, file: Path
) -> None:
    history.record({MEMORY: b"one\n"}, CALLER)
    known = LineOrigins(file, history)
    known.origins(MEMORY)
    known.close()
    other = History.create(tmp_path / "other.git", clock)
    other.record({NOTE: b"x\n"}, CALLER)
    only = other.record({MEMORY: b"one\n"}, AGENT)
    replaced = LineOrigins(file, other)
    assert replaced.origins(MEMORY) == [only]
    replaced.close()


def test_origins_after_a_merge_come_from_both_parents(
    history: History, tmp_path: Path, origins: LineOrigins
) -> None:
    first = history.record({MEMORY: b"one\ntwo\nthree\n"}, CALLER)
    ours = history.record({MEMORY: b"one\ntwo\nthree\nours\n"}, CALLER)
    assert origins.origins(MEMORY) == [first, first, first, ours]
    git = ["git", f"--git-dir={tmp_path / 'h.git'}", "-c", "user.name=x", "-c", "user.email=x@x"]

    def run(*arguments: str, data: bytes = b"") -> str:
        done = subprocess.run([*git, *arguments], input=data, check=True, capture_output=True)
        return done.stdout.decode().strip()

    def tree(data: bytes) -> str:
        blob = run("hash-object", "-w", "--stdin", data=data)
        return run("mktree", data=f"100644 blob {blob}\tMEMORY.md\n".encode())

    message = "x\n\nAt: 2027-01-01T00:00:00.000000Z\n"
    theirs = run("commit-tree", tree(b"theirs\none\ntwo\nthree\n"), "-p", first, "-m", message)
    both = tree(b"theirs\none\ntwo\nthree\nours\n")
    for parents in ((ours, theirs), (theirs, ours)):  # sync sorts them: ours may come second
        merge = run("commit-tree", both, "-p", parents[0], "-p", parents[1], "-m", message)
        run("update-ref", "refs/heads/main", merge)
        expected = [RevisionId(theirs), first, first, first, ours]
        assert origins.origins(MEMORY) == expected
        origins.empty()
        assert origins.origins(MEMORY) == expected
        run("update-ref", "refs/heads/main", ours)


def test_concurrent_threads_share_an_origins_database(history: History, file: Path) -> None:
    expected = [history.record({MEMORY: b"line\n" * n}, CALLER) for n in range(1, 30)]
    failures: list[BaseException] = []

    def ask() -> None:
        own = LineOrigins(file, history)
        try:
            for _ in range(5):
                assert len(own.origins(MEMORY)) == len(expected)
        except BaseException as error:
            failures.append(error)
        finally:
            own.close()

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []


LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"c \xff\r\n", b"d\n", b"e"]), max_size=8)
CONTENTS = LINES.map(b"".join)
CHANGES = st.lists(
    st.dictionaries(st.sampled_from(PATHS), st.none() | CONTENTS, min_size=1, max_size=2),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CHANGES, st.sets(st.integers(0, 11)))
def test_origins_are_true_and_an_incremental_update_equals_a_rebuild(
    changes: list[dict[WorkspacePath, bytes | None]], asked_after: set[int]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        history = History.create(Path(place) / "h.git", ManualClock())
        caught_up = LineOrigins(Path(place) / "a.db", history)
        versions: list[tuple[RevisionId, dict[WorkspacePath, bytes]]] = []
        now: dict[WorkspacePath, bytes] = {}
        for number, change in enumerate(changes):
            now = {path: data for path, data in {**now, **change}.items() if data is not None}
            versions.append((history.record(change, AGENT), now))
            if number in asked_after:
                caught_up.origins(next(iter(now))) if now else caught_up.empty()
        anew = LineOrigins(Path(place) / "b.db", history)
        for path, data in now.items():
            found = caught_up.origins(path)
            assert found == anew.origins(path)
            assert caught_up.times(path) == anew.times(path)
            _check_truth(path, split_lines(data), found, versions)
        caught_up.close()
        anew.close()


def _check_truth(
    path: WorkspacePath,
    lines: list[bytes],
    found: list[RevisionId],
    versions: list[tuple[RevisionId, dict[WorkspacePath, bytes]]],
) -> None:
    """The origin touched the file (or moved it), has the line, and the line stayed ever since."""
    ids = [revision for revision, _ in versions]
    assert len(found) == len(lines)
    for line, revision in zip(lines, found, strict=True):
        since = versions[ids.index(revision) :]
        holders = [any(line in split_lines(data) for data in files.values()) for _, files in since]
        assert all(holders), (path, line)
        before = versions[ids.index(revision) - 1][1] if ids.index(revision) else {}
        assert before != since[0][1]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_origins_equal_git_blame_if_lines_are_only_added_and_removed(
    data: st.DataObject,
) -> None:
    with tempfile.TemporaryDirectory() as place:
        history = History.create(Path(place) / "h.git", ManualClock())
        lines: list[bytes] = []
        for number in range(data.draw(st.integers(1, 8))):
            for _ in range(data.draw(st.integers(0, 2))):
                if lines:
                    lines.pop(data.draw(st.integers(0, len(lines) - 1)))
            new = b"line %d\n" % number
            lines.insert(data.draw(st.integers(0, len(lines))), new)
            history.record({MEMORY: b"".join(lines)}, AGENT)
        origins = LineOrigins(Path(place) / "a.db", history)
        blamed = [line.revision for line in history.blame(MEMORY)]
        assert origins.origins(MEMORY) == blamed
        origins.close()


def test_the_origin_tables_can_be_read_with_plain_sql(
    history: History, origins: LineOrigins, file: Path
) -> None:
    revision = history.record({MEMORY: b"one\ntwo\n"}, CALLER)
    origins.origins(MEMORY)
    with sqlite3.connect(file) as database:
        (runs,) = database.execute("SELECT runs FROM origin_file").fetchone()
        number = int.from_bytes(runs[:4], "little")
        assert int.from_bytes(runs[4:], "little") == 2
        found = database.execute("SELECT id FROM origin_revision WHERE number = ?", (number,))
        assert found.fetchone() == (revision,)
    database.close()


def test_the_age_of_a_line_is_the_stamp_of_the_revision_that_wrote_the_line(
    history: History, origins: LineOrigins, clock: ManualClock
) -> None:
    first = history.record({MEMORY: b"one\ntwo\n"}, CALLER)
    clock.advance(60)
    second = history.record({MEMORY: b"zero\none\ntwo\n"}, AGENT)
    a, b = history.commit(first).at, history.commit(second).at
    assert origins.ages(MEMORY, second) == [b, a, a]


def test_lines_of_an_earlier_revision_are_never_newer_than_the_revision(
    history: History, origins: LineOrigins, clock: ManualClock
) -> None:
    revisions = [history.record({MEMORY: b"gone\nkept\n"}, CALLER)]
    for text in (b"gone\nkept\nnew\n", b"kept\nnew\n", b"kept\nnew\ngone\n"):
        clock.advance(60)
        revisions.append(history.record({MEMORY: text}, AGENT))
    a, b = (history.commit(revision).at for revision in revisions[:2])
    assert origins.ages(MEMORY, revisions[0]) == [a, a]
    assert origins.ages(MEMORY, revisions[1]) == [b, a, b]
    history.record({MEMORY: None}, AGENT)
    assert origins.ages(MEMORY, revisions[1]) == [b, b, b]
    with pytest.raises(NotFound):
        origins.ages(NOTE, revisions[1])


def test_updates_give_the_last_change_of_each_file_below_a_directory(
    history: History, origins: LineOrigins, clock: ManualClock
) -> None:
    other = WorkspacePath("notes/sub/b.md")
    first = history.record({MEMORY: b"m", NOTE: b"a"}, CALLER)
    clock.advance(60)
    second = history.record({other: b"b", WorkspacePath("notes2/c.md"): b"c"}, AGENT)
    at = {NOTE: history.commit(first).at, other: history.commit(second).at}
    assert origins.updates("notes") == at
    assert origins.updates("nowhere") == {}
