"""Facts at two servers that share records and S3, each with a home of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from harness import Harness
from harness.memory.facts.fact import Fact
from harness.memory.facts.facts import FactChange, Facts
from tests.dynamodb_server import dynamodb, dynamodb_url
from tests.harness.web.serving import Home
from tests.harness.web.test_shared_records import homes
from workspaces.clock import ManualClock
from workspaces.revision import Author

__all__ = ["dynamodb", "dynamodb_url", "homes"]

MODEL = Author("helper", "agent_1", "turn")


@pytest.fixture
def servers(homes: tuple[Home, Home]) -> Iterator[tuple[Harness, Harness]]:
    """Their clocks stand still at the same moment."""
    with (
        Harness.open(homes[0].terminal.home, clock=ManualClock()) as first,
        Harness.open(homes[1].terminal.home, clock=ManualClock()) as second,
    ):
        first.workspaces.create("shared")
        yield first, second


def facts_of(server: Harness) -> Facts:
    return server.facts.of_workspace("shared")


def rows(server: Harness) -> dict[str, tuple[str, ...]]:
    return {fact.key: badge(fact) for fact in facts_of(server).list()}


def badge(fact: Fact) -> tuple[str, ...]:
    return fact.id, fact.value, fact.source, fact.created_at, fact.updated_at


def test_a_fact_written_at_one_server_and_patched_at_the_other_has_one_history_and_one_badge(
    servers: tuple[Harness, Harness],
) -> None:
    first, second = map(facts_of, servers)
    made = first.put("tea", "likes tea", by=MODEL).fact
    assert badge(second.get("tea")) == badge(made)
    taken = second.change("tea", FactChange("likes coffee", adopts=True)).fact
    assert taken.updated_at[:19] == made.updated_at[:19]
    assert (taken.source, taken.created_at) == ("manual", made.created_at)
    assert taken.updated_at > made.updated_at
    assert [badge(one) for one in first.list()] == [badge(taken)]  # before any history has moved
    for server in (*servers, *servers):
        server.workspaces.sync("shared").run()
    assert badge(first.get("tea")) == badge(second.get("tea")) == badge(taken)
    histories = [[one.id for one in facts.history("tea")] for facts in (first, second)]
    assert histories[0] == histories[1] != []


def test_facts_of_an_editor_a_command_a_second_process_and_a_pull_are_in_the_next_list(
    servers: tuple[Harness, Harness], homes: tuple[Home, Home]
) -> None:
    here, there = servers
    place = here.workspaces.get("shared")
    facts_of(here).put("editor", "before", by=MODEL)
    rows(here)  # the process is warm
    (place.root / "facts/editor.md").write_text("By an editor.\n")
    assert rows(here)["editor"][1:3] == ("By an editor.\n".strip(), "manual")
    with place.command(MODEL):
        subprocess.run(["bash", "-c", "echo Bash. > facts/bash.md"], cwd=place.root, check=True)
    assert rows(here)["bash"][1:3] == ("Bash.", "auto")
    homes[0].terminal("memory", "add", "process", "A process.", "--workspace", "shared").done()
    assert rows(here)["process"][1:3] == ("A process.", "manual")
    (there.workspaces.get("shared").root / "facts").mkdir(exist_ok=True)
    (there.workspaces.get("shared").root / "facts/pulled.md").write_text("From there.\n")
    there.workspaces.sync("shared").run()
    here.workspaces.sync("shared").pull()
    assert rows(here)["pulled"][1:3] == ("From there.", "manual")
    there.workspaces.sync("shared").run()
    assert rows(here) == rows(there)
    known = rows(here)
    assert set(known) == {"editor", "bash", "process", "pulled"}
    copy = homes[0].terminal.home.parent / "copy"
    ignored = shutil.ignore_patterns("search")
    shutil.copytree(homes[0].terminal.home, copy, symlinks=True, ignore=ignored)
    with Harness.open(copy, clock=ManualClock()) as again:
        assert rows(again) == known, "the history tells all of it"
