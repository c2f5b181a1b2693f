"""The memory panel without a browser: adding, editing, pinning, deleting, and rows of a model."""

from __future__ import annotations

import re

import pytest

from harness.memory.facts.facts import Facts
from tests.harness.web.pages.visitor import Visitor, visitor
from tests.harness.web.site import Site
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
