"""`harness extract` and `harness sleep`."""

from __future__ import annotations

from tests.harness.cli.terminal import Terminal

SAID = (
    "We use PostgreSQL 16 for the orders service in production. I prefer answers with a table first. "
    "The deploy scripts live in ops/deploy of the large repository, beside the old ones."
)


def test_facts_are_tried_stored_and_not_stored_again(harness: Terminal) -> None:
    harness("run", "-c", "c1", SAID).done()
    told = harness("extract", "c1", "--dry-run", "--json").done().json
    assert (told["status"], told["model"]) == ("proposed", "demo")
    assert [one["key"] for one in told["facts"]] == [
        "auto:we-use-postgresql-16",
        "auto:the-deploy-scripts-live",
    ]
    assert told["dropped"] == {"no_place": 1}
    assert harness("memory", "list").done().out == ""
    stored = harness("extract", "c1").done()
    assert "stored (workspace): auto:we-use-postgresql-16: We use PostgreSQL 16" in stored.out
    again = harness("extract", "c1").done()
    assert (again.out, "fewer than 200 characters" in again.stderr) == ("", True)
    shown = harness("status").done().out
    assert "read once, 2 facts stored" in shown


def test_sleep_rewrites_the_core_block(harness: Terminal) -> None:
    harness("run", "-c", "c1", SAID).done()
    told = harness("sleep", "c1", "--dry-run").done().out
    assert "would be written: core memory, scope user" in told
    assert harness("block", "list", "--json").done().json == {"blocks": []}
    harness("sleep", "c1").done()
    shown = harness("block", "show", "core", "--json").done().json
    assert shown["content"] == "- I prefer answers with a table first"
