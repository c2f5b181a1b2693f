from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.clock import ManualClock
from workspaces.errors import NotFound
from workspaces.history.file_origins import FileOrigins
from workspaces.history.history import History
from workspaces.history.source import ADOPTED, StatedOrigin
from workspaces.paths import WorkspacePath
from workspaces.revision import SYNC, Author, RevisionId, RevisionSource
from workspaces.timestamp import Stamp

TEA = WorkspacePath("facts/tea.md")
CITY = WorkspacePath("facts/city.md")
OTHER = WorkspacePath("notes/other.txt")
PERSON = Author("Ada", "usr_1", "edit")


@pytest.fixture
def history(tmp_path: Path, clock: ManualClock) -> History:
    return History.create(tmp_path / "h.git", clock)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "search" / "x.db"


@pytest.fixture
def origins(file: Path, history: History) -> Iterator[FileOrigins]:
    origins = FileOrigins(file, history)
    yield origins
    origins.close()


def stamp(history: History, revision: RevisionId) -> Stamp:
    return history.commit(revision).at


@pytest.mark.parametrize(
    ("writer", "source"),
    [
        ("api", "manual"),
        ("edit", "manual"),
        ("turn", "auto"),
        ("mcp", "auto"),
        ("extract", "auto"),
        ("sleep", "auto"),
        ("director", "director"),
        ("memorize", "memorize"),
        ("sync", "auto"),
    ],
)
def test_the_source_of_a_file_follows_from_who_wrote_its_body(
    history: History, origins: FileOrigins, writer: RevisionSource, source: str
) -> None:
    history.record({TEA: b"likes tea\n"}, Author("w", "id_1", writer))
    assert origins.origin_of(TEA).source == source
    assert origins.origin_of(TEA).author == "id_1"


def test_the_stamps_are_those_of_the_first_and_the_newest_revision(
    history: History, origins: FileOrigins, clock: ManualClock
) -> None:
    first = history.record({TEA: b"1\n"}, CALLER)
    clock.advance(60)
    history.record({CITY: b"1\n"}, CALLER)
    clock.advance(60)
    third = history.record({TEA: b"2\n"}, CALLER)
    found = origins.origin_of(TEA)
    assert found.created_at == stamp(history, first)
    assert found.updated_at == stamp(history, third)
    assert found.revision == third


def test_front_matter_alone_changes_the_stamp_but_neither_source_nor_author(
    history: History, origins: FileOrigins
) -> None:
    history.record({TEA: b"likes tea\n"}, AGENT)
    pinned = history.record({TEA: b"---\npinned: true\n---\nlikes tea\n"}, PERSON)
    found = origins.origin_of(TEA)
    assert (found.source, found.author) == ("auto", AGENT.id)
    assert found.updated_at == stamp(history, pinned)
    history.record({TEA: b"---\npinned: true\n---\nlikes green tea\n"}, PERSON)
    assert (origins.origin_of(TEA).source, origins.origin_of(TEA).author) == ("manual", "usr_1")


def test_a_revision_without_a_change_can_adopt_a_body(
    history: History, origins: FileOrigins
) -> None:
    written = history.record({TEA: b"likes tea\n"}, AGENT)
    history.record({}, CALLER.saying(ADOPTED, TEA))
    found = origins.origin_of(TEA)
    assert (found.source, found.author) == ("manual", CALLER.id)
    assert found.updated_at == stamp(history, written)


def test_a_turn_cannot_adopt_a_body(history: History, origins: FileOrigins) -> None:
    history.record({TEA: b"likes tea\n"}, AGENT)
    history.record({}, AGENT.saying(ADOPTED, TEA))
    assert origins.origin_of(TEA).source == "auto"


def test_a_body_changed_back_belongs_to_who_changed_it_back(
    history: History, origins: FileOrigins
) -> None:
    history.record({TEA: b"likes tea\n"}, PERSON)
    history.record({TEA: b"likes coffee\n"}, PERSON)
    history.record({TEA: b"likes tea\n"}, AGENT)
    assert origins.origin_of(TEA).source == "auto"


def test_a_file_deleted_and_made_again_is_new(
    history: History, origins: FileOrigins, clock: ManualClock
) -> None:
    history.record({TEA: b"1\n"}, CALLER)
    history.record({TEA: None}, CALLER)
    with pytest.raises(NotFound):
        origins.origin_of(TEA)
    clock.advance(60)
    again = history.record({TEA: b"1\n"}, AGENT)
    assert origins.origin_of(TEA).created_at == stamp(history, again)
    assert origins.origin_of(TEA).source == "auto"


def test_below_lists_the_files_of_one_directory(history: History, origins: FileOrigins) -> None:
    history.record({TEA: b"1\n", CITY: b"1\n", OTHER: b"1\n"}, CALLER)
    history.record({CITY: b"2\n", OTHER: None}, AGENT)
    assert {path: one.source for path, one in origins.below("facts").items()} == {
        CITY: "auto",
        TEA: "manual",
    }
    assert list(origins.below("")) == [CITY, TEA]


def test_a_merge_of_two_bodies_is_believed_as_the_lesser(tmp_path: Path) -> None:
    here, there = _two(tmp_path, {TEA: b"a\n\nb\n"})
    here.record({TEA: b"A\n\nb\n"}, PERSON)
    there.record({TEA: b"a\n\nB\n"}, AGENT)
    _follow(here, there, {TEA: b"A\n\nB\n"})
    found = _origins(tmp_path, here).origin_of(TEA)
    assert (found.source, found.author) == ("auto", AGENT.id)


@pytest.mark.parametrize("text", [b"mine\n", b"theirs\n"])
def test_a_merge_that_takes_one_side_keeps_that_sides_origin(tmp_path: Path, text: bytes) -> None:
    here, there = _two(tmp_path, {TEA: b"old\n", CITY: b"x\n"})
    known = _origins(tmp_path, here)
    mine = here.record({TEA: b"mine\n"}, PERSON)
    assert known.origin_of(TEA).source == "manual"
    theirs = there.record({TEA: b"theirs\n"}, AGENT)
    _follow(here, there, {TEA: text})
    expected = ("manual", mine) if text == b"mine\n" else ("auto", theirs)
    for origins in (known, _origins(tmp_path, here, "again")):
        found = origins.origin_of(TEA)
        assert (found.source, found.revision) == expected


def test_a_merge_that_takes_an_unchanged_side_finds_its_older_origin(tmp_path: Path) -> None:
    here, there = _two(tmp_path, {TEA: b"old\n", CITY: b"x\n"})
    known = _origins(tmp_path, here)
    here.record({TEA: b"mine\n"}, AGENT)
    assert known.origin_of(TEA).source == "auto"
    there.record({CITY: b"y\n"}, AGENT)
    _follow(here, there, {TEA: b"old\n"})
    assert known.origin_of(TEA).source == "manual"
    assert known.below("") == _origins(tmp_path, here, "again").below("")


def test_an_adoption_on_one_side_survives_a_merge(tmp_path: Path) -> None:
    here, there = _two(tmp_path, {CITY: b"x\n"})
    here.record({TEA: b"likes tea\n"}, AGENT)
    shutil.rmtree(tmp_path / "there.git")
    shutil.copytree(tmp_path / "here.git", tmp_path / "there.git")
    there = History(tmp_path / "there.git", ManualClock())
    here.record({CITY: b"y\n"}, AGENT)
    there.record({}, CALLER.saying(ADOPTED, TEA))
    _follow(here, there, {CITY: b"y\n"})
    assert _origins(tmp_path, here).origin_of(TEA).source == "manual"


def test_what_came_before_its_history_has_the_origin_that_the_store_told(tmp_path: Path) -> None:
    here, there = _two(tmp_path, {CITY: b"x\n"})
    written = there.record({TEA: b"likes tea\n"}, PERSON)
    at = stamp(there, written)
    key, value = StatedOrigin(at, at, "manual", "usr_1").trailer(TEA)
    here.record({TEA: b"likes tea\n"}, SYNC.saying(key, value))
    origins = _origins(tmp_path, here)
    found = origins.origin_of(TEA)
    assert found[3:] == (at, at, "manual", "usr_1")
    _follow(here, there, {})
    assert origins.origin_of(TEA)[3:] == found[3:]
    assert _origins(tmp_path, there, "there").origin_of(TEA)[3:] == found[3:]


def test_only_a_sync_can_tell_where_a_file_came_from(
    history: History, origins: FileOrigins
) -> None:
    claim = "2020-01-01T00:00:00.000000Z 2020-01-01T00:00:00.000000Z manual usr_1"
    history.record({TEA: b"x\n"}, AGENT.saying(f"Received {TEA}", claim))
    assert origins.origin_of(TEA).source == "auto"


def test_a_damaged_database_is_rebuilt(history: History, file: Path) -> None:
    history.record({TEA: b"1\n"}, CALLER)
    origins = FileOrigins(file, history)
    before = origins.below("")
    origins.close()
    file.write_bytes(b"no database, surely" * 1000)
    assert origins.below("") == before
    origins.close()


def test_a_replaced_history_discards_what_was_stored(
    history: History, tmp_path: Path, clock: ManualClock, file: Path
) -> None:
    history.record({TEA: b"1\n"}, CALLER)
    known = FileOrigins(file, history)
    known.below("")
    known.close()
    other = History.create(tmp_path / "other.git", clock)
    other.record({CITY: b"1\n"}, AGENT)
    replaced = FileOrigins(file, other)
    assert list(replaced.below("")) == [CITY]
    replaced.close()


BODIES = st.sampled_from(
    [b"a\n", b"b\n", b"c\n", b"---\npinned: true\n---\na\n", b"---\nx: 1\n---\nb\n"]
)
CHANGE = st.dictionaries(
    st.sampled_from([TEA, CITY, OTHER]), st.none() | BODIES, min_size=1, max_size=2
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["here", "there", "merge here", "merge there"]),
        CHANGE,
        st.sampled_from(["api", "turn", "memorize"]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.sets(st.integers(0, 11)))
def test_two_histories_that_meet_have_the_same_origins_however_they_are_read(
    steps: list[tuple[str, dict[WorkspacePath, bytes | None], RevisionSource]], asked: set[int]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        here, there = _two(Path(place), {TEA: b"a\n"})
        caught_up = _origins(Path(place), here)
        for number, (what, change, writer) in enumerate(steps):
            by = Author("w", f"id_{number}", writer)
            match what:
                case "here":
                    _record(here, change, by)
                case "there":
                    _record(there, change, by)
                case "merge here":
                    _follow(here, there, change)
                case _:
                    _follow(there, here, change)
            if number in asked:
                caught_up.below("")
        _follow(here, there, {})
        _follow(there, here, {})
        assert here.tip() == there.tip()
        expected = _origins(Path(place), there, "there").below("")
        assert list(expected) == list(here.tree(here.tip()))
        assert caught_up.below("") == expected
        caught_up.empty()
        assert caught_up.below("") == expected


def _record(history: History, change: dict[WorkspacePath, bytes | None], by: Author) -> None:
    tree = history.tree(history.tip())
    wanted = {path: data for path, data in change.items() if data is not None or path in tree}
    if wanted:
        history.record(wanted, by)


def _two(place: Path, files: dict[WorkspacePath, bytes]) -> tuple[History, History]:
    """Two machines with one history so far."""
    here = History.create(place / "here.git", ManualClock())
    here.record(files, PERSON)
    shutil.copytree(place / "here.git", place / "there.git")
    return here, History(place / "there.git", ManualClock())


def _follow(ours: History, theirs: History, files: dict[WorkspacePath, bytes | None]) -> None:
    """Bring the revisions of one history into the other, with these files in the merge."""
    tip, known = theirs.tip(), ours.tip()
    assert tip and known
    if ours.has(tip) and ours.descends(known, tip):
        return
    with ours.quarantine() as quarantine:
        for _, bundle in theirs.bundles(tip, [known] if theirs.has(known) else []):
            quarantine.take(bundle)
        quarantine.check()
        ours.receive(quarantine, tip)
        tree = ours.tree(tip)
        wanted = {path: data for path, data in files.items() if data is not None or path in tree}
        ours.follow(tip, {} if ours.descends(tip, known) else wanted, SYNC)


def _origins(place: Path, history: History, name: str = "here") -> FileOrigins:
    return FileOrigins(place / "search" / f"{name}.db", history)
