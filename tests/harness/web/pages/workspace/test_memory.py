"""The memory panel without a browser: adding, editing, pinning, deleting, and rows of a model."""

from __future__ import annotations

import re
from html import unescape

import pytest

from harness.memory.facts.fact import Fact
from harness.memory.facts.facts import FactChange, Facts
from tests.harness.web.pages.visitor import Visitor, visitor
from tests.harness.web.site import Caller, Site
from workspaces.errors import NotFound
from workspaces.revision import Author


@pytest.fixture
def ada(site: Site) -> Visitor:
    return visitor(site)


@pytest.fixture(params=["workspace", "agent"])
def facts(site: Site, request: pytest.FixtureRequest) -> Facts:
    catalog = site.harness.rooms.facts
    return (
        catalog.of_workspace("notes")
        if request.param == "workspace"
        else catalog.of_agent("assistant")
    )


def panel(site: Site, facts: Facts) -> str:
    if facts.scope.agent_id is not None:
        return f"/a/{facts.scope.agent_id}/rows"
    return f"/w/{facts.scope.workspace_id}/memory"


def test_a_row_is_added_edited_pinned_and_deleted_with_undo(
    site: Site, ada: Visitor, facts: Facts
) -> None:
    path = panel(site, facts)
    assert "No rows yet" in ada.get(path)
    ada.done(path, do="add", key="user.tone", value="Short answers.")
    fact = facts.get("user.tone")
    assert (fact.value, fact.source, fact.pinned) == ("Short answers.", "manual", False)
    ada.done(path, do="edit", row=fact.id, version=fact.version, value="Very short.")
    stale = ada.post(path, do="edit", row=fact.id, version=fact.version, value="Long.")
    assert stale.status_code == 409
    ada.done(path, do="pin", row=fact.id)
    assert facts.get("user.tone").pinned
    assert 'class="pinned"' in ada.get(path)
    fact = facts.get("user.tone")
    address = ada.done(path, do="delete", row=fact.id, version=fact.version)
    with pytest.raises(NotFound):
        facts.get("user.tone")
    undo = re.search(r"undo=([0-9a-f]{40})", address)
    assert undo is not None
    assert f'value="{undo[1]}"' in ada.get(address)
    ada.done(path, revision=undo[1])
    assert facts.get("user.tone").value == "Very short."


def test_a_row_of_a_model_is_read_only_until_it_is_made_ones_own(site: Site, ada: Visitor) -> None:
    facts = site.harness.rooms.facts.of_workspace("notes")
    facts.put("user.pet", "A cat.", by=Author("assistant", "agent_1", "extract"))
    fact, path = facts.get("user.pet"), panel(site, facts)
    page = ada.get(path)
    assert "auto-captured · read-only" in page
    assert "Make it mine and edit" in page
    fields = {"row": fact.id, "version": fact.version, "value": "Two cats."}
    assert ada.post(path, do="edit", **fields).status_code == 409
    ada.done(path, do="edit", adopts="1", **fields)
    assert (facts.get("user.pet").value, facts.get("user.pet").source) == ("Two cats.", "manual")


def test_a_row_leads_to_a_look_where_else_its_text_is(site: Site, ada: Visitor) -> None:
    facts = site.harness.rooms.facts.of_workspace("notes")
    path = panel(site, facts)
    ada.done(path, do="add", key="door.key", value='It lies "under" the pot.')
    page = ada.get(path)
    found = re.search(r'<button form="forget" name="what" value="([^"]*)"', page)
    assert found is not None
    assert re.search(r'<form id="forget" method="post" action="/forget" data-whole>', page)
    plan = ada.post("/forget", selector="text", what=unescape(found[1])).text
    assert "Forget it everywhere" in plan and "door-key" in plan


def test_rows_are_filtered_and_come_in_pages(site: Site, ada: Visitor) -> None:
    facts = site.harness.rooms.facts.of_workspace("notes")
    for number in range(65):
        facts.put(f"k{number:02}", f"value {number}", pinned=number == 3)
    path = panel(site, facts)
    first = ada.get(path)
    assert first.count('id="mem_') == 50
    assert ada.get(f"{path}?begin=50").count('id="mem_') == 15
    assert ada.get(f"{path}?pinned=1").count('id="mem_') == 1
    assert "No row matches" in ada.get(f"{path}?source=director")


def test_the_picker_leads_to_the_panel(site: Site, ada: Visitor) -> None:
    record = site.harness.workspaces.record("notes")
    assert record.id in ada.get("/memory")
    address = ada.client.get(f"/memory?workspace={record.id}").headers["location"]
    assert address == f"/w/{record.id}/memory"


MESSAGES = [
    {"role": "user", "text": "Where does staging run?"},
    {"role": "assistant", "text": "<b>Long ago</b> " + "x" * 900 + " staging is called heron."},
    {"role": "user", "text": "Thanks."},
]


def memorize(site: Site) -> Fact:
    sent = {"id": "019b0000-0000-7000-8000-00000000cccc", "provider": "codex", "messages": MESSAGES}
    memory = {"content": "Staging is heron.", "groundings": [{"quote": "staging is called heron"}]}
    owner = Caller(site.client, site.harness.rooms.keys.create()[1])
    told = owner.post("/api/memories/memorize", {"conversation": sent, "memory": memory})
    facts = site.harness.rooms.facts.of_workspace(told["memory"]["workspace"])
    return facts.get(told["memory"]["id"])


def test_a_memorized_row_leads_to_the_quote_it_rests_on(site: Site, ada: Visitor) -> None:
    fact = memorize(site)
    ada_facts = site.harness.rooms.facts.of_workspace("notes")
    panel_path = panel(site, ada_facts)
    assert "“staging is called heron”" in ada.get(panel_path)
    page = ada.get(f"{panel_path}/{fact.id}/proof")
    assert "<mark>staging is called heron</mark>" in page
    assert ">fresh<" in page
    assert "Where does staging run?" in page
    assert "Thanks." in page
    assert (
        "<b>Long ago" not in page
    )  # a message is text, and only the part around the quote is shown
    assert "x" * 390 in page
    assert "x" * 401 not in page
    ada_facts.put("user.tone", "Short.")
    assert "Proof" in ada.get(panel_path)
    path = f"{panel_path}/{ada_facts.get('user.tone').id}/proof"
    assert ada.client.get(path).status_code == 404


def test_the_proof_of_a_row_says_what_no_longer_holds(site: Site, ada: Visitor) -> None:
    fact = memorize(site)
    facts = site.harness.rooms.facts.of_workspace("notes")
    facts.change(fact.id, FactChange("Staging is a stork.", adopts=True))
    page = ada.get(f"{panel(site, facts)}/{fact.id}/proof")
    assert ">drifted<" in page
    assert "its text has changed since it was memorized" in page
    site.harness.rooms.memorizer.archives.delete("019b0000-0000-7000-8000-00000000cccc")
    page = ada.get(f"{panel(site, facts)}/{fact.id}/proof")
    assert ">orphaned<" in page
    assert "<mark>" not in page
