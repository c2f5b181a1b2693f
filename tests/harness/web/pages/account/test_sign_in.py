"""Signing in: sessions, their end, and where they lead."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from harness.bootstrap.browser_session import SESSION_S
from tests.harness.web.pages.visitor import visitor
from tests.harness.web.site import BASE, Site
from workspaces.clock import ManualClock


def test_a_key_opens_a_session_and_stands_in_no_cookie_address_or_file(site: Site) -> None:
    _, key = site.harness.rooms.keys.create()
    ada = visitor(site, key)
    (cookie,) = [one.value for one in ada.client.cookies.jar]
    assert cookie is not None
    assert key not in cookie
    assert key not in ada.get("/keys")
    for file in site.harness.settings.home.root.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert key.encode() not in data
            assert cookie.encode() not in data


def test_signing_out_ends_the_session(site: Site) -> None:
    ada = visitor(site)
    cookies = dict(ada.client.cookies)
    assert ada.done("/sign-out") == "/sign-in"
    again = TestClient(site.app, BASE, follow_redirects=False, cookies=cookies)
    assert again.get("/").headers["location"] == "/sign-in?next=%2F"
    assert again.get("/accounts/me").status_code == 401


def test_revoking_its_key_ends_the_session(site: Site) -> None:
    record, key = site.harness.rooms.keys.create()
    ada = visitor(site, key)
    site.harness.rooms.keys.revoke(record.id)
    assert ada.client.get("/usage?by=model").headers["location"] == (
        "/sign-in?next=%2Fusage%3Fby%3Dmodel"
    )
    assert ada.post("/workspaces", name="made").status_code == 401


def test_a_session_ends_after_twelve_hours(tmp_path: Path) -> None:
    clock = ManualClock()
    with Site.open(tmp_path / "home", clock=clock) as site:
        ada = visitor(site)
        clock.advance(SESSION_S - 1)
        ada.get("/")
        clock.advance(2)
        assert ada.client.get("/").status_code == 303


@pytest.mark.parametrize("key", ["", "x", "wh_wrong", "whu_wrong", "é" * 200])
def test_a_wrong_key_is_401_and_sets_no_cookie(site: Site, key: str) -> None:
    answer = site.client.post("/sign-in", data={"key": key}, headers={"Origin": BASE})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("wanted", "leads_to"),
    [
        ("/usage?by=model", "/usage?by=model"),
        ("/w/ws_1/files/a%20b.md", "/w/ws_1/files/a%20b.md"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("\\\\evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\nb", "/"),
        ("evil", "/"),
        ("", "/"),
    ],
)
def test_signing_in_leads_to_pages_of_this_server_only(
    site: Site, wanted: str, leads_to: str
) -> None:
    _, key = site.harness.rooms.keys.create()
    client = TestClient(site.app, BASE, follow_redirects=False)
    data = {"key": key, "next": wanted}
    answer = client.post("/sign-in", data=data, headers={"Origin": BASE})
    assert (answer.status_code, answer.headers["location"]) == (303, leads_to)


def test_a_user_key_sees_pages_of_its_user_only(site: Site) -> None:
    acme = site.account("acme")
    workspace = acme.workspace("shared")
    ada = visitor(site, acme.user_key("ada").key)
    page = ada.get("/")
    assert "shared" not in page
    assert "New agent" not in page
    for path in (f"/w/{workspace}/files", "/keys", "/users"):
        ada.get(path, 403)
    assert ada.post("/workspaces", name="mine").status_code == 403
