"""Recall, prompt previews and usage over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site.open(tmp_path / "home") as opened:
        yield opened


def test_a_line_is_found_with_where_it_stands_and_what_speaks_for_it(site: Site) -> None:
    acme = site.account("acme")
    place = acme.post("/accounts/me/workspaces", {"name": "w"})["id"]
    acme.file(place, "notes/deploy.md", b"- the deploy day is Thursday\n- tea is green\n")
    answer = acme("GET", f"/v1/workspaces/{place}/recall?query=when+do+we+deploy&limit=1")
    (hit,) = answer.json()
    assert (hit["path"], hit["line_number"], hit["workspace"]) == ("notes/deploy.md", 1, "w")
    assert "Thursday" in hit["content"]
    assert hit["why"]
    elsewhere = acme("GET", f"/v1/workspaces/{place}/recall?query=deploy&path=MEMORY.md").json()
    assert all(hit["path"] == "MEMORY.md" for hit in elsewhere)
    for bad in ("", "?query=x&limit=0", "?query=x&kind=poem", "?query=x&since=never"):
        acme.refused(400, "GET", f"/v1/workspaces/{place}/recall{bad}")


def test_a_preview_shows_memory_and_the_message_and_stores_nothing(site: Site) -> None:
    acme = site.account("acme")
    place = acme.post("/accounts/me/workspaces", {"name": "w"})["id"]
    acme.file(place, "MEMORY.md", b"- the door is blue\n")
    mounts = [{"name": "w", "workspaceId": place}]
    agent = acme.post("/accounts/me/agents", {"name": "a", "config": {"workspaces": mounts}})["id"]
    path = f"/v1/agents/{agent}/prompt-preview"
    for _ in range(2):
        shown = acme("POST", path, json={"conversationKey": "c1", "message": "Which door?"}).json()
        assert any("the door is blue" in part["text"] for part in shown["parts"])
        assert "Which door?" in str(shown["request"]["messages"][-1])
        assert shown["isNew"] is True
    policy = {"memory_policy": {"user": "none"}, "message": "hi"}
    assert acme("POST", path, json=policy).json()["isNew"] is True
    acme.refused(400, "POST", path, json={"memory_policy": "none"})
    acme.user_key("alice").refused(403, "POST", path, json={})
    acme.refused(400, "POST", path, json={"conversationKey": "acct:x"})
    acme.refused(400, "POST", path, json={"massage": "x"})


def test_usage_is_the_accounts_own(site: Site) -> None:
    acme = site.account("acme")
    report = acme("GET", "/v1/usage?by=agent").json()
    assert (report["by"], report["rows"]) == ("agent", [])
    assert acme.refused(400, "GET", "/v1/usage?since=yesterday")["field"] == "since"
    acme.refused(400, "GET", "/v1/usage?by=colour")
