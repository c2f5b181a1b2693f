"""Memorize over HTTP: the source's payload, each status, and whose conversations are whose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.harness.memorize.local.transcripts import THREAD, codex_said, meta, rollout, write
from tests.harness.web.site import Caller, Site

SAID = "The staging server is called heron."
SENT: dict[str, Any] = {
    "id": THREAD,
    "provider": "codex",
    "project": "/home/me/shop",
    "messages": [{"role": "user", "text": SAID}, {"role": "assistant", "text": "noted"}],
}
MEMORY: dict[str, Any] = {
    "content": "Staging is heron.",
    "workspace": "team",
    "groundings": [{"quote": "called heron"}],
}
MEMORIZE = "/api/memories/memorize"


@pytest.fixture
def acme(site: Site) -> Caller:
    caller = site.account("acme")
    caller.workspace("team")
    return caller


def sent(memory: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"conversation": SENT, "memory": {**MEMORY, **(memory or {}), **more}, "source": "mcp"}


def test_a_sent_conversation_is_archived_with_its_memory(acme: Caller) -> None:
    made = acme.post(MEMORIZE, sent())
    assert made["status"] == "created"
    memory, conversation = made["memory"], made["conversation"]
    assert memory["groundings"][0]["start_character"] == 22
    assert acme.post(MEMORIZE, sent(), 200)["status"] == "unchanged"
    assert acme.get(f"/api/memories/{memory['id']}") == memory
    page = acme.get("/api/memories?q=heron&tags=&project=/home/me")
    assert page == {"data": [memory], "meta": {"page": 1, "per_page": 25, "total": 1}}
    assert acme.get("/api/conversations")["data"] == [conversation]
    shown = acme.get(f"/api/conversations/{THREAD}?around=1&limit=1")
    assert [one["text"] for one in shown["messages"]] == [SAID]
    # archived once, it is cited by its id
    cited = {"conversation_id": THREAD, "content": "Two.", "workspace": "team"}
    assert acme.post(MEMORIZE, cited)["conversation"]["id"] == conversation["id"]


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"content": " "}, 400, "content"),
        ({"content": "x" * 2001}, 413, None),
        ({"agent_id": 7}, 400, "agent_id"),
        ({"confidence": -0.1}, 400, "confidence"),
        ({"tags": ["t"] * 51}, 400, "tags"),
        ({"surprise": 1}, 400, "surprise"),
        ({"groundings": [{"quote": "goose"}]}, 400, "groundings.0.quote"),
        ({"groundings": [{"message_position": 3}]}, 400, "groundings.0.message_position"),
        ({"conversation_id": "another"}, 400, "conversation_id"),
        ({"workspace": "nowhere"}, 404, None),
        ({"agent_id": "nobody"}, 404, None),
    ],
)
def test_each_rule_has_its_status_and_nothing_is_stored(
    acme: Caller, fields: dict[str, Any], status: int, field: str | None
) -> None:
    error = acme.refused(status, "POST", MEMORIZE, json=sent(fields))
    assert error.get("field") == field
    assert acme.get("/api/memories")["meta"]["total"] == 0
    assert acme.get("/api/conversations")["meta"]["total"] == 0


def test_an_account_without_a_default_workspace_must_name_one(acme: Caller) -> None:
    error = acme.refused(400, "POST", MEMORIZE, json=sent(workspace=None))
    assert error["field"] == "workspace"


def test_a_persons_edit_is_a_409_with_the_memory(acme: Caller) -> None:
    made = acme.post(MEMORIZE, sent(memory_key="server"))["memory"]
    rows = "/api/workspaces/team/memories"
    change = {"value": "mine", "source": "manual"}
    assert acme("PATCH", f"{rows}/{made['id']}", json=change).status_code == 200
    error = acme.refused(409, "POST", MEMORIZE, json=sent(memory_key="server"))
    assert (error["code"], error["memory"]["content"]) == ("edited", "mine")
    again = acme.post(MEMORIZE, sent(memory_key="server", overwrite=True), 200)
    assert again["memory"]["content"] == MEMORY["content"]


def test_a_forgotten_memory_leaves_its_conversation(acme: Caller) -> None:
    made = acme.post(MEMORIZE, sent())["memory"]
    assert acme("DELETE", f"/api/memories/{made['id']}").json() == {"deleted": True}
    acme.refused(404, "GET", f"/api/memories/{made['id']}")
    assert acme.get("/api/conversations")["meta"]["total"] == 1
    assert acme("DELETE", f"/api/conversations/{THREAD}").json() == {"deleted": True}
    acme.refused(404, "DELETE", f"/api/conversations/{THREAD}")


def test_a_user_has_memories_and_conversations_of_its_own(acme: Caller) -> None:
    archive = acme.post(MEMORIZE, sent())["conversation"]["id"]
    bea = acme.user_key("bea")
    for reference in (archive, THREAD):
        bea.refused(404, "GET", f"/api/conversations/{reference}")
        bea.refused(404, "DELETE", f"/api/conversations/{reference}")
    assert bea.get("/api/conversations")["meta"]["total"] == 0
    assert bea.get("/api/memories")["meta"]["total"] == 0
    bea.refused(404, "POST", MEMORIZE, json={"conversation_id": THREAD, "content": "x"})
    bea.refused(403, "POST", MEMORIZE, json=sent())
    own = bea.post(MEMORIZE, sent(workspace=None))
    assert own["memory"]["workspace"].startswith("user:")
    assert own["conversation"]["id"] != archive
    assert acme.get("/api/memories")["meta"]["total"] == 1


def test_a_row_with_a_secret_is_refused_with_the_reason(acme: Caller) -> None:
    secret = "ghp_" + "a1B2" * 9
    answer = acme("POST", "/api/workspaces/team/memories", json={"key": "k", "value": secret})
    assert answer.status_code == 400
    assert "GitHub token" in answer.json()["error"]
    assert secret not in answer.text


def test_local_conversations_are_read_for_the_homes_owner_alone(
    site: Site, acme: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(rollout(tmp_path / ".codex", THREAD), meta(), codex_said("user", SAID))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / ".codex"))
    cited = {"conversation_id": THREAD, "content": MEMORY["content"]}
    here = TestClient(site.app, "http://127.0.0.1:8642", client=("127.0.0.1", 50_000))
    away = TestClient(site.app, "http://127.0.0.1:8642", client=("192.0.2.7", 50_000))
    _, key = site.harness.rooms.keys.create()
    Caller(away, key).refused(404, "POST", MEMORIZE, json=cited)
    proxied = {"X-Forwarded-For": "192.0.2.7"}
    Caller(here, key).refused(404, "POST", MEMORIZE, json=cited, headers=proxied)
    another = {**cited, "workspace": "team"}
    Caller(here, acme.key).refused(404, "POST", MEMORIZE, json=another)
    assert Caller(here, key).post(MEMORIZE, cited)["status"] == "created"
