"""Forgetting over HTTP and in the console: looked for, asked, shown, and only by the account."""

from __future__ import annotations

import re
from html import escape

from tests.harness.web.pages.visitor import visitor
from tests.harness.web.site import Site

SECRET = "the heron nests in Galway"


def test_a_text_is_looked_for_then_forgotten_and_is_in_no_answer(site: Site) -> None:
    caller = site.account("acme")
    workspace = caller.workspace("w")
    caller.file(workspace, "a.md", f"one\n{SECRET}\n".encode())

    looked = caller.post("/v1/forgettings", {"text": SECRET, "dryRun": True}, 200)
    assert [(one["where"], one["path"]) for one in looked["found"] if one["where"] == "file"] == [
        ("file", "a.md")
    ]
    assert caller.list("/v1/forgettings", "forgettings") == []
    caller.refused(404, "GET", f"/v1/forgettings/{looked['id']}")

    answer = caller("POST", "/v1/forgettings", json={"text": SECRET, "reason": f"no {SECRET}"})
    assert (answer.status_code, answer.json()["status"]) == (202, "planned")
    address = answer.headers["Location"]
    house = site.harness.house
    rooms = house.rooms(house.accounts.owner(house.accounts.get("acme")))
    rooms.forgettings.run_here(answer.json()["id"])
    shown = caller("GET", f"/v1/forgettings/{answer.json()['id']}")
    assert address.endswith(answer.json()["id"])
    assert shown.json()["status"] == "done"
    assert SECRET not in answer.text + shown.text
    assert SECRET not in caller("GET", f"/v1/workspaces/{workspace}/files/a.md").text
    refused = caller("PUT", f"/v1/workspaces/{workspace}/files/b.md", content=SECRET.encode())
    assert refused.status_code == 422


def test_only_the_account_may_forget_and_asks_for_one_thing(site: Site) -> None:
    caller = site.account("acme")
    ada = caller.user_key("ada")
    ada.refused(403, "POST", "/v1/forgettings", json={"text": SECRET})
    ada.refused(403, "GET", "/v1/forgettings")
    for fields in ({}, {"text": ""}, {"text": "tea"}, {"text": "a b c", "match": "d"}):
        caller.refused(400, "POST", "/v1/forgettings", json=fields)
    caller.refused(413, "POST", "/v1/forgettings", json={"text": "a b c " * 1_000})
    caller.refused(404, "POST", "/v1/forgettings", json={"conversation": "nobody"})


def test_the_console_looks_first(site: Site) -> None:
    ada = visitor(site)
    by = site.harness.rooms.principal.author("api")
    site.harness.workspaces.get("notes").write("a.md", f"{SECRET}\n", by=by)
    page = ada.post("/forget", selector="text", what=SECRET, reason="moved").text
    assert "Forget it everywhere" in page
    assert "a.md" in page
    assert site.harness.rooms.forgettings.stored.list() == []
    address = ada.done("/forget/start", selector="text", what=SECRET, reason="moved")
    (started,) = site.harness.rooms.forgettings.stored.list()
    assert address == f"/forget/{started.id}?said=forgetting"
    site.harness.rooms.forgettings.run_here(started.id)
    page = ada.get(f"/forget/{started.id}")
    assert "moved" in page
    assert SECRET not in page + ada.get("/forget")
    answer = ada.post("/forget", selector="text", what="tea", reason="why", short="")
    assert answer.status_code == 200 and "Found nowhere" in answer.text


def test_what_cannot_be_forgotten_is_told_beside_its_field_and_what_was_typed_stays(
    site: Site,
) -> None:
    ada = visitor(site)
    for field, fields in (
        ("what", {"selector": "text", "what": "tea <b>"}),
        ("what", {"selector": "text", "what": " "}),
        ("what", {"selector": "match", "what": "("}),
        ("what", {"selector": "conversation", "what": "nobody"}),
        ("selector", {"selector": "other", "what": "x"}),
    ):
        answer = ada.post("/forget", reason="moved", many="1", **fields)
        assert answer.status_code in {400, 404}, answer.text
        told = re.search(rf'<div id="{field}-told"[^>]*>([^<]+)</div>', answer.text)
        assert told is not None, answer.text
        assert answer.text.count('aria-invalid="true"') == 1
        assert escape(fields["what"].strip()) in answer.text and 'value="moved"' in answer.text
        assert answer.text.count(" checked>") == 1
