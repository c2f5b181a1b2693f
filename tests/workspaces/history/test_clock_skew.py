"""Two machines, one with a clock more than a year ahead: stamps, dates, merge marks and problems."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from tests.workspaces.conftest import CALLER
from tests.workspaces.replicas import MemoryPrefix, Replica
from workspaces.clock import ManualClock
from workspaces.history.history import STEPS_BACK, History
from workspaces.paths import WorkspacePath
from workspaces.remote.bucket import SharedBucket
from workspaces.revision import RevisionId
from workspaces.search.recall import Scope
from workspaces.storage.in_memory import MemoryRecords
from workspaces.timestamp import AHEAD_MAX, Stamp, stamp_of
from workspaces.tree.merge_marks import marks_since

DAY_S = 86_400.0
AHEAD_S = 400 * DAY_S
MEMORY = WorkspacePath("MEMORY.md")


@dataclass
class Two:
    right: Replica
    clock: ManualClock
    ahead: Replica
    clock_ahead: ManualClock

    def now(self) -> Stamp:
        return stamp_of(self.clock.now())

    def sync(self) -> None:
        for one in (self.ahead, self.right, self.ahead):
            one.sync.run()


@pytest.fixture
def two(tmp_path: Path) -> Two:
    records, place = MemoryRecords(), SharedBucket("memory:", MemoryPrefix())
    clock = ManualClock()
    right = Replica(tmp_path / "right", records, place, clock)
    clock_ahead = ManualClock(clock.now() + timedelta(seconds=AHEAD_S))
    return Two(right, clock, Replica(tmp_path / "ahead", records, place, clock_ahead), clock_ahead)


def test_a_clock_far_ahead_stamps_only_its_own_revisions(two: Two) -> None:
    two.ahead.workspace.write("MEMORY.md", "- from ahead\n", by=CALLER)
    two.sync()
    history = two.right.workspace.history
    poison = history.tip()
    assert poison is not None
    assert history.commit(poison).at > stamp_of(two.clock.now() + timedelta(days=399))
    two.clock.advance(60)
    written = two.right.workspace.write("MEMORY.md", "- from ahead\n- new\n", by=CALLER)
    assert written.revision is not None
    assert history.commit(written.revision).at == two.now()
    assert history.descends(written.revision, poison)
    two.sync()
    two.clock_ahead.jump(-AHEAD_S)  # somebody has set it
    mended = two.ahead.workspace.write("MEMORY.md", "- mended\n", by=CALLER).revision
    assert mended is not None
    made = two.ahead.workspace.history.commit(mended).at
    assert stamp_of(two.clock.now() - AHEAD_MAX) < made < stamp_of(two.clock.now() + AHEAD_MAX)


def test_a_line_stamped_far_ahead_is_dated_tomorrow_on_arrival_and_ages_from_then(
    two: Two,
) -> None:
    two.ahead.workspace.write("MEMORY.md", "- tea is green\n", by=CALLER)
    two.sync()
    recall, origins = two.right.workspace.recall, two.right.workspace.origins
    tomorrow = stamp_of(two.clock.now() + AHEAD_MAX)
    tip = two.right.workspace.history.tip()
    assert tip is not None
    for _ in range(3):
        (line,) = recall.find("tea")
        assert line.updated_at == tomorrow
        assert origins.ages(MEMORY, tip) == [tomorrow]
        assert origins.times(MEMORY).updated_at == tomorrow
        two.clock.advance(10 * DAY_S)
    week_ago = stamp_of(two.clock.now() - timedelta(days=7))
    assert recall.find("tea", scope=Scope(since=week_ago)) == []
    two.right.workspace.write("MEMORY.md", "- tea is black\n", by=CALLER)
    (line,) = recall.find("tea", scope=Scope(since=week_ago))
    assert line.updated_at == two.now()


def test_a_unit_with_lines_of_two_revisions_is_dated_by_the_descendant(two: Two) -> None:
    two.ahead.workspace.write("MEMORY.md", "- tea\n  is green\n", by=CALLER)
    two.sync()
    two.right.workspace.write("MEMORY.md", "- tea\n  is black\n", by=CALLER)
    (line,) = two.right.workspace.recall.find("tea")
    assert (line.revision, line.updated_at) == (two.right.workspace.history.tip(), two.now())


def test_a_clock_problem_names_the_revision_and_the_two_clocks(two: Two) -> None:
    two.right.workspace.write("other.md", "x\n", by=CALLER)
    two.ahead.workspace.write("MEMORY.md", "- from ahead\n", by=CALLER)
    poison = two.ahead.workspace.history.tip()
    assert poison is not None
    two.sync()
    two.right.workspace.write("MEMORY.md", "- later\n", by=CALLER)
    assert len(two.right.workspace.history.commit(_merge_in(two.right)).parents) == 2
    (problem,) = two.right.workspace.edits.problems()
    assert problem.kind == "clock"
    assert poison[:10] in problem.detail
    assert "one of the two clocks is wrong" in problem.detail
    assert "more)" not in problem.detail  # the merge repeats it, and later ones are this clock's
    assert two.ahead.workspace.edits.problems() == []
    two.clock.advance(AHEAD_S - DAY_S)
    assert two.right.workspace.edits.problems() == []


def test_a_merge_with_the_same_stamp_as_a_known_revision_still_shows_its_merge_marks(
    two: Two,
) -> None:
    two.right.workspace.write("MEMORY.md", "- top\n- tea\n", by=CALLER)
    two.sync()
    two.right.workspace.write("MEMORY.md", "- top\n- green tea\n", by=CALLER)
    known = two.ahead.workspace.write("MEMORY.md", "- top\n- black tea\n", by=CALLER).revision
    two.right.sync.run()
    two.ahead.sync.run()
    history = two.ahead.workspace.history
    tip = history.tip()
    assert known is not None
    assert tip is not None
    assert history.commit(tip).at == history.commit(known).at
    assert [seam.path for seam in marks_since(history, tip, known)] == [MEMORY]
    assert marks_since(history, tip, tip) == []


def test_ancestry_is_found_although_the_clock_went_back(tmp_path: Path) -> None:
    """Git looks for ancestors by date, and gives up after a few that are older than what it looks for."""
    clock = ManualClock()
    history = History.create(tmp_path / "h.git", clock)
    made = [history.record({MEMORY: b"0"}, CALLER)]
    clock.jump(-AHEAD_S)
    made += [history.record({MEMORY: b"%d" % n}, CALLER) for n in range(1, STEPS_BACK + 20)]
    assert history.commit(made[-1]).at == stamp_of(
        clock.now() + timedelta(microseconds=STEPS_BACK + 18)
    )
    assert history.descends(made[-1], made[0])
    assert [one.id for one in history.log(limit=1000)] == made[::-1]
    steps = history.steps(made[0], made[-1])
    assert steps is not None
    assert [step.revision for step in steps] == made[1:]
    since = history.log(start=made[-1], since=made[-3], limit=10)
    assert [one.id for one in since] == [made[-1], made[-2]]
    places = [history.commit(one).place for one in made]
    assert places == sorted(set(places))
    told = subprocess.run(
        ["git", f"--git-dir={tmp_path / 'h.git'}", "fsck", "--strict"], capture_output=True
    )
    assert told.returncode == 0, told.stderr


def _merge_in(machine: Replica) -> RevisionId:
    log = machine.workspace.log(limit=100)
    return next(one.id for one in log if len(one.parents) == 2)
