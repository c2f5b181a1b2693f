"""Recall over HTTP."""

from __future__ import annotations

from tests.harness.web.site import Site


def test_recall_returns_a_line_with_its_location_and_provenance(site: Site) -> None:
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
