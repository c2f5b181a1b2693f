"""The page of what is forbidden: rules are tried, made and lifted, and held-back files are kept once."""

from __future__ import annotations

import re

import pytest

from harness.web.pages.account.forbid import TRIED_CHARACTERS_MAX
from tests.harness.web.pages.visitor import visitor
from tests.harness.web.site import Site
from workspaces.errors import ForbiddenText
from workspaces.forgetting.rule import ForbiddenRule

PATTERN, NUMBER = "ACME-[0-9]{6}", "ACME-123456"
SECRET = "the key lies under the third pot"


def rules(site: Site) -> list[ForbiddenRule]:
    return site.harness.rooms.forbidding.list()


def told(page: str, field: str) -> str:
    found = re.search(rf'<div id="{field}-told"[^>]*>([^<]*)</div>', page)
    assert found is not None
    return found[1]


def test_rules_are_made_shown_with_what_they_stopped_and_lifted(site: Site) -> None:
    ada, rooms = visitor(site), site.harness.rooms
    assert "Nothing is forbidden yet" in ada.get("/forbid")
    assert ada.done("/forbid", do="add", kind="match", what=PATTERN) == "/forbid?said=forbidden"
    ada.done("/forbid", do="add", kind="text", what=f" {SECRET}\n", workspace="notes")
    ada.done("/forbid", do="add", kind="cards", what="ignored", workspace="")
    pattern, text, cards = rules(site)
    assert (pattern.pattern, cards.detector) == (PATTERN, "cards")
    assert text.workspace_id == rooms.workspaces.record("notes").id
    for _ in range(2):
        with pytest.raises(ForbiddenText):
            rooms.workspaces.get("notes").write("a.md", NUMBER, by=rooms.principal.author("api"))
    page = ada.get("/forbid")
    assert PATTERN in page and "a text of 7 words" in page and "numbers of payment cards" in page
    assert "2 times, last" in page and page.count(">never<") == 2
    assert SECRET not in page
    for rule in (pattern, text, cards):
        assert ada.done(f"/forbid/{rule.id}/lift") == "/forbid?said=lifted"
    assert rules(site) == []
    assert ada.post(f"/forbid/{text.id}/lift").status_code == 404


def test_a_draft_is_tried_on_a_text_and_neither_is_stored(site: Site) -> None:
    ada = visitor(site)
    ada.done("/forbid", do="add", kind="match", what=PATTERN)
    sample = f"<b>one</b>\nof {NUMBER}\nThe KEY lies **under** the third pot & more"
    answer = ada.post("/forbid", kind="text", what=SECRET, sample=sample)
    assert answer.status_code == 200
    assert "2 places would be refused" in answer.text
    assert f'<mark class="known">{NUMBER}</mark>' in answer.text
    assert "<mark>The KEY lies **under** the third pot</mark>" in answer.text
    assert "<b>one" not in answer.text and "&lt;b&gt;one" in answer.text
    assert len(rules(site)) == 1
    # also while somebody types, and with the rules that count already alone
    for more in ({"live": "1"}, {"do": "try"}):
        page = ada.post("/forbid", kind="match", what="", sample=sample, **more).text
        assert "1 place would be refused" in page
    assert "Nothing of it" in ada.post("/forbid", kind="match", what="x+", sample="tea").text
    home = site.harness.settings.home.root
    assert not any(
        b"under** the third" in file.read_bytes() for file in home.rglob("*") if file.is_file()
    )
    assert "third pot" not in site.lines.getvalue()
    assert site.harness.rooms.forbidding.stops() == {}


@pytest.mark.parametrize(
    ("fields", "field", "status", "message"),
    [
        ({"kind": "match"}, "what", 400, "Say what is forbidden"),
        ({"kind": "text", "what": " \n"}, "what", 400, "Say what is forbidden"),
        ({"kind": "match", "what": "("}, "what", 400, "not a valid regular expression: unclosed"),
        ({"kind": "match", "what": "a*"}, "what", 400, "matches the empty text"),
        ({"kind": "match", "what": "a\nb"}, "what", 400, "must be one line"),
        ({"kind": "match", "what": "a" * 1001}, "what", 400, "at most 1000 characters"),
        ({"kind": "text", "what": "tea"}, "what", 400, "tick the box below"),
        ({"kind": "other", "what": "tea"}, "kind", 400, "must be one of"),
        ({"kind": "match", "what": "tea+", "workspace": "x"}, "workspace", 404, "no workspace"),
    ],
)
def test_what_cannot_be_a_rule_is_told_beside_its_field(
    site: Site, fields: dict[str, str], field: str, status: int, message: str
) -> None:
    ada = visitor(site)
    answer = ada.post("/forbid", do="add", **fields)
    assert answer.status_code == status, answer.text
    assert message in told(answer.text, field)
    assert answer.text.count('aria-invalid="true"') == 1
    assert f'id="{field}"' in answer.text.partition('aria-invalid="true"')[0].rpartition("<")[2]
    assert rules(site) == []


def test_a_sample_that_is_too_long_is_told_beside_its_field(site: Site) -> None:
    answer = visitor(site).post("/forbid", kind="match", sample="x" * (TRIED_CHARACTERS_MAX + 1))
    assert answer.status_code == 413
    assert "over the limit of 20,000" in told(answer.text, "sample")


def test_a_file_that_is_held_back_by_two_rules_is_kept_once(site: Site) -> None:
    ada, notes = visitor(site), site.harness.rooms.workspaces.get("notes")
    for kind in ("match", "cards"):
        ada.done("/forbid", do="add", kind=kind, what=PATTERN)
    text = f"one\n{NUMBER}\n4111 1111 1111 1111\n"
    (notes.root / "orders.md").write_text(text)
    page = ada.get("/forbid")
    assert "Held back now" in page and "orders.md" in page and "line 2" in page and "line 3" in page
    assert NUMBER not in page
    assert "Held back now" not in ada.post("/forbid", kind="match", live="1").text
    fields = {"workspace": notes.record.id, "path": "orders.md"}
    assert ada.done("/forbid/keep", **fields) == "/forbid?said=allowed"
    assert notes.read("orders.md").text == text
    assert "Held back now" not in ada.get("/forbid")
    assert ada.done("/forbid/keep", **fields) == "/forbid?said=not-held"
    (notes.root / "orders.md").write_text(f"{text}{NUMBER}\n")
    assert "orders.md" in ada.get("/forbid")


def test_only_the_account_sees_its_rules_and_a_form_needs_its_token(site: Site) -> None:
    ada = visitor(site)
    ada.done("/forbid", do="add", kind="match", what=PATTERN)
    (rule,) = rules(site)
    notes = site.harness.rooms.workspaces.get("notes")
    (notes.root / "orders.md").write_text(f"{NUMBER}\n")
    user = site.harness.rooms.users.add({"name": "bob"})
    _, key = site.harness.rooms.keys.create(user_id=user.id)
    bob, stranger = visitor(site, key), visitor(site, site.account("bolt").key)
    assert "/forbid" not in bob.get("/")
    bob.get("/forbid", 403)
    page = stranger.get("/forbid")
    assert PATTERN not in page and "orders.md" not in page
    sent = {
        "/forbid": {"do": "add", "kind": "cards"},
        "/forbid/keep": {"workspace": notes.record.id, "path": "orders.md"},
        f"/forbid/{rule.id}/lift": {},
    }
    for path, fields in sent.items():
        assert bob.post(path, **fields).status_code == 403, path
        assert ada.client.post(path, data=fields).status_code == 403, path
        if path != "/forbid":
            assert stranger.post(path, **fields).status_code == 404, path
    assert bob.post("/forbid", kind="match", sample=NUMBER).status_code == 403
    assert "Nothing of it" in stranger.post("/forbid", kind="match", sample=NUMBER).text
    assert rules(site) == [rule]
    assert "orders.md" in ada.get("/forbid")
