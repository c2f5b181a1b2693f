from __future__ import annotations

from pathlib import Path

import pytest

from tests.workspaces.conftest import CALLER
from tests.workspaces.replicas import MemoryPrefix, Replica
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.remote.bucket import SharedBucket
from workspaces.revision import FIELD_CHARACTERS_MAX
from workspaces.storage.in_memory import MemoryRecords
from workspaces.sync.incoming import SYNC
from workspaces.tree.merge_marks import (
    LINES_MAX,
    MergeMark,
    Pair,
    describe_merge,
    marks_since,
    open_marks,
    pairs,
    trailer_of,
)
from workspaces.workspace.incoming_changes import IncomingChange

MEMORY = WorkspacePath("MEMORY.md")


@pytest.fixture
def two(tmp_path: Path) -> tuple[Replica, Replica]:
    """Two machines that agree on a MEMORY.md and a note."""
    records, place = MemoryRecords(), SharedBucket("memory:", MemoryPrefix())
    a, b = (Replica(tmp_path / name, records, place) for name in ("a", "b"))
    a.put("MEMORY.md", "- top\n- tea\n- end\n")
    a.put("notes/fact.md", "---\nvalue: one\ntags: x\n---\nbody\n")
    a.sync.run()
    b.sync.run()
    return a, b


def seams(machine: Replica) -> list[MergeMark]:
    tip = machine.workspace.history.tip()
    assert tip is not None
    return marks_since(machine.workspace.history, tip, None)


def still_open(machine: Replica) -> list[MergeMark]:
    log = machine.workspace.log(limit=200)
    return open_marks(machine.workspace.history, [(one.id, one.trailers) for one in log])


def test_adjacent_lines_of_two_sides_are_a_pair() -> None:
    one, other = "- top\n- green\n- end\n", "- top\n- black\n- white\n- end\n"
    merged = "- top\n- black\n- white\n- green\n- end\n"
    assert pairs(one, other, merged) == (Pair(("- green",), ("- black", "- white")),)


def test_lines_of_a_single_side_are_no_pair() -> None:
    assert pairs("a\nb\n", "a\nc\nd\ne\nb\n", "a\nc\nd\ne\nb\n") == ()
    assert pairs("1\na\nb\nc\n", "a\nb\nc\n2\n", "1\na\nb\nc\n2\n") == ()


def test_a_very_long_file_has_no_pairs() -> None:
    long = "x\n" * LINES_MAX
    assert pairs(f"{long}a\n", f"{long}b\n", f"{long}b\na\n") == ()


@pytest.mark.parametrize(
    ("overlaps", "clashes", "told"),
    [
        (0, (), ""),
        (1, (), "1 place"),
        (2, ("a",), "2 places, keys a"),
        (0, ("a", "b"), "keys a, b"),
    ],
)
def test_a_merge_is_described_by_its_places_and_keys(
    overlaps: int, clashes: tuple[str, ...], told: str
) -> None:
    assert describe_merge(overlaps, clashes) == told


def test_the_merged_trailer_is_cut_to_its_limit_and_counts_the_rest() -> None:
    many = {WorkspacePath(f"notes/{number:030}.md"): "1 place" for number in range(100)}
    trailer = trailer_of(many)
    kept = trailer.count("1 place")
    assert len(trailer) <= FIELD_CHARACTERS_MAX
    assert 5 < kept < 100 and trailer.endswith(f" | and {100 - kept} more")


def test_a_merge_mark_names_its_place_with_the_lines_of_both_sides(
    two: tuple[Replica, Replica],
) -> None:
    a, b = two
    a.put("MEMORY.md", "- top\n- green tea\n- end\n")
    b.put("MEMORY.md", "- top\n- black tea\n- end\n")
    a.put("notes/fact.md", "---\nvalue: two\ntags: x\n---\nbody\n")
    b.put("notes/fact.md", "---\nvalue: three\ntags: x\n---\nbody\n")
    a.sync.run()
    report = b.sync.run()
    assert sorted(report.merged) == ["MEMORY.md", "notes/fact.md"]
    fact, memory = sorted(seams(b), key=lambda seam: seam.path, reverse=True)
    assert (memory.path, memory.summary) == (MEMORY, "1 place")
    assert memory.pairs == (Pair(("- green tea",), ("- black tea",)),) or memory.pairs == (
        Pair(("- black tea",), ("- green tea",)),
    )
    assert (fact.path, fact.summary, fact.pairs) == ("notes/fact.md", "keys value", ())


def test_a_merge_without_the_remote_history_names_its_merge_marks_in_a_trailer(
    two: tuple[Replica, Replica],
) -> None:
    """Where the history of the other side was not to be had."""
    a, _ = two
    green, black = b"- top\n- green tea\n- end\n", b"- top\n- black tea\n- end\n"
    a.workspace.write("MEMORY.md", green, by=CALLER)
    both = b"- top\n- black tea\n- green tea\n- end\n"
    arrival = IncomingChange(MEMORY, both, version_of(green), beside=black, merge_summary="1 place")
    a.workspace.incoming.apply([arrival], by=SYNC)
    assert a.workspace.log(limit=1)[0].trailers["Merged"] == "MEMORY.md: 1 place"
    assert seams(a) == [MergeMark(MEMORY, seams(a)[0].revision, "1 place", seams(a)[0].pairs)]
    assert seams(a)[0].pairs == (Pair(("- green tea",), ("- black tea",)),)


def test_changes_that_do_not_overlap_leave_no_merge_mark(two: tuple[Replica, Replica]) -> None:
    a, b = two
    a.put("MEMORY.md", "- first\n- top\n- tea\n- end\n")
    b.put("MEMORY.md", "- top\n- tea\n- end\n- last\n")
    a.sync.run()
    assert b.sync.run().merged == ["MEMORY.md"]
    assert seams(b) == []


def test_a_merge_mark_is_open_until_its_file_changes(two: tuple[Replica, Replica]) -> None:
    a, b = two
    a.put("MEMORY.md", "- top\n- green tea\n- end\n")
    b.put("MEMORY.md", "- top\n- black tea\n- end\n")
    a.sync.run()
    b.sync.run()
    b.workspace.write("notes/other.md", "x\n", by=CALLER)
    assert [seam.path for seam in still_open(b)] == [MEMORY]
    b.workspace.write("MEMORY.md", "- top\n- green tea\n- end\n", by=CALLER)
    assert still_open(b) == []
    assert [seam.path for seam in seams(b)] == [MEMORY]


def test_merge_marks_since_a_revision_are_only_the_newer_merge_marks(
    two: tuple[Replica, Replica],
) -> None:
    a, b = two

    def clash(one: str, other: str) -> None:
        a.put("MEMORY.md", one)
        b.put("MEMORY.md", other)
        a.sync.run()
        b.sync.run()
        a.sync.run()

    clash("- 1a\n", "- 1b\n")
    known, history = b.workspace.history.tip(), b.workspace.history
    b.workspace.write("notes/other.md", "x\n", by=CALLER)
    clash("- 2a\n", "- 2b\n")
    tip = b.workspace.history.tip()
    assert tip is not None
    since = marks_since(history, tip, known)
    assert [seam.path for seam in since] == [MEMORY]
    assert len(seams(b)) == 2
    assert marks_since(history, tip, tip) == []
