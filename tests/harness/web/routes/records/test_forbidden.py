"""What is forbidden over HTTP, and every door that refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.messages.message import Text, ToolCall
from harness.models.scripted import ScriptedModel
from tests.harness.web.site import Caller, Site
from tests.harness.web.turning import said, taken

NUMBER = "ACME-123456"


@dataclass
class Forbade:
    site: Site
    caller: Caller
    workspace: str
    rule: str


@pytest.fixture(scope="module")
def forbade(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forbade]:
    with Site.open(tmp_path_factory.mktemp("home")) as site:
        caller = site.account("acme")
        workspace = caller.workspace("w")
        rule = caller.post("/v1/forbidden", {"match": "ACME-[0-9]{6}"})
        yield Forbade(site, caller, workspace, rule["id"])


def test_rules_are_made_listed_and_lifted_by_the_owner_alone(forbade: Forbade) -> None:
    caller = forbade.caller
    text = caller.post("/v1/forbidden", {"text": "The code is 4711", "workspace": "w"})
    assert text["words"] == 4 and text["workspaceId"] == forbade.workspace
    listed = caller("GET", "/v1/forbidden")
    assert [one["id"] for one in listed.json()["forbidden"]] == [forbade.rule, text["id"]]
    assert "4711" not in listed.text
    assert caller("DELETE", f"/v1/forbidden/{text['id']}").json()["isLifted"]
    caller.refused(404, "DELETE", f"/v1/forbidden/{text['id']}")
    ada = caller.user_key("ada")
    ada.refused(403, "GET", "/v1/forbidden")
    ada.refused(403, "POST", "/v1/forbidden", json={"match": "a"})
    other = forbade.site.account("other")
    assert other.list("/v1/forbidden", "forbidden") == []
    other.refused(404, "DELETE", f"/v1/forbidden/{forbade.rule}")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"text": ""},
        {"text": "tea"},
        {"text": "a b c", "match": "x"},
        {"match": "a*"},
        {"match": "("},
        {"detect": "nothing"},
        {"text": "a b c " * 1_000},
    ],
)
def test_what_cannot_be_a_rule_is_refused(forbade: Forbade, fields: dict[str, str]) -> None:
    forbade.caller.refused(400, "POST", "/v1/forbidden", json=fields)


def test_every_door_refuses_with_422_and_without_the_text(forbade: Forbade) -> None:
    caller, workspace = forbade.caller, forbade.workspace
    agent = caller.agent("a", workspaces=[{"name": "w", "workspaceId": workspace}])
    text = f"- the number is {NUMBER}"
    fact = {"key": "number", "value": text}
    block = {"content": text, "expected_updated_at": None}
    memory = {"content": text, "workspace": workspace, "groundings": [{"quote": "tea is"}]}
    sent = {"id": "c", "provider": "codex", "messages": [{"role": "user", "text": "tea is"}]}
    asked = (
        ("PUT", f"/v1/workspaces/{workspace}/files/a.md", {"content": text.encode()}),
        ("POST", f"/api/workspaces/{workspace}/memories", {"json": fact}),
        ("PUT", f"/api/v1/memory/blocks/core?agent_id={agent}", {"json": block}),
        ("POST", "/api/memories/memorize", {"json": {"conversation": sent, "memory": memory}}),
    )
    hidden = {**sent, "messages": [*sent["messages"], {"role": "user", "text": text}]}
    other = {"content": "- tea", "workspace": workspace, "groundings": [{"quote": "tea is"}]}
    secret = {"json": {"conversation": hidden, "memory": other}}
    asked = (*asked, ("POST", "/api/memories/memorize", secret))
    before = caller.list("/v1/forbidden", "forbidden")[0]["stopped"]
    for method, path, more in asked:
        answer = caller(method, path, **more)
        assert answer.status_code == 422, (path, answer.text)
        assert forbade.rule in answer.text and NUMBER not in answer.text
    (rule,) = caller.list("/v1/forbidden", "forbidden")
    assert rule["stopped"] == before + len(asked) and rule["stoppedAt"]
    archived = caller.get("/api/conversations")["data"]
    assert [one["messages"] for one in archived] == [1]  # the one that holds nothing forbidden
    error = caller("PUT", asked[0][1], **asked[0][2]).json()["error"]
    assert error["code"] == "forbidden_text" and "line 1" in error["message"]
    assert caller("GET", asked[0][1]).status_code == 404


def test_a_file_that_is_held_back_refuses_every_write_with_its_line_and_remedy(
    forbade: Forbade, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also a write that names the version which counts for readers. The file on the disk is somebody's."""
    caller, path = forbade.caller, f"/v1/workspaces/{forbade.workspace}/files/held.md"
    assert caller("PUT", path, content=b"tea\n").status_code == 201
    tag = caller("GET", path).headers["ETag"]
    (tree,) = (one.parent for one in tmp_path_factory.getbasetemp().rglob("workspaces/*/held.md"))
    (tree / "held.md").write_text(f"tea\n{NUMBER}\n")
    for method, headers in (("PUT", {}), ("PUT", {"If-Match": tag}), ("DELETE", {"If-Match": tag})):
        content = {"content": b"else\n"} if method == "PUT" else {}
        answer = caller(method, path, headers=headers, **content)
        assert answer.status_code == 422, answer.text
        error = answer.json()["error"]
        assert "'held.md'" in error["message"] and f"line 2 ({forbade.rule})" in error["message"]
        assert "take it out of the file" in error["message"] and NUMBER not in answer.text
    assert caller("DELETE", path).status_code == 422
    assert caller("GET", path).text == "tea\n"
    assert caller("PUT", f"{path}.md", content=b"beside\n").status_code == 201
    (tree / "held.md").write_text("tea\nnothing\n")
    assert caller("PUT", path, content=b"else\n").status_code == 200


def test_a_false_alarm_passes_once(forbade: Forbade) -> None:
    caller, path = forbade.caller, f"/v1/workspaces/{forbade.workspace}/files/b.md"
    allow = f"/v1/forbidden/{forbade.rule}/allow"
    assert caller("PUT", path, content=NUMBER.encode()).status_code == 422
    once = {"workspace": "w", "path": "b.md"}
    assert caller("POST", allow, json=once).json() == {"allowed": True}
    assert caller("PUT", path, content=f"{NUMBER}\n".encode()).status_code == 201
    assert caller("PUT", path, content=f"{NUMBER}\nmore\n".encode()).status_code == 200
    assert caller("PUT", path, content=f"{NUMBER}\n{NUMBER}\n".encode()).status_code == 422


def test_detectors_find_keys_and_card_numbers(forbade: Forbade) -> None:
    caller = forbade.site.account("detects")
    workspace = caller.workspace()
    for detector in ("keys", "cards"):
        caller.post("/v1/forbidden", {"detect": detector})
    for text in (f"AKIA{'ABCD2345' * 2}", "4111 1111 1111 1111"):
        answer = caller(
            "PUT", f"/v1/workspaces/{workspace}/files/a.md", content=f"x {text}\n".encode()
        )
        assert answer.status_code == 422, text
    assert caller.file(workspace, "a.md", b"nothing of the kind\n").status_code == 201


def test_what_is_said_is_stored_and_shown_with_marks_and_a_tool_is_told(tmp_path: Path) -> None:
    write = {"action": "add", "text": f"- {NUMBER}"}
    model = ScriptedModel(
        [Text(f"I write {NUMBER}."), ToolCall("t1", "update_memory", write)],
        [ToolCall("t2", "read", {"path": "b.md"})],
        f"It is {NUMBER}.",
    )
    with Site.open(tmp_path / "home", model=model) as site:
        caller = site.account("acme")
        workspace = caller.workspace("w")
        caller.file(workspace, "b.md", f"old {NUMBER}\n".encode())
        rule = caller.post("/v1/forbidden", {"match": "ACME-[0-9]{6}"})["id"]
        agent = caller.agent("a", workspaces=[{"name": "w", "workspaceId": workspace}])
        done = taken(caller, agent, "e1", f"My number is {NUMBER}, remember it")
        mark = f"[forbidden {rule}]"
        assert done["reply"] == f"It is {mark}."
        conversation = f"/v1/conversations/{done['conversationId']}"
        entries = caller("GET", f"{conversation}/entries").text
        assert NUMBER not in entries and entries.count(mark) >= 4
        assert "input held a text that is forbidden" in entries
        assert NUMBER not in str([request.messages for request in model.requests])
        home = tmp_path / "home"
        again = said("e1", f"My number is {NUMBER}, remember it")
        answer = caller("POST", f"/v1/agents/{agent}/turns", json=again)
        assert answer.json()["turnId"] == done["turnId"]
        assert not [file for file in home.glob("state.db*") if NUMBER.encode() in file.read_bytes()]


def test_the_prompt_of_a_run_and_the_task_of_a_chain_are_stored_with_marks(
    forbade: Forbade,
) -> None:
    caller, mark = forbade.caller, f"say [forbidden {forbade.rule}]"
    agent = caller.agent("runs")
    run = caller.post(f"/api/agents/{agent}/runs", {"prompt": f"say {NUMBER}"}, 202)
    assert caller.get(f"/api/runs/{run['id']}")["prompt"] == mark
    chain = caller.post("/v1/chains", {"agents": [agent], "task": f"say {NUMBER}"}, 202)
    assert caller.get(f"/v1/chains/{chain['id']}")["task"] == mark
