"""`harness status`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from harness import Harness
from harness.jobs.job import Job
from harness.presentation.status import SECTIONS, StatusRow, status
from tests.harness.cli.terminal import Terminal
from workspaces.errors import Unavailable


def test_status_shows_the_state_of_workspaces_and_changes_nothing(harness: Terminal) -> None:
    harness("run", "Remember that tea is green.").done()
    root = Path(harness("path", "notes").out.strip())
    (root / "TASKS.md").write_text("- [ ] 2020-01-01 renew the pass\n- [x] done\n- [ ] call Ann\n")
    (root / "bad:name.md").write_text("x")
    (root / ".MEMORY.md.swp").write_text("an editor's")
    told = harness("status", "--json").done().json
    notes = told["workspaces"]
    assert [line["state"] for line in notes] == ["ok", "pending", "problem"]
    assert notes[0]["last"]["author"] == "assistant"
    assert notes[0]["files"] == 3
    assert notes[1]["paths"] == ["TASKS.md"]
    assert (notes[2]["path"], notes[2]["kind"]) == ("bad:name.md", "bad_name")
    assert notes[2]["remedy"]
    assert [(line["state"], line["told"]) for line in told["tasks"]] == [
        ("due", "2020-01-01 renew the pass"),
        ("ok", "2 open"),
    ]
    shown = harness("status").done().out
    assert "assistant · MEMORY.md: +1 −0 · tea is green" in shown
    assert "TASKS.md: edited by hand, in no revision yet" in shown
    harness("log", "notes").done()
    again = harness("status", "--json").json["workspaces"]
    assert [line["state"] for line in again] == ["ok", "problem"]
    assert again[0]["last"]["author"] == "owner"


def test_a_workspace_with_a_missing_directory_is_listed_as_a_problem(harness: Terminal) -> None:
    harness("workspace", "create", "other").done()
    Path(harness("path", "other").out.strip()).rename(harness.home / "away")
    lines = harness("status", "--json").done().json["workspaces"]
    assert {line["subject"]: line["state"] for line in lines} == {"notes": "ok", "other": "problem"}


def test_a_failing_status_section_does_not_hide_the_remaining_sections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def jobs(_: Harness) -> Iterator[StatusRow]:
        yield StatusRow("nightly", "due", "since Monday")
        raise Unavailable("jobs", "the list cannot be read", remedy="look again")

    monkeypatch.setitem(SECTIONS, "jobs", jobs)
    with Harness.open(tmp_path / "home") as harness:
        sections = {section.name: section.lines for section in status(harness)}
    assert list(sections) == [
        "workspaces",
        "agents",
        "tasks",
        "conversations",
        "schedules",
        "jobs",
        "learning",
        "machines",
        "home",
    ]
    assert [line.state for line in sections["jobs"]] == ["due", "problem"]
    assert sections["jobs"][1].remedy == "look again"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_listed_as_a_problem(harness: Terminal) -> None:
    file = Path(harness("path", "notes", "MEMORY.md").out.strip())
    file.chmod(0)
    lines = harness("status", "--json").done().json["workspaces"]
    assert "problem" in {line["state"] for line in lines}


def test_status_and_run_name_memory_that_the_prompt_does_not_show(harness: Terminal) -> None:
    lines = "".join(f"- item {number} is a thing to know\n" for number in range(2_000))
    assert harness("status", "--json").done().json["agents"] == []
    for name in ("team", "old"):
        harness("workspace", "create", name).done()
    harness("agent", "create", "helper", "-w", "team", "-w", "old").done()
    harness("write", "team", "MEMORY.md", stdin=lines.encode()).done()
    harness("workspace", "rm", "old", "--force").done()
    gone, cut = harness("status", "--json").done().json["agents"]
    assert (gone["subject"], gone["missingMount"]) == ("helper", "old")
    assert "harness agent set helper --workspace" in gone["remedy"]
    parts = harness("prompt", "--agent", "helper", "--json").done().json
    (part,) = [part for part in parts if part["source"] == "memory/team"]
    notes = part.get("notesLeftOut", 0)
    assert (cut["mount"], cut["linesLeftOut"]) == ("team", part["linesLeftOut"] - notes)
    shown = harness("status").done().out
    assert "mount 'old' is gone: its workspace or sandbox was deleted" in shown
    assert f"{cut['linesLeftOut']:,} lines of MEMORY.md in 'team' do not fit" in shown
    said = harness("run", "--agent", "helper", "hello").done()
    assert said.stderr.splitlines()[1:] == [
        f"memory: {cut['linesLeftOut']:,} lines of MEMORY.md did not fit into the prompt",
        "mount 'old' is gone: its workspace or sandbox was deleted (`harness status`)",
    ]


def test_status_lists_trees_that_no_record_names(harness: Terminal) -> None:
    assert harness("status", "--json").done().json["home"] == []
    name = f"fs-{'0123456789' * 4}"
    (harness.home / "workspaces" / name).mkdir()
    (row,) = harness("status", "--json").done().json["home"]
    assert (row["namespace"], row["state"]) == (name, "problem")
    assert "harness admin adopt --dry-run" in row["remedy"]
    assert "fs-01234567  files or history without a record" in harness("status").done().out


def test_overdue_jobs_are_listed_as_due(tmp_path: Path) -> None:
    with Harness.open(tmp_path / "home") as harness:
        now = harness.rooms.clock.now()
        harness.jobs.enqueue(Job("tidy:ws_1", "tidy", now - timedelta(hours=1)))
        harness.jobs.enqueue(Job("tidy:ws_2", "tidy", now + timedelta(hours=1)))
        sections = {section.name: section.lines for section in status(harness)}
    assert [(line.subject, line.state) for line in sections["jobs"]] == [("tidy:ws_1", "due")]
