"""Records over HTTP: the routes that users, workspaces, sandboxes and agents share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.web.site import Caller, Site


def fields_of(caller: Caller, family: str) -> dict[str, Any]:
    if family == "agents":
        mount = {"name": "w", "workspaceId": caller.workspace("mounted")}
        return {"name": "one", "config": {"workspaces": [mount]}}
    return {"name": "one"}


@pytest.mark.parametrize("family", ["users", "workspaces", "sandboxes", "agents"])
def test_a_record_is_created_listed_read_patched_and_deleted(site: Site, family: str) -> None:
    acme = site.account("acme")
    path = f"/accounts/me/{family}"
    answer = acme("POST", path, json=fields_of(acme, family))
    assert answer.status_code == 201
    record = answer.json()
    assert answer.headers["location"] == f"{path}/{record['id']}"
    assert record["name"] == "one"
    assert {"id", "createdAt", "updatedAt"} <= set(record)
    assert record in acme.get(path)[family]
    assert acme.get(f"{path}/{record['id']}") == record

    patched = acme("PATCH", f"{path}/{record['id']}", json={"name": " two "})
    assert patched.status_code == 200
    changed = patched.json()
    assert changed == {**record, "name": "two", "updatedAt": changed["updatedAt"]}
    assert changed["updatedAt"] > record["updatedAt"]

    gone = acme("DELETE", f"{path}/{record['id']}")
    assert (gone.status_code, gone.json()) == (200, {"deleted": True})
    assert acme.refused(404, "GET", f"{path}/{record['id']}")["code"] == "not_found"
    assert record["id"] not in str(acme.get(path))


def test_patching_a_record_applies_a_json_merge_patch(site: Site) -> None:
    acme = site.account("acme")
    workspace = acme.workspace(description="old", config={"harness": {"enabled": False}})
    path = f"/accounts/me/workspaces/{workspace}"
    patch = {"description": None, "config": {"memory": {"maxLength": 10}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    record = acme("PATCH", path, json=patch, headers=headers).json()
    assert "description" not in record
    assert record["config"] == {"harness": {"enabled": False}, "memory": {"maxLength": 10}}
    record = acme("PATCH", path, json={"config": {"harness": None}}).json()
    assert record["config"] == {"memory": {"maxLength": 10}}


REFUSED: list[tuple[str, Any, str]] = [
    ("workspaces", {}, "name"),
    ("workspaces", {"name": ""}, "name"),
    ("workspaces", {"name": "  "}, "name"),
    ("workspaces", {"name": 1}, "name"),
    ("workspaces", {"name": "a\nb"}, "name"),
    ("workspaces", {"name": "w", "colour": "red"}, "colour"),
    ("workspaces", {"name": "w", "id": "ws_1"}, "id"),
    ("workspaces", {"name": "w", "createdAt": "now"}, "createdAt"),
    ("workspaces", {"name": "w", "template": "nope"}, "template"),
    ("workspaces", {"name": "w", "config": []}, "config"),
    ("workspaces", {"name": "w", "config": {"storage": "s3"}}, "config.storage"),
    (
        "workspaces",
        {"name": "w", "config": {"storage": {"provider": "ftp"}}},
        "config.storage.provider",
    ),
    (
        "workspaces",
        {"name": "w", "config": {"storage": {"provider": "s3"}}},
        "config.storage.provider",
    ),
    (
        "workspaces",
        {"name": "w", "config": {"harness": {"enabled": "yes"}}},
        "config.harness.enabled",
    ),
    ("workspaces", {"name": "w", "config": {"harness": {"enabled": 1}}}, "config.harness.enabled"),
    (
        "workspaces",
        {"name": "w", "config": {"memory": {"maxLength": 0}}},
        "config.memory.maxLength",
    ),
    (
        "workspaces",
        {"name": "w", "config": {"memory": {"maxLength": 1.5}}},
        "config.memory.maxLength",
    ),
    ("workspaces", {"name": "w", "config": {"hooks": {}}}, "config.hooks"),
    ("sandboxes", {"name": "s", "config": {"mode": "rwx"}}, "config.mode"),
    ("sandboxes", {"name": "s", "config": {"network": True}}, "config.network"),
    ("agents", {"name": "a", "config": {"private": "yes"}}, "config.private"),
    ("agents", {"name": "a", "config": {"sandbox": "sb_nope"}}, "config.sandbox"),
    ("agents", {"name": "a", "config": {"workspaces": {}}}, "config.workspaces"),
    (
        "agents",
        {"name": "a", "config": {"workspaces": [{"name": "n"}]}},
        "config.workspaces.0.workspaceId",
    ),
    ("users", {}, "name"),
    ("users", {"name": "u", "externalId": ""}, "externalId"),
    ("users", {"name": "u", "email": "x"}, "email"),
    ("keys", {"label": 1}, "label"),
    ("keys", {"expiresAt": "tomorrow"}, "expiresAt"),
    ("keys", {"expiresAt": "2001-01-01T00:00:00Z"}, "expiresAt"),
    ("keys", {"expires": None}, "expires"),
]


@pytest.mark.parametrize(("family", "fields", "field"), REFUSED)
def test_an_invalid_record_field_is_400_with_its_name(
    site: Site, family: str, fields: Any, field: str
) -> None:
    error = site.account("acme").refused(400, "POST", f"/accounts/me/{family}", json=fields)
    assert (error["code"], error["field"]) == ("invalid", field)


@pytest.mark.parametrize(
    ("mounts", "field"),
    [
        ([{"name": "bad name", "workspaceId": "W"}], "0.name"),
        ([{"name": "-x", "workspaceId": "W"}], "0.name"),
        ([{"name": "", "workspaceId": "W"}], "0.name"),
        ([{"name": "x", "workspaceId": ""}], "0.workspaceId"),
        ([{"name": "x", "workspaceId": "ws_000000000000000000000000"}], "0.workspaceId"),
        ([{"name": "x", "workspaceId": "W"}, {"name": "x", "workspaceId": "V"}], "1.name"),
        ([{"name": "x", "workspaceId": "W"}, {"name": "y", "workspaceId": "W"}], "1.workspaceId"),
        ([{"name": "x", "workspaceId": "W", "sandbox": "sb_none"}], "0.sandbox"),
    ],
)
def test_an_invalid_mount_is_400_with_its_field_name(
    site: Site, mounts: list[dict[str, str]], field: str
) -> None:
    acme = site.account("acme")
    ids = {"W": acme.workspace("w"), "V": acme.workspace("v")}
    stated = [{key: ids.get(value, value) for key, value in mount.items()} for mount in mounts]
    body = {"name": "a", "config": {"workspaces": stated}}
    assert acme.refused(400, "POST", "/accounts/me/agents", json=body)["field"] == (
        f"config.workspaces.{field}"
    )


def test_a_record_name_already_in_use_is_409(site: Site) -> None:
    acme = site.account("acme")
    acme.workspace("w")
    assert acme.refused(409, "POST", "/accounts/me/workspaces", json={"name": "w"})["code"] == (
        "already_exists"
    )


def test_a_mounted_workspace_is_deleted_only_with_force(site: Site) -> None:
    acme = site.account("acme")
    workspace = acme.workspace("w")
    mounts = {"workspaces": [{"name": "w", "workspaceId": workspace}]}
    agent = acme.post("/accounts/me/agents", {"name": "a", "config": mounts})
    path = f"/accounts/me/workspaces/{workspace}"
    assert "a" in acme.refused(409, "DELETE", path)["message"]
    assert acme.refused(400, "DELETE", f"{path}?force=yes")["field"] == "force"
    assert acme.refused(400, "DELETE", f"{path}?forced=true")["field"] == "forced"
    assert acme.get(path)["id"] == workspace
    assert acme("DELETE", f"{path}?force=true").json() == {"deleted": True}
    assert acme.get(f"/accounts/me/agents/{agent['id']}")["config"] == mounts


def test_an_agent_created_over_http_has_no_sandbox_by_default(site: Site) -> None:
    assert site.account("acme").post("/accounts/me/agents", {"name": "a"}).get("config", {}) == {}


BODIES = [
    (b"", 400),
    (b"null", 400),
    (b"[]", 400),
    (b'"name"', 400),
    (b"{", 400),
    (b'{"name": "w"} x', 400),
    (b'{"name": "w", "name": "v"}', 400),
    (b'{"name": NaN}', 400),
    (b'{"name": "\xff"}', 400),
    (b'{"name": "\\ud800"}', 400),
    (b"\xef\xbb\xbf{}", 400),
    (b'{"name": ' + b"9" * 5000 + b"}", 400),
    (b'{"name": 1e999999}', 400),
    (b'{"a":' * 100 + b"1" + b"}" * 100, 400),
    (b'{"config": ' + b"[" * 500_000 + b"]" * 500_000 + b"}", 400),
    (b'{"config":' * 100_000, 400),
    (b'{"name": "' + b"x" * (9 * 2**20) + b'"}', 400),
    (b'{"name": "' + b"x" * (11 * 2**20) + b'"}', 413),
]


@pytest.mark.parametrize(("body", "status"), BODIES, ids=range(len(BODIES)))
def test_a_malformed_or_oversized_body_gets_a_short_refusal(
    site: Site, body: bytes, status: int
) -> None:
    acme = site.account("acme")
    headers = {"Content-Type": "application/json"}
    error = acme.refused(status, "POST", "/accounts/me/workspaces", content=body, headers=headers)
    assert len(error["message"]) < 500


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_a_non_finite_number_is_refused_inside_free_form_json(site: Site, number: str) -> None:
    schema = f'{{"type": "object", "maximum": {number}}}'
    tool = f'{{"name": "t", "description": "d", "inputSchema": {schema}}}'
    body = f'{{"name": "a", "config": {{"tools": [{tool}]}}}}'
    acme = site.account("acme")
    headers = {"Content-Type": "application/json"}
    error = acme.refused(400, "POST", "/accounts/me/agents", content=body, headers=headers)
    assert error["message"] == f"body: holds {number}, which is not a finite number"


def test_a_body_with_another_content_type_than_json_is_415(site: Site) -> None:
    acme = site.account("acme")
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ):
        headers = {"Content-Type": kind}
        acme.refused(415, "POST", "/accounts/me/workspaces", content=b"{}", headers=headers)
    assert acme("POST", "/accounts/me/workspaces", content=b'{"name": "w"}').status_code == 201
