"""Recall over HTTP."""

from __future__ import annotations

from tests.harness.web.site import Site


def test_recall_returns_a_line_with_its_location_and_provenance(site: Site) -> None:
    acme = site.account("acme")
    place = acme.post("/accounts/me/workspaces", {"name": "w"})["id"]
    acme.file(place, "notes/deploy.md", b"- the deploy day is Thursday\n- tea is green\n")
    asked = f"/v1/workspaces/{place}/recall"
    (hit,) = acme.list(f"{asked}?query=when+do+we+deploy&limit=1", "hits")
    assert (hit["path"], hit["lineNumber"], hit["workspace"]) == ("notes/deploy.md", 1, "w")
    assert "Thursday" in hit["content"]
    assert hit["why"]
    assert hit["updatedAt"].endswith("Z")
    elsewhere = acme.list(f"{asked}?query=deploy&path=MEMORY.md", "hits")
    assert all(hit["path"] == "MEMORY.md" for hit in elsewhere)
    for bad in ("", "?query=x&limit=0", "?query=x&kind=poem", "?query=x&since=never"):
        acme.refused(400, "GET", f"/v1/workspaces/{place}/recall{bad}")
