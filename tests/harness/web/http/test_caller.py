"""Authentication over HTTP: keys, cookies, start tokens, and what each caller may do."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import Request
from starlette.testclient import TestClient

from harness import Harness
from harness.bootstrap.authentication import admin_key, start_token
from harness.web.app import create_app
from tests.harness.web.site import BASE, Caller, Site
from workspaces.accounts.account import Principal


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wh_" + "x" * 43},
        {"Authorization": "Bearer whu_" + "x" * 43},
        {"Authorization": "Bearer \xe9"},
        {"Authorization": "Bearer " + "x" * 5000},
        {"Authorization": "Basic d2g6eA=="},
        {"Authorization": "wh_x"},
        {"Cookie": "harness=wh_x"},
        {"Cookie": 'harness="'},
    ],
)
def test_a_request_without_a_valid_key_is_401(site: Site, headers: dict[str, str]) -> None:
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    for method, path in (
        ("GET", "/accounts/me"),
        ("POST", "/accounts/me/workspaces"),
        ("POST", "/accounts"),
        ("GET", "/v1/workspaces/ws_1/files/MEMORY.md"),
        ("PUT", "/v1/workspaces/ws_1/files/MEMORY.md"),
    ):
        answer = site.client.request(method, path, headers={**raw, "Origin": BASE}, content=b"{}")
        assert answer.status_code == 401, answer.text
        assert answer.json()["error"]["code"] == "unauthorized"
        assert answer.headers["www-authenticate"] == "Bearer"


def test_only_the_admin_key_creates_accounts(site: Site) -> None:
    acme = site.account("acme")
    acme.refused(401, "POST", "/accounts", json={"name": "other"})
    site.admin.refused(401, "GET", "/accounts/me")
    site.admin.refused(409, "POST", "/accounts", json={"name": "acme"})
    assert site.admin.refused(400, "POST", "/accounts", json={"ownerId": "x"})["field"] == "ownerId"


def test_the_secret_of_a_key_is_shown_only_at_its_creation(site: Site) -> None:
    acme = site.account("acme")
    made = acme.post("/accounts/me/keys", {"label": "second"})
    assert made["key"].startswith("wh_")
    assert len(made["key"]) == 46
    listed = acme.get("/accounts/me/keys")["keys"]
    assert {"first", "second"} == {key["label"] for key in listed}
    assert made["key"] not in str(listed)
    assert "key" not in {name for key in listed for name in key}


def test_a_revoked_key_is_401(site: Site) -> None:
    acme = site.account("acme")
    made = acme.post("/accounts/me/keys", {})
    second = Caller(site.client, made["key"])
    second.get("/accounts/me")
    assert acme("DELETE", f"/accounts/me/keys/{made['id']}").json() == {"deleted": True}
    second.refused(401, "GET", "/accounts/me")
    acme.refused(404, "DELETE", f"/accounts/me/keys/{made['id']}")


def test_rotating_a_key_invalidates_the_old_secret_and_keeps_the_id(site: Site) -> None:
    acme = site.account("acme")
    made = acme.post("/accounts/me/rotate-key", {})
    acme.refused(401, "GET", "/accounts/me")
    again = Caller(site.client, made["key"])
    assert [key["id"] for key in again.get("/accounts/me/keys")["keys"]] == [made["id"]]


def test_a_start_token_cannot_be_rotated(site: Site) -> None:
    with start_token(site.harness.settings.home) as token:
        owner = Caller(site.client, token)
        assert owner.get("/accounts/me")["name"] == "default"
        owner.refused(400, "POST", "/accounts/me/rotate-key")
    owner.refused(401, "GET", "/accounts/me")


def test_a_user_key_sees_only_its_own_user(site: Site) -> None:
    acme = site.account("acme")
    bob = acme.post("/accounts/me/users", {"name": "Bob", "externalId": "bob@example.com"})
    ada = acme.user_key("ada")
    (own,) = ada.get("/accounts/me/users")["users"]
    assert own["name"] == "ada"
    assert ada.get(f"/accounts/me/users/{own['id']}") == ada.get("/accounts/me/users/ada") == own
    nobody = ada.refused(404, "GET", "/accounts/me/users/usr_000000000000000000000000")
    for other in (bob["id"], "bob@example.com", "owner"):
        assert ada.refused(404, "GET", f"/accounts/me/users/{other}") == nobody
        assert ada.refused(404, "POST", f"/accounts/me/users/{other}/keys", json={}) == nobody
    assert len(acme.as_user("bob@example.com").get("/accounts/me/users")["users"]) == 3


def test_a_user_key_changes_no_record(site: Site) -> None:
    acme = site.account("acme")
    ada = acme.user_key("ada")
    ids = {
        "users": acme.get("/accounts/me/users")["users"][0]["id"],
        "workspaces": acme.workspace("w"),
        "sandboxes": acme.post("/accounts/me/sandboxes", {"name": "s"})["id"],
        "agents": acme.post("/accounts/me/agents", {"name": "a"})["id"],
    }
    for family, record in ids.items():
        path = f"/accounts/me/{family}"
        ada.refused(403, "POST", path, json={"name": "mine"})
        ada.refused(403, "PATCH", f"{path}/{record}", json={"name": "mine"})
        ada.refused(403, "DELETE", f"{path}/{record}")
        assert acme.get(f"{path}/{record}")["name"] != "mine"
    ada.refused(403, "PATCH", "/accounts/me", json={"name": "mine"})
    ada.refused(403, "DELETE", "/accounts/me")
    ada.refused(403, "GET", "/accounts/me/keys")
    ada.refused(403, "POST", "/accounts/me/keys", json={})
    ada.refused(403, "POST", f"/accounts/me/users/{ids['users']}/keys", json={})
    ada.refused(403, "POST", "/accounts/me/rotate-key")
    ada.refused(403, "GET", f"/v1/workspaces/{ids['workspaces']}/files/MEMORY.md")
    ada.refused(403, "PUT", f"/v1/workspaces/{ids['workspaces']}/files/MEMORY.md", content=b"x")
    assert ada.get("/accounts/me")["name"] == "acme"
    acme.get("/accounts/me")


def test_an_account_key_acts_as_the_user_it_names(site: Site) -> None:
    acme = site.account("acme")
    place = f"/v1/workspaces/{acme.workspace()}"
    acme.as_user("ada@example.com")("PUT", f"{place}/files/a.md", content=b"x")
    assert acme.get(f"{place}/log?limit=1")["revisions"][0]["author"] == "ada@example.com"
    names = {user.get("externalId") for user in acme.get("/accounts/me/users")["users"]}
    assert "ada@example.com" in names
    acme("PATCH", "/accounts/me", json={"config": {"users": {"autocreate": False}}})
    acme.as_user("ada@example.com").get("/accounts/me")
    acme.as_user("bob@example.com").refused(404, "GET", "/accounts/me")
    acme.as_user("usr_000000000000000000000000").refused(404, "GET", "/accounts/me")
    acme.user_key("eve").as_user("ada@example.com").refused(403, "GET", "/accounts/me")


def test_an_external_user_id_may_contain_non_ascii_text(site: Site) -> None:
    acme = site.account("acme")
    acme("GET", "/accounts/me", headers={"X-Harness-User": "Zoë".encode()})
    assert "Zoë" in {user["name"] for user in acme.get("/accounts/me/users")["users"]}


def test_every_key_of_a_deleted_account_is_401(site: Site) -> None:
    acme = site.account("acme")
    ada = acme.user_key("ada")
    workspace = acme.workspace()
    assert acme("DELETE", "/accounts/me").json() == {"deleted": True}
    for caller in (acme, ada):
        caller.refused(401, "GET", "/accounts/me")
        caller.refused(401, "GET", f"/v1/workspaces/{workspace}/files")


def signed_in(site: Site, token: str) -> TestClient:
    browser = TestClient(site.app, BASE, follow_redirects=False)
    answer = browser.get(f"/?token={token}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    for wanted in ("HttpOnly", "SameSite=lax", "Path=/"):
        assert wanted.lower() in cookie.lower()
    return browser


def test_opening_the_start_address_sets_a_session_cookie(site: Site) -> None:
    with start_token(site.harness.settings.home) as token:
        browser = signed_in(site, token)
        page = browser.get("/")
        assert page.status_code == 200
        assert "notes" in page.text
        assert token not in page.text
        assert browser.get("/accounts/me").json()["name"] == "default"
    answer = browser.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?next=%2F")


def test_a_cookie_authorises_changes_only_from_this_servers_origin(site: Site) -> None:
    with start_token(site.harness.settings.home) as token:
        browser = signed_in(site, token)
        body = {"name": "made"}

        def post(**headers: str) -> int:
            return browser.post("/accounts/me/workspaces", json=body, headers=headers).status_code

        assert post() == 403
        assert post(Origin="null") == 403
        assert post(Origin="http://evil.com") == 403
        assert post(Origin="http://testserver:3000") == 403
        assert browser.get("/accounts/me", headers={"Origin": "http://evil.com"}).status_code == 403
        assert post(Origin=BASE) == 201


def test_a_wrong_authorization_header_is_401_despite_a_valid_cookie(site: Site) -> None:
    with start_token(site.harness.settings.home) as token:
        browser = signed_in(site, token)
        headers = {"Authorization": "Bearer wh_wrong"}
        assert browser.get("/accounts/me", headers=headers).status_code == 401


def test_the_cookie_is_secure_when_the_public_url_is_https(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_PUBLIC_URL", "https://memory.example.com")
    with Site.open(tmp_path / "home") as site, start_token(site.harness.settings.home) as token:
        browser = TestClient(site.app, BASE, follow_redirects=False)
        answer = browser.get(f"/?token={token}", headers={"Host": "memory.example.com"})
        assert "secure" in answer.headers["set-cookie"].lower()
        assert answer.headers["set-cookie"].startswith("harness=")


@pytest.mark.parametrize("token", ["", "x", "wh_x", "<script>alert(1)</script>", "é"])
def test_an_address_with_a_wrong_token_is_401_and_names_the_remedy(site: Site, token: str) -> None:
    browser = TestClient(site.app, BASE, follow_redirects=False)
    answer = browser.get("/", params={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "harness up" in answer.text
    assert "<script>" not in answer.text


def test_a_custom_authenticate_function_replaces_account_keys(tmp_path: Path) -> None:
    with Harness.open(tmp_path / "home") as harness:
        house = harness.house
        acme = house.accounts.owner(house.accounts.add({"name": "acme"}))

        async def authenticate(request: Request) -> Principal | None:
            return acme if request.headers.get("x-session") == "42" else None

        app = create_app(harness, authenticate=authenticate)
        with TestClient(app, BASE) as client:
            assert client.get("/accounts/me").status_code == 401
            known = Caller(client, headers={"X-Session": "42"})
            assert known.get("/accounts/me")["name"] == "acme"
            _, key = harness.rooms.keys.create()
            assert Caller(client, key)("GET", "/accounts/me").status_code == 401
            admin = Caller(client, admin_key(harness.settings.home))
            admin.post("/accounts", {"name": "other"})
