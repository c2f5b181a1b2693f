"""The page of the trash: what is deleted comes back under a name, or goes after it was said what goes."""

from __future__ import annotations

import json
import re

from harness.web.pages.account.trash import DAYS_MAX
from tests.harness.web.pages.visitor import Visitor, visitor
from tests.harness.web.site import Site
from workspaces.home.account_trash import TrashedWorkspace


def deleted(site: Site, name: str, *unpushed: str) -> TrashedWorkspace:
    workspaces = site.harness.rooms.workspaces
    made = workspaces.create(name)
    made.write("a.md", f"of {name}\n", by=site.harness.rooms.principal.author("api"))
    place = workspaces.delete(name)
    if unpushed:
        note = json.loads((place / "note.json").read_text())
        note |= {"why": "elsewhere", "unpushed": unpushed}
        (place / "note.json").write_text(json.dumps(note))
    return site.harness.rooms.trash.get(place.name)


def left(site: Site) -> list[str]:
    return [one.entry.name for one in site.harness.rooms.trash.list()]


def test_a_workspace_comes_back_under_the_name_that_is_asked_for(site: Site) -> None:
    ada, plans = visitor(site), deleted(site, "plans")
    page = ada.get("/trash")
    assert "plans" in page and "on this machine" in page and 'value="plans"' in page
    answer = ada.post(f"/trash/{plans.name}/restore", name="notes")
    assert answer.status_code == 409
    assert re.search(r'role="alert">[^<]*named &#39;notes&#39; already exists', answer.text)
    assert 'aria-invalid="true"' in answer.text and 'value="notes"' in answer.text
    assert ada.post(f"/trash/{plans.name}/restore", name="x\ty").status_code == 400
    address = ada.done(f"/trash/{plans.name}/restore", name="old plans")
    record = site.harness.rooms.workspaces.record("old plans")
    assert address == f"/w/{record.id}/files?said=back"
    assert "It is back" in ada.get(address)
    assert "The trash is empty" in ada.get("/trash")
    assert ada.post(f"/trash/{plans.name}/restore", name="x").status_code == 404


def test_what_has_changes_that_are_nowhere_else_goes_only_by_its_name(site: Site) -> None:
    ada, plain, only = visitor(site), deleted(site, "plain"), deleted(site, "only", "b.md", "c.md")
    page = ada.get("/trash")
    assert "2 files have changes that never left this machine" in page
    assert "b.md" in page and "by another machine" in page
    assert ada.done(f"/trash/{only.name}/remove", name="plain") == "/trash?said=misspelt"
    assert left(site) == ["plain", "only"]
    assert ada.done(f"/trash/{only.name}/remove", name="only") == "/trash?said=removed"
    assert ada.done(f"/trash/{plain.name}/remove") == "/trash?said=removed"
    assert left(site) == []


def test_a_note_that_somebody_has_changed_breaks_no_page(site: Site) -> None:
    ada, plans = visitor(site), deleted(site, "plans")
    note = plans.entry.place / "note.json"
    for why in ("other", ["here"], None):
        note.write_text(json.dumps({**json.loads(note.read_text()), "why": why}))
        assert "plans" in ada.get("/trash")
        assert site.account(f"of {why}").list("/v1/trash", "trash") == []
    note.write_text("{")
    assert "The trash is empty" in ada.get("/trash")


def confirmed(ada: Visitor, page: str) -> str:
    found = re.search(r'<textarea name="ids"[^>]*>([^<]*)</textarea>', page)
    assert found is not None
    return ada.done("/trash/empty", do="remove", ids=found[1])


def test_emptying_says_what_would_go_and_removes_exactly_that(site: Site) -> None:
    ada = visitor(site)
    deleted(site, "first"), deleted(site, "second", "b.md")
    assert "Nothing was deleted so long ago" in ada.post("/trash/empty", days="1").text
    page = ada.post("/trash/empty", days="0").text
    assert "2 workspaces would go for good" in page and "first" in page
    assert "1 file has changes that never left this machine" in page
    deleted(site, "third")
    assert left(site) == ["first", "second", "third"]
    assert confirmed(ada, page) == "/trash?said=removed"
    assert left(site) == ["third"]
    assert confirmed(ada, page) == "/trash?said=removed"  # once more, and nothing else goes
    assert left(site) == ["third"]


def test_a_number_of_days_that_is_none_is_told_beside_its_field(site: Site) -> None:
    ada = visitor(site)
    deleted(site, "plans")
    for days in ("", "x", "-1", "1.5", "٣", str(DAYS_MAX + 1), "9" * 4000):
        answer = ada.post("/trash/empty", days=days)
        assert answer.status_code == 400, days
        assert "whole number of days" in answer.text and 'id="days" ' in answer.text
    assert left(site) == ["plans"]


def test_only_the_account_sees_its_trash_and_a_form_needs_its_token(site: Site) -> None:
    plans = deleted(site, "plans")
    user = site.harness.rooms.users.add({"name": "bob"})
    _, key = site.harness.rooms.keys.create(user_id=user.id)
    bob, stranger = visitor(site, key), visitor(site, site.account("bolt").key)
    assert "/trash" not in bob.get("/")
    bob.get("/trash", 403)
    assert "plans" not in stranger.get("/trash")
    for deed in ("restore", "remove"):
        path = f"/trash/{plans.name}/{deed}"
        assert bob.post(path, name="plans").status_code == 403
        assert stranger.post(path, name="plans").status_code == 404
        forged = visitor(site).client.post(path, data={"name": "plans"})
        assert forged.status_code == 403
    assert bob.post("/trash/empty", days="0").status_code == 403
    stranger.done("/trash/empty", do="remove", ids=plans.name)
    assert visitor(site).client.post("/trash/empty", data={"do": "remove"}).status_code == 403
    assert left(site) == ["plans"]
