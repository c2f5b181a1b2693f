"""`harness conversation` and `harness jobs`, as processes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness import Harness
from harness.jobs.job import Job
from harness.messages.event import Event
from harness.models.demo import DemoModel
from tests.harness.cli.screen import Screen
from tests.harness.cli.terminal import Terminal


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """A home with two conversations; nothing here changes them."""
    harness = Terminal(tmp_path_factory.mktemp("talked") / "home", {})
    harness("run", "remember that tea is green", "-c", "tea").done()
    harness("run", "hello", "-c", "hello").done()
    return harness


def test_conversations_are_listed_newest_first(talked: Terminal) -> None:
    table, listed, one, nobody = talked.all(
        ("conversation", "list"),
        ("conversation", "list", "--json"),
        ("conversation", "list", "-n", "1", "--json"),
        ("conversation", "list", "-a", "nobody"),
    )
    lines = [line.split() for line in table.done().out.splitlines()]
    assert lines[0] == ["key", "agent", "entries", "last", "entry", "(UTC)", "begins", "with"]
    assert [line[0] for line in lines[1:]] == ["hello", "tea"]
    assert lines[2][1:3] == ["assistant", "6"]
    assert lines[2][5:] == ["remember", "that", "tea", "is", "green"]
    assert max(map(len, table.out.splitlines())) <= 80
    narrow = Screen(talked, "conversation", "list", COLUMNS="60", TERM="xterm", NO_COLOR="1")
    assert narrow.close() == 0
    assert narrow.lines[2].endswith("  remember that…"), "as many words as fit"
    assert max(map(len, narrow.lines)) <= 60
    conversations = listed.done().json["conversations"]
    assert set(conversations[0]) == {
        "id",
        "key",
        "agentId",
        "userId",
        "createdAt",
        "updatedAt",
        "entries",
        "begins",
    }
    assert one.done().json["conversations"] == conversations[:1]
    nobody.refused("not_found")


def test_a_conversation_is_shown_by_key_or_id(talked: Terminal) -> None:
    shown = talked("conversation", "show", "tea", "--json").done().json
    by_id, newest, absent = talked.all(
        ("conversation", "show", shown["id"]),
        ("conversation", "show", "tea", "-n", "1"),
        ("conversation", "show", "coffee"),
    )
    assert [entry["entry"] for entry in shown["entries"]] == [1, 2, 3, 4, 5, 6]
    assert len(shown["sessions"]) == 1
    lines = by_id.done().out.splitlines()
    assert lines[0] == "── session 1 ──"
    assert lines[1].endswith("user  remember that tea is green")
    assert 'read  {"path": "MEMORY.md"}' in lines[2]
    assert lines[-1].endswith("assistant  I have written to MEMORY.md: tea is green.")
    assert newest.done().out.splitlines() == lines[-1:]
    absent.refused("not_found", "→ `harness conversation list` lists them")


def test_an_exported_conversation_is_imported_into_another_home(
    talked: Terminal, harness: Terminal
) -> None:
    exported = talked("conversation", "export", "tea").done()
    lines = exported.out.splitlines()
    assert json.loads(lines[0])["format"] == 1
    assert len(lines) == 8
    file = harness.home.parent / "tea.jsonl"
    file.write_text(exported.out)
    brought = harness("conversation", "import", str(file), "--json").done().json
    assert (brought["key"], brought["entries"]) == ("tea", 6)
    again = harness("conversation", "import", "-", stdin=exported.stdout)
    again.refused("already_exists")
    other = harness("conversation", "import", "-", "--key", "more", stdin=exported.stdout).done()
    assert other.out.startswith("imported: more (conv_")
    bad, missing = harness.all(
        ("conversation", "import", "-", "--key", "acct:x"), ("conversation", "import", "no.jsonl")
    )
    bad.refused("line 1")
    missing.refused("not_found")


def test_unicode_line_separators_survive_export_and_import(harness: Terminal) -> None:
    said = "one\u2028two\u2029three\x85four"
    harness("run", said, "-c", "lines").done()
    exported = harness("conversation", "export", "lines").done().stdout
    harness("conversation", "import", "-", "--key", "again", stdin=exported).done()
    shown = harness("conversation", "show", "again", "--json").done().json
    assert shown["entries"][0]["message"]["parts"] == [{"type": "text", "text": said}]


def test_a_damaged_export_is_refused_with_the_line_number(
    talked: Terminal, harness: Terminal
) -> None:
    lines = talked("conversation", "export", "tea").done().out.splitlines()
    broken = "\n".join([*lines[:4], *lines[5:]]).encode()
    harness("conversation", "import", "-", stdin=broken).refused("line 5.entry", "must be 3")
    harness("conversation", "import", "-", stdin=b"\xff").refused("UTF-8")
    assert harness("conversation", "list", "--json").done().json == {"conversations": []}


def test_a_conversation_is_forked_reset_and_deleted(harness: Terminal) -> None:
    harness("run", "remember that tea is green", "-c", "tea").done()
    fork = harness("conversation", "fork", "tea", "other", "--at", "1", "--json").done().json
    assert (fork["key"], fork["entries"]) == ("other", 1)
    reset = harness("conversation", "reset", "tea").done()
    assert reset.out == "reset: tea continues with entry 7 in a new session\n"
    harness("run", "hello", "-c", "tea").done()
    sessions = harness("conversation", "show", "tea", "--json").done().json["sessions"]
    assert [session["first"] for session in sessions] == [1, 7]
    gone = harness("conversation", "rm", "tea").done()
    assert gone.out.startswith("deleted: tea (conv_")
    assert gone.out.endswith("8 entries, 2 sessions, 0 waiting\n")
    harness("conversation", "rm", "tea").refused("not_found")
    assert harness("cat", "notes", "MEMORY.md").done().out.endswith("- tea is green\n")
    as_json = harness("conversation", "rm", "other", "--json").done().json
    assert as_json == {
        "deleted": True,
        "id": fork["id"],
        "entries": 1,
        "sessions": 1,
        "waiting": 0,
    }


def test_deleting_an_agent_reports_the_number_of_deleted_conversations(harness: Terminal) -> None:
    harness("agent", "create", "helper").done()
    harness("run", "hello", "-a", "helper").done()
    gone = harness("agent", "rm", "helper", "--json").done().json
    assert (gone["deleted"], gone["conversations"]) == (True, 1)
    assert harness("conversation", "list", "--json").done().json == {"conversations": []}


def test_an_unanswered_event_is_listed_as_a_job_and_can_be_run(harness: Terminal) -> None:
    harness("run", "hello", "-c", "c1").done()
    _leave_unanswered(harness.home)
    table, listed = harness.all(("jobs",), ("jobs", "--json"))
    assert "turn:conv_" in table.done().out
    (job,) = listed.done().json["jobs"]
    assert (job["kind"], job["attempts"], job["setAside"]) == ("turn", 0, False)
    harness("jobs", "retry", job["id"]).done()
    ran = harness("jobs", "run", "--json").done()
    assert ran.json == {"done": 1, "failed": 0}
    assert job["id"] in ran.stderr
    assert harness("jobs", "--json").done().json == {"jobs": []}
    entries = harness("conversation", "show", "c1", "--json").done().json["entries"]
    assert [entry.get("event") for entry in entries[2:]] == ["left", None]


def _leave_unanswered(home: Path) -> None:
    with Harness.open(home, model=DemoModel()) as harness:
        for one in harness.jobs.list():  # what was said is not read here
            harness.jobs.remove(one.job.id)
        harness.agents.patch("assistant", {"config": {"extract": {"enabled": False}}})
        agent, ingress = harness.agents.get("assistant"), harness.rooms.dispatcher
        accepted = ingress.event_queue.accept(
            agent.id, Event.said("left", "c1", "hello?"), rejects=False
        )
        assert accepted.lease is not None
        ingress.leases.release(accepted.lease)


def test_jobs_lists_the_earliest_due_jobs_and_counts_the_rest(
    harness: Terminal,
) -> None:
    harness("run", "hello", "-c", "c1").done()
    _leave_unanswered(harness.home)
    with Harness.open(harness.home, model=DemoModel()) as opened:
        for number in range(3):
            opened.jobs.enqueue(Job(f"later:{number}", "later", datetime(2030, 1, 1, tzinfo=UTC)))
    table, listed = harness.all(("jobs", "-n", "2"), ("jobs", "--limit", "1", "--json"))
    assert "later:0" in table.done().out
    assert "later:1" not in table.out
    assert "… and 2 that are due later" in table.stderr
    assert [job["kind"] for job in listed.done().json["jobs"]] == ["turn"]


def test_a_job_can_be_deleted_and_an_unknown_job_is_not_found(harness: Terminal) -> None:
    harness("run", "hello", "-c", "c1").done()
    _leave_unanswered(harness.home)
    (job,) = harness("jobs", "--json").done().json["jobs"]
    assert harness("jobs", "rm", job["id"]).done().out == f"deleted: {job['id']}\n"
    missing, again = harness.all(("jobs", "rm", job["id"]), ("jobs", "retry", "nothing"))
    missing.refused("not_found", "→ `harness jobs` lists them")
    again.refused("not_found")
    # the event is still in line: whoever comes next answers it first
    harness("run", "and me?", "-c", "c1").done()
    with closing(sqlite3.connect(harness.home / "state.db")) as connection:
        (left,) = connection.execute(
            "select count(*) from item where sort glob '0*' and partition glob 'inbox:*'"
        ).fetchone()
    assert left == 0
