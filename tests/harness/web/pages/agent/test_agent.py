"""The page of an agent without a browser: blocks, switches and its schedule."""

from __future__ import annotations

import re
from pathlib import Path

from harness.memory.blocks.block import CORE_CHARACTERS_MAX
from harness.models.scripted import ScriptedModel
from tests.harness.web.pages.visitor import visitor
from tests.harness.web.site import Site


def version_in(page: str) -> str:
    found = re.search(r'name="version" value="([0-9a-f]*)"', page)
    assert found is not None
    return found[1]


def test_a_block_is_replaced_only_as_it_was_read(site: Site) -> None:
    ada, blocks = visitor(site), site.harness.rooms.blocks
    agent = site.harness.agents.get("assistant")
    path = f"/a/{agent.id}/blocks/core"
    place = blocks.place_of("core", agent.id)
    assert "0 of 4,000 characters, 0 of 20 entries" in ada.get(f"/a/{agent.id}")
    assert version_in(ada.get(path)) == ""
    address = ada.done(path, do="save", scope="agent", version="", text="- likes tea\r\n")
    assert blocks.get(place).content == "- likes tea"
    version = version_in(ada.get(address))
    assert ada.done(path, do="save", version=version, text="- likes tea").endswith("unchanged")
    ada.done(path, do="save", version=version, text="- theirs")
    answer = ada.post(path, do="save", version=version, text="- mine")
    assert answer.status_code == 409
    assert re.search(r"<del>[^<]*theirs[^<]*</del><ins>[^<]*mine[^<]*</ins>", answer.text)
    assert blocks.get(place).content == "- theirs"
    ada.done(path, do="save", version=version_in(answer.text), text="- mine")
    page = ada.get(f"/a/{agent.id}")
    assert "- mine</pre>" in page
    assert "6 of 4,000 characters, 1 of 20 entries" in page
    undo = ada.done(path, do="save", version=version_in(ada.get(path)), text="- more")
    ada.done(f"/w/{place.workspace_id}/revert", revision=undo.partition("undo=")[2])
    assert blocks.get(place).content == "- mine"
    version = version_in(ada.get(path))
    assert ada.post(path, do="delete", version="0" * 64).status_code == 409
    ada.done(path, do="delete", version=version)
    assert blocks.find(place) is None


def test_a_block_that_is_too_long_keeps_the_text_of_its_writer(site: Site) -> None:
    ada, agent = visitor(site), site.harness.agents.get("assistant")
    text = "x" * CORE_CHARACTERS_MAX + "end"
    path = f"/a/{agent.id}/blocks/core"
    answer = ada.post(path, do="save", scope="user", version="", text=text)
    assert answer.status_code == 413
    assert text in answer.text
    ada.done(path, do="save", scope="user", version="", text="- for all")
    assert site.harness.rooms.blocks.get(site.harness.rooms.blocks.place_of("core")).content
    ada.get(f"/a/{agent.id}/blocks/other", 404)
    ada.get(f"{path}?scope=other", 404)


def test_switches_turn_settings_on_and_off(site: Site) -> None:
    ada, agents = visitor(site), site.harness.agents
    path = f"/a/{agents.get('assistant').id}"
    assert ada.get(path).count('aria-checked="false"') == 2
    for name in ("reviewDecisions", "memoryEnabled"):
        ada.done(f"{path}/switch", name=name, do="on")
    config = agents.get("assistant").config
    assert (config.review_decisions, config.memory_enabled) == (True, True)
    assert ada.get(path).count('aria-checked="true"') == 2
    ada.done(f"{path}/switch", name="reviewDecisions", do="off")
    assert agents.get("assistant").config.review_decisions is False
    assert ada.post(f"{path}/switch", name="private", do="on").status_code == 400


def test_the_settings_turn_learning_on_and_off(site: Site) -> None:
    ada, agents = visitor(site), site.harness.agents
    agents.patch("assistant", {"config": {"extract": {"shared": True}}})
    path = f"/a/{agents.get('assistant').id}"
    page = ada.get(f"{path}?edit=1")
    assert 'name="extract" value="1" checked' in page
    assert 'name="sleep" value="1">' in page
    ada.done(f"{path}/settings", name="assistant", sleep="1")
    config = agents.get("assistant").config
    assert (config.extract.enabled, config.sleep.enabled) == (False, True)
    assert config.extract.shared  # what the page does not show stays
    assert "purpose" in ada.get("/usage?by=purpose")


def test_a_schedule_says_when_it_is_due_next(site: Site) -> None:
    ada, agents = visitor(site), site.harness.agents
    path = f"/a/{agents.get('assistant').id}"
    config = {"defaultPrompt": "Look.", "schedule": {"cron": "0 7 * * *", "timezone": "UTC"}}
    agents.patch("assistant", {"config": {**config, "card": "decision"}})
    page = ada.get(path)
    assert "next <time" in page
    assert 'href="/decisions?type=decision"' in page


def test_the_prompt_of_a_past_message_is_what_was_sent_with_it(tmp_path: Path) -> None:
    model = ScriptedModel()
    with Site.open(tmp_path / "home", model=model) as site:
        ada, agent = visitor(site), site.harness.agents.get("assistant")
        notes = site.harness.workspaces.get("notes")
        by = site.harness.rooms.principal.author("api")
        notes.write("MEMORY.md", "- the tea is green\n", by=by)
        model.script("Green.", "Black.", "Done.")
        site.harness.run("Which tea?", agent=agent, conversation="c1")
        notes.write("MEMORY.md", "- the tea is black\n", by=by)
        site.harness.run("And now?", agent=agent, conversation="c1")
        run = site.harness.finish_run(site.harness.runs.start("assistant", "Look.").id).run
        path = f"/a/{agent.id}/prompt"
        page = ada.get(f"{path}?c=c1")
        assert f'href="{path}?c=c1&amp;at=3"' in page
        first, second = ada.get(f"{path}?c=c1&at=1"), ada.get(f"{path}?c=c1&at=3")
        assert ("Which tea?</pre>" in first, "And now?</pre>" in first) == (True, False)
        assert ("the tea is green" in first, "the tea is black" in first) == (True, False)
        assert ("the tea is black" in second, "And now?</pre>" in second) == (True, True)
        ada.get(f"{path}?c=c1&at=99", 404)
        ada.get(f"{path}?at=1", 404)
        ada.get(f"{path}?c=c1&at=x", 400)
        assert "Look.</pre>" in ada.get(f"{path}?c={run.own_key}&at=1")
