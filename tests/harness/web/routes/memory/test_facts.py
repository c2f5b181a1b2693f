"""The rows over HTTP: the source's shape, its envelope, and every rule with its status."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from harness import Harness
from harness.memory.facts.fact_file import write_fact
from harness.presentation.fact_json import fact_json
from tests.harness.web.site import Caller, Site
from workspaces.revision import Author
from workspaces.workspace.workspace import Workspace

DEPLOY = {
    "key": "deploy-cmd",
    "value": "Deploy with npm run deploy from repo root",
    "pinned": True,
    "importance": 80,
}
MODEL = Author("helper", "agent_1", "extract")


@pytest.fixture
def acme(site: Site) -> Caller:
    return site.account("acme")


@pytest.fixture
def rows(acme: Caller) -> str:
    return f"/api/workspaces/{acme.workspace('team')}/memories"


def data(answer: Any, status: int = 200) -> Any:
    """What an answer carries, in the envelope of every good answer."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"success", "data"}
    assert body["success"] is True
    return body["data"]


def error(answer: Any, status: int) -> str:
    """What a refusal says, in the envelope of every other answer."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"success", "error"}
    assert body["success"] is False
    assert isinstance(body["error"], str)
    return body["error"]


def test_a_fact_is_created_listed_and_updated_under_one_id(acme: Caller) -> None:
    path = f"/api/agents/{acme.agent()}/memories"
    made = data(acme("POST", path, json=DEPLOY), 201)
    assert data(acme("GET", path)) == [made]
    assert {name: made[name] for name in DEPLOY} == DEPLOY
    assert (made["scope"], made["workspaceId"], made["source"]) == ("agent", None, "manual")
    again = data(acme("POST", path, json={"key": "deploy-cmd", "value": "make deploy"}), 200)
    assert again["id"] == made["id"]
    assert (again["pinned"], again["importance"]) == (True, 80)
    assert again["createdAt"] == made["createdAt"] < again["updatedAt"]


def test_the_same_key_in_two_scopes_is_two_rows(acme: Caller, rows: str) -> None:
    agent = f"/api/agents/{acme.agent()}/memories"
    one, other = (data(acme("POST", path, json=DEPLOY), 201) for path in (agent, rows))
    assert one["id"] != other["id"]
    assert (other["scope"], other["agentId"]) == ("workspace", None)
    data(acme("DELETE", f"{agent}/{one['id']}"))
    assert [row["id"] for row in data(acme("GET", rows))] == [other["id"]]


def test_lists_are_pinned_then_important_then_by_key_or_newest(acme: Caller, rows: str) -> None:
    agent = f"/api/agents/{acme.agent()}/memories"
    for path in (agent, rows):
        for key, more in (
            ("b", {}),
            ("a", {}),
            ("c", {"importance": 9}),
            ("d", {"pinned": True}),
            ("e", {"pinned": True, "importance": 1}),
        ):
            data(acme("POST", path, json={"key": key, "value": f"about {key}", **more}), 201)
    assert [row["key"] for row in data(acme("GET", agent))] == ["e", "d", "c", "a", "b"]
    assert [row["key"] for row in data(acme("GET", rows))] == ["e", "d", "c", "a", "b"]
    data(acme("POST", rows, json={"key": "b", "value": "newer"}))
    assert [row["key"] for row in data(acme("GET", rows))] == ["e", "d", "c", "b", "a"]


def test_the_list_is_filtered_by_source_and_pin(site: Site, acme: Caller, rows: str) -> None:
    data(acme("POST", rows, json=DEPLOY), 201)
    learned(site, acme, "city", "They live in Oslo.")
    keys = {
        query: [row["key"] for row in data(acme("GET", f"{rows}?{query}"))]
        for query in (
            "source=auto",
            "source=manual",
            "pinned=true",
            "pinned=false",
            "source=memorize",
        )
    }
    assert keys == {
        "source=auto": ["city"],
        "source=manual": ["deploy-cmd"],
        "pinned=true": ["deploy-cmd"],
        "pinned=false": ["city"],
        "source=memorize": [],
    }
    assert "source" in error(acme("GET", f"{rows}?source=dream"), 400)
    assert "pinned" in error(acme("GET", f"{rows}?pinned=1"), 400)
    assert "colour" in error(acme("GET", f"{rows}?colour=red"), 400)


def test_a_patch_changes_what_it_says_and_an_empty_one_nothing(acme: Caller, rows: str) -> None:
    made = data(acme("POST", rows, json=DEPLOY), 201)
    path = f"{rows}/{made['id']}"
    assert data(acme("PATCH", path, json={})) == made
    changed = data(acme("PATCH", path, json={"importance": 7}))
    assert {**made, "importance": 7} == {
        **changed,
        "updatedAt": made["updatedAt"],
        "version": made["version"],
    }
    assert data(acme("PATCH", f"{path}/pin", json={"pinned": False}))["pinned"] is False
    assert data(acme("DELETE", path)) == {"deleted": True}
    assert data(acme("GET", rows)) == []
    assert error(acme("DELETE", path), 404)


def test_a_model_s_fact_is_read_only_until_a_person_takes_it_over(
    site: Site, acme: Caller, rows: str
) -> None:
    fact = learned(site, acme, "city", "They live in Oslo.")
    path = f"{rows}/{fact['id']}"
    assert "read-only" in error(acme("PATCH", path, json={"value": "Bergen"}), 409)
    assert data(acme("PATCH", f"{path}/pin", json={"pinned": True}))["source"] == "auto"
    adopted = data(acme("POST", rows, json={"key": "city", "value": "They live in Oslo."}), 200)
    assert (adopted["source"], adopted["pinned"], adopted["id"]) == ("manual", True, fact["id"])
    assert data(acme("PATCH", path, json={"value": "Bergen"}))["value"] == "Bergen"
    other = learned(site, acme, "tea", "They like tea.")
    edit = {"value": "They like green tea.", "source": "manual"}
    edited = data(acme("PATCH", f"{rows}/{other['id']}", json=edit))
    assert (edited["source"], edited["value"]) == ("manual", "They like green tea.")


def test_a_version_guards_a_change(acme: Caller, rows: str) -> None:
    made = data(acme("POST", rows, json=DEPLOY), 201)
    path, seen = f"{rows}/{made['id']}", {"If-Match": f'"{made["version"]}"'}
    changed = acme("PATCH", path, json={"importance": 1}, headers=seen)
    assert changed.headers["ETag"] == f'"{data(changed)["version"]}"'
    for method, sent in (("PATCH", {"json": {"importance": 2}}), ("DELETE", {})):
        assert "version" in error(acme(method, path, headers=seen, **sent), 412)
    assert error(
        acme("POST", rows, json={"key": "new", "value": "x"}, headers={"If-Match": "*"}), 412
    )
    assert error(acme("PATCH", path, json={}, headers={"If-Match": "nonsense"}), 400)
    assert [row["importance"] for row in data(acme("GET", rows))] == [1]


BAD = [
    ({"value": "x"}, 400, "key"),
    ({"key": "k"}, 400, "value"),
    ({"key": "", "value": "x"}, 400, "key"),
    ({"key": "k" * 256, "value": "x"}, 400, "key"),
    ({"key": " k", "value": "x"}, 400, "key"),
    ({"key": "k\n", "value": "x"}, 400, "key"),
    ({"key": "a\tb", "value": "x"}, 400, "key"),
    ({"key": "a\u2028b", "value": "x"}, 400, "key"),
    ({"key": 7, "value": "x"}, 400, "key"),
    ({"key": "k", "value": " \n "}, 400, "value"),
    ({"key": "k", "value": "x" * 2001}, 413, "value"),
    ({"key": "k", "value": "\U0001f600" * 2001}, 413, "value"),
    ({"key": "k", "value": None}, 400, "value"),
    ({"key": "k", "value": "a\0b"}, 400, "value"),
    ({"key": "k", "value": "x", "pinned": "true"}, 400, "pinned"),
    ({"key": "k", "value": "x", "pinned": 1}, 400, "pinned"),
    ({"key": "k", "value": "x", "pinned": None}, 400, "pinned"),
    ({"key": "k", "value": "x", "importance": 101}, 400, "importance"),
    ({"key": "k", "value": "x", "importance": -1}, 400, "importance"),
    ({"key": "k", "value": "x", "importance": 1.0}, 400, "importance"),
    ({"key": "k", "value": "x", "importance": True}, 400, "importance"),
    ({"key": "k", "value": "x", "source": "auto"}, 400, "source"),
    ({"key": "k", "value": "x", "importence": 3}, 400, "importence"),
]


@pytest.mark.parametrize(("body", "status", "field"), BAD)
def test_a_body_that_breaks_a_rule_is_refused_by_name_and_nothing_is_written(
    acme: Caller, rows: str, body: Mapping[str, Any], status: int, field: str
) -> None:
    assert field in error(acme("POST", rows, json=body), status)
    assert data(acme("GET", rows)) == []


def test_the_longest_key_and_value_are_stored_whole(acme: Caller, rows: str) -> None:
    body = {"key": "\U0001f600" * 255, "value": "ü" * 2000}
    made = data(acme("POST", rows, json=body), 201)
    assert data(acme("GET", rows)) == [made]
    assert {name: made[name] for name in body} == body


@pytest.mark.parametrize(
    ("method", "tail", "body", "status"),
    [
        ("PATCH", "", {"key": "other"}, 400),
        ("PATCH", "", {"value": None}, 400),
        ("PATCH", "", {"source": "director"}, 400),
        ("PATCH", "", {"value": ""}, 400),
        ("PATCH", "", {"value": "x" * 2001}, 413),
        ("PATCH", "", {"nothing": 1}, 400),
        ("PATCH", "/pin", {}, 400),
        ("PATCH", "/pin", {"pinned": "yes"}, 400),
        ("PATCH", "/pin", {"pinned": True, "value": "x"}, 400),
        ("GET", "", None, 405),
        ("POST", "/pin", {"pinned": True}, 405),
    ],
)
def test_a_bad_change_is_refused_and_leaves_the_fact_as_it_was(
    acme: Caller, rows: str, method: str, tail: str, body: Any, status: int
) -> None:
    made = data(acme("POST", rows, json=DEPLOY), 201)
    assert error(acme(method, f"{rows}/{made['id']}{tail}", json=body), status)
    assert data(acme("GET", rows)) == [made]


def test_every_refusal_under_these_paths_has_the_envelope(
    site: Site, acme: Caller, rows: str
) -> None:
    assert error(site.nobody("GET", rows), 401)
    assert error(acme.user_key("bob")("GET", rows), 403)
    assert error(site.account("other")("GET", rows), 404)
    assert error(acme("GET", "/api/agents/nobody/memories"), 404)
    assert error(acme("GET", "/api/agents/x/memories/y/unknown"), 404)
    assert error(acme("PUT", rows), 405)
    assert error(acme("POST", rows, content=b"x", headers={"Content-Type": "text/plain"}), 415)
    assert error(acme("POST", rows, content=b"{"), 400)
    assert error(acme("POST", rows, content=b" " * 11_000_000), 413)
    assert error(acme("GET", rows, headers={"Host": "evil.example"}), 421)
    assert error(acme("POST", rows, json=DEPLOY, headers={"Origin": "https://evil.example"}), 403)


def test_a_private_workspace_of_an_agent_is_reached_by_the_agent_s_route_alone(
    acme: Caller,
) -> None:
    agent = acme.agent()
    data(acme("POST", f"/api/agents/{agent}/memories", json=DEPLOY), 201)
    assert error(acme("GET", f"/api/workspaces/agent:{agent}/memories"), 404)
    me = acme.get("/accounts/me")["ownerId"]
    assert data(acme("GET", f"/api/workspaces/user:{me}/memories")) == []
    assert data(acme("POST", f"/api/workspaces/user:{me}/memories", json=DEPLOY), 201)


def test_another_user_has_facts_of_its_own_with_an_agent(acme: Caller) -> None:
    path = f"/api/agents/{acme.agent()}/memories"
    owners = data(acme("POST", path, json=DEPLOY), 201)
    bob = acme.user_key("bob")
    assert data(bob("GET", path)) == []
    bobs = data(bob("POST", path, json={"key": "deploy-cmd", "value": "as Bob does it"}), 201)
    assert bobs["id"] != owners["id"]
    assert error(bob("DELETE", f"{path}/{owners['id']}"), 404)
    assert data(acme("GET", path)) == [owners]
    carol = acme.as_user(acme.post("/accounts/me/users", {"name": "carol"})["id"])
    assert data(carol("GET", path)) == []


def test_a_list_shows_what_an_editor_and_a_second_process_saved(
    site: Site, acme: Caller, rows: str
) -> None:
    made = data(acme("POST", rows, json=DEPLOY), 201)
    place = files_of(site, acme)
    file = place / "deploy-cmd.md"
    file.write_text(file.read_text().replace("npm run deploy", "make deploy"))
    (place / "by-hand.md").write_text("Written without a front matter.\n")
    listed = {row["key"]: row for row in data(acme("GET", rows))}
    assert listed["deploy-cmd"]["value"] == "Deploy with make deploy from repo root"
    assert listed["deploy-cmd"]["id"] == made["id"]
    assert listed["by-hand"]["value"] == "Written without a front matter."
    assert listed["by-hand"]["source"] == "manual"
    file.unlink()
    assert [row["key"] for row in data(acme("GET", rows))] == ["by-hand"]


def test_a_fact_edited_by_hand_is_not_overwritten_unseen(
    site: Site, acme: Caller, rows: str
) -> None:
    made = data(acme("POST", rows, json=DEPLOY), 201)
    file = files_of(site, acme) / "deploy-cmd.md"
    file.write_text(file.read_text().replace("npm run deploy", "make deploy"))
    pinned = data(acme("PATCH", f"{rows}/{made['id']}/pin", json={"pinned": False}))
    assert pinned["value"] == "Deploy with make deploy from repo root"
    assert pinned["pinned"] is False


def test_malformed_files_break_no_list(site: Site, acme: Caller, rows: str) -> None:
    data(acme("POST", rows, json=DEPLOY), 201)
    place = files_of(site, acme)
    (place / "no-text.md").write_bytes(b"\xff\xfe")
    (place / "broken.md").write_text("---\nkey: [\n---\nx\n")
    (place / "open.md").write_text("---\nkey: x\n")
    (place / "blank.md").write_text("---\nkey: x\n---\n\n")
    (place / "bomb.md").write_text("---\n" + "a: {" * 50 + "}" * 50 + "\n---\nx\n")
    (place / "alias.md").write_text("---\na: &a [1]\nb: *a\n---\nx\n")
    (place / "long.md").write_text("long " * 1000)
    (place / "deep").mkdir()
    (place / "deep" / "er.md").write_text("no fact\n")
    listed = {row["key"]: row for row in data(acme("GET", rows))}
    assert set(listed) == {"deploy-cmd", "long"}
    assert listed["long"]["truncated"] is True
    assert len(listed["long"]["value"]) == 2000


def test_the_answers_have_the_shape_that_the_document_states(
    site: Site, acme: Caller, rows: str
) -> None:
    document = site.app.openapi()
    agent = f"/api/agents/{acme.agent()}/memories"
    for path, route in (
        (rows, "/api/workspaces/{workspaceId}/memories"),
        (agent, "/api/agents/{agentId}/memories"),
    ):
        one = f"{route}/{{memoryId}}"
        made = acme("POST", path, json=DEPLOY)
        fact = f"{path}/{made.json()['data']['id']}"
        asked = [
            (route, "post", made),
            (route, "post", acme("POST", path, json=DEPLOY)),
            (route, "get", acme("GET", path)),
            (one, "patch", acme("PATCH", fact, json={"importance": 3})),
            (one, "patch", acme("PATCH", fact, json={"importance": 300})),
            (f"{one}/pin", "patch", acme("PATCH", f"{fact}/pin", json={"pinned": False})),
            (one, "delete", acme("DELETE", fact)),
            (one, "delete", acme("DELETE", fact)),
            (route, "get", site.nobody("GET", path)),
        ]
        for where, method, answer in asked:
            stated = document["paths"][where][method]["responses"][str(answer.status_code)]
            schema = stated["content"]["application/json"]["schema"]
            whole = {**schema, "components": document["components"]}
            validator: Any = Draft202012Validator(whole)  # its methods have no types
            validator.validate(answer.json())


def test_a_fact_that_an_agent_s_bash_edits_and_one_that_the_api_writes_are_both_kept(
    site: Site, acme: Caller, rows: str
) -> None:
    made = data(acme("POST", rows, json=DEPLOY), 201)
    workspace = workspace_of(site, acme)
    with ThreadPoolExecutor(2) as pool:
        with workspace.command(MODEL):
            pinned = pool.submit(acme, "PATCH", f"{rows}/{made['id']}/pin", json={"pinned": False})
            added = pool.submit(acme, "POST", rows, json={"key": "tea", "value": "Green tea."})
            edit = "sed -i s/npm.run/make/ facts/deploy-cmd.md; echo Oslo. > facts/city.md"
            subprocess.run(["bash", "-ec", f"sleep 0.5; {edit}"], cwd=workspace.root, check=True)
            assert [row["value"] for row in data(acme("GET", rows))] == [DEPLOY["value"]]
            assert not pinned.done()
            assert not added.done()
        data(pinned.result())
        data(added.result(), 201)
    listed = {row["key"]: row for row in data(acme("GET", rows))}
    shown = {key: (row["value"], row["source"], row["pinned"]) for key, row in listed.items()}
    assert shown == {
        "deploy-cmd": ("Deploy with make deploy from repo root", "auto", False),
        "city": ("Oslo.", "auto", False),
        "tea": ("Green tea.", "manual", False),
    }


def test_a_write_is_refused_while_a_command_holds_the_workspace_and_a_list_is_not(
    site: Site, acme: Caller, rows: str
) -> None:
    made = data(acme("POST", rows, json=DEPLOY), 201)
    with workspace_of(site, acme).command(MODEL):
        begin = time.monotonic()
        assert data(acme("GET", rows)) == [made]
        assert time.monotonic() - begin < 5
        refused = acme("POST", rows, json={"key": "tea", "value": "Green tea."})
        assert error(refused, 503)
        assert int(refused.headers["Retry-After"]) > 0
        assert time.monotonic() - begin >= 9
    assert data(acme("GET", rows)) == [made]


def test_rows_are_the_same_after_every_cache_is_deleted(
    tmp_path: Path, site: Site, acme: Caller, rows: str
) -> None:
    data(acme("POST", rows, json=DEPLOY), 201)
    learned(site, acme, "city", "They live in Oslo.")
    learned(site, acme, "tea", "Green tea.")
    data(acme("POST", rows, json={"key": "tea", "value": "Green tea."}))
    data(acme("POST", rows, json={"key": "deploy-cmd", "value": "make deploy"}))
    (files_of(site, acme) / "by-hand.md").write_text("By hand.\n")
    before = data(acme("GET", rows))
    assert {row["key"]: row["source"] for row in before} == {
        "deploy-cmd": "manual",
        "city": "auto",
        "tea": "manual",
        "by-hand": "manual",
    }
    home = tmp_path / "home"
    place, principal = workspace_of(site, acme), _principal(site, acme)
    assert any((home / "search").iterdir())
    copy = tmp_path / "copy"
    shutil.copytree(home, copy, symlinks=True, ignore=shutil.ignore_patterns("search"))
    with Harness.open(copy) as harness:
        owner = harness.house.accounts.owner(harness.house.accounts.get(principal.account_id))
        facts = harness.house.rooms(owner).facts.of_workspace(place.record.id)
        after = [fact_json(fact, facts.scope) for fact in facts.list()]
    assert after == before


def learned(site: Site, caller: Caller, key: str, value: str) -> Any:
    """A fact that a model wrote."""
    workspace = site.harness.house.rooms(_principal(site, caller)).workspaces.get("team")
    data_ = write_fact(None, key=key, value=value, pinned=False, importance=0)
    workspace.write(f"facts/{key}.md", data_, by=MODEL)
    rows = caller("GET", f"/api/workspaces/{workspace.record.id}/memories").json()["data"]
    return next(row for row in rows if row["key"] == key)


def workspace_of(site: Site, caller: Caller) -> Workspace:
    return site.harness.house.rooms(_principal(site, caller)).workspaces.get("team")


def files_of(site: Site, caller: Caller) -> Path:
    place = workspace_of(site, caller).root / "facts"
    place.mkdir(exist_ok=True)
    return place


def _principal(site: Site, caller: Caller) -> Any:
    accounts = site.harness.house.accounts
    return accounts.owner(accounts.get(caller.get("/accounts/me")["id"]))
