"""The made-up home: each page of the console has something to show, and nothing real is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Harness
from harness.memorize.proof import proof_reports
from harness.presentation.demo_home import make_demo_home
from workspaces.errors import Refused


def test_the_demo_home_has_something_of_everything(tmp_path: Path) -> None:
    make_demo_home(tmp_path / "demo")
    with Harness.open(tmp_path / "demo") as harness:
        garden, rooms = harness.workspaces.get("garden"), harness.rooms
        sources = {fact.source for fact in rooms.facts.over(garden).list()}
        assert sources == {"manual", "auto", "memorize"}
        (memorized,) = rooms.memorizer.memories.all()
        (report,) = proof_reports(rooms.memorizer.archives, [memorized])
        assert (report.state, len(report.proofs)) == ("fresh", 1)
        assert any(fact.pinned for fact in rooms.facts.over(garden).list())
        assert [problem.kind for problem in garden.edits.problems()] == ["conflict"]
        assert len(garden.log()) > 8
        assert {one.key for one in rooms.conversations.list()} >= {"planning", "beans", "shared"}
        waiting = [call for one in rooms.conversations.list() for call in harness.pending(one)]
        assert [call.call.name for call in waiting] == ["write"]
        statuses = [view.run.status for view in rooms.runs.list("gardener")]
        assert sorted(statuses) == ["failed", "succeeded", "succeeded"]
        assert rooms.runs.memory("gardener").status == "Carrying context"
        planner = harness.agents.get("planner").id
        views = rooms.decisions.list(planner)
        assert [view.run.resolution_status for view in views] == [None, "resolved", "resolved"]
        assert views[0].conviction is not None
        assert len(rooms.runs.re_examinations(views[0].run.id)) == 2
        assert rooms.decisions.tally(views) == {"good": 1, "bad": 1, "hitRate": 0.5}
        assert len(rooms.blocks.list("agent", "gardener")) == 2
        rules = rooms.forbidding.list()
        assert [rule.kind for rule in rules] == ["detector", "text", "pattern"]
        assert {rule: one.count for rule, one in rooms.forbidding.stops().items()} == {
            rules[2].id: 1
        }
        assert [one.entry.name for one in rooms.trash.list()] == ["balcony"]


def test_a_directory_that_holds_anything_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(Refused, match="not empty"):
        make_demo_home(tmp_path)
    with pytest.raises(Refused, match="not empty"):
        make_demo_home(tmp_path / "mine.txt")
    assert [one.name for one in tmp_path.iterdir()] == ["mine.txt"]
