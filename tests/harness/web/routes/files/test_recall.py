"""Recall over HTTP."""

from __future__ import annotations

from tests.harness.web.site import Site


def test_recall_returns_a_line_with_its_location_and_provenance(site: Site) -> None:
    acme = site.account("acme")
    place = acme.post("/accounts/me/workspaces", {"name": "w"})["id"]
    acme.file(place, "notes/days.md", b"- the deploy day is Thursday\n- tea is green\n")
    asked = f"/v1/workspaces/{place}/recall"
    answer = acme.get(f"{asked}?query=when+do+we+deploy")
    (hit,) = answer["hits"]
    assert answer["cut"] == {"shown": 1, "behind": 1, "lowest": hit["score"]}
    assert (answer["nothingKnown"], answer["nextCursor"]) == (False, None)
    assert (hit["path"], hit["lineNumber"], hit["workspace"]) == ("notes/days.md", 1, "w")
    assert hit["kind"] == "note"
    assert "Thursday" in hit["content"]
    assert hit["why"]
    assert hit["updatedAt"].endswith("Z")
    elsewhere = acme.get(f"{asked}?query=deploy&path=MEMORY.md")["hits"]
    assert all(hit["path"] == "MEMORY.md" for hit in elsewhere)
    uncut = acme.get(f"{asked}?query=when+do+we+deploy&cut=off")
    assert (len(uncut["hits"]), uncut["cut"], uncut["nothingKnown"]) == (2, None, False)
    unknown = acme.get(f"{asked}?query=zebra")
    assert (unknown["hits"], unknown["cut"], unknown["nothingKnown"]) == ([], None, True)
    for bad in (
        "",
        "?query=x&limit=0",
        "?query=x&kind=poem",
        "?query=x&since=never",
        "?query=x&cut=half",
        "?query=x&query=y",
    ):
        acme.refused(400, "GET", f"/v1/workspaces/{place}/recall{bad}")
