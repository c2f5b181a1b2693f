from __future__ import annotations

from pathlib import Path

from harness import Harness


def test_facts_are_reached_by_what_a_program_holds_or_by_its_name(tmp_path: Path) -> None:
    with Harness.open(tmp_path / "home") as harness:
        journal = harness.workspaces.open_or_create("journal")
        helper = harness.agents.open_or_create("helper", workspaces=[journal])
        put = harness.facts.of_workspace(journal).put("tea", "Likes green tea.").fact
        assert harness.facts.of_workspace("journal").list() == [put]
        own = harness.facts.of_agent(helper).put("tone", "Be brief.").fact
        assert harness.facts.of_agent("helper").list() == [own]
        assert harness.facts.of_agent(helper.id).list() == [own]
