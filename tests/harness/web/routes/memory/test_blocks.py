"""Memory blocks over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from harness.web.routes.memory.blocks import BlockBody, BlockConflictBody, BlockLineBody
from tests.harness.web.site import Caller, Site
from tests.harness.web.turning import Puppet, taken

BLOCKS = "/api/v1/memory/blocks"
CORE = f"{BLOCKS}/core"


@pytest.fixture
def acme(site: Site) -> Caller:
    return site.account("acme")


def put(caller: Caller, content: str, expected: str | None = None, path: str = CORE) -> Any:
    body = {"content": content, "expected_updated_at": expected}
    answer = caller("PUT", path, json=body)
    assert answer.status_code == (201 if expected is None else 200), answer.text
    return answer.json()


def conflict(caller: Caller, method: str, path: str, **more: Any) -> Any:
    """The body of an answer that must be a conflict, and nothing else."""
    answer = caller(method, path, **more)
    assert answer.status_code == 409, answer.text
    assert answer.headers["x-should-retry"] == "false"
    body = answer.json()
    BlockConflictBody.model_validate(body)
    assert body["error"]["code"] == "conflict"
    return body["block"]


def test_a_block_is_created_read_replaced_and_deleted(acme: Caller) -> None:
    acme.refused(404, "GET", CORE)
    acme.refused(404, "DELETE", CORE)
    made = put(acme, "- Likes short answers\n")
    assert set(made) == set(BlockBody.model_fields)
    BlockBody.model_validate(made)
    assert (made["content"], made["scope"], made["agent_id"], made["block_type"]) == (
        "- Likes short answers",
        "user",
        None,
        "core",
    )
    read = acme("GET", CORE)
    assert read.json() == made
    assert read.headers["etag"] == f'"{made["version"]}"'
    assert acme.get(BLOCKS) == [made]
    replaced = put(acme, "- Likes long answers", made["updated_at"])
    assert replaced["updated_at"] > made["updated_at"]
    assert (replaced["id"], replaced["created_at"]) == (made["id"], made["created_at"])
    assert acme("DELETE", CORE).json() == {"deleted": True}
    assert acme.get(BLOCKS) == []


def test_a_stale_write_gets_the_current_block_and_changes_nothing(acme: Caller) -> None:
    first = put(acme, "- one")
    second = put(acme, "- two", first["updated_at"])
    stale = {"content": "- three", "expected_updated_at": first["updated_at"]}
    assert conflict(acme, "PUT", CORE, json=stale) == second
    creating = {"content": "- two", "expected_updated_at": None}
    assert conflict(acme, "PUT", CORE, json=creating) == second
    gone = {"content": "x", "expected_updated_at": second["updated_at"]}
    assert conflict(acme, "PUT", f"{BLOCKS}/archival", json=gone) is None
    assert acme.get(CORE) == second


def test_a_lost_answer_can_be_repeated(acme: Caller) -> None:
    first = put(acme, "- one")
    second = put(acme, "- two", first["updated_at"])
    assert put(acme, "- two", first["updated_at"]) == second
    assert put(acme, "- two", second["updated_at"]) == second


def test_the_version_can_be_the_condition(acme: Caller) -> None:
    first = put(acme, "- one")
    match = {"If-Match": f'"{first["version"]}"'}
    answer = acme("PUT", CORE, json={"content": "- two"}, headers=match)
    assert answer.status_code == 200
    second = answer.json()
    assert conflict(acme, "PUT", CORE, json={"content": "- three"}, headers=match) == second
    right = {"content": "- three", "expected_updated_at": second["updated_at"]}
    assert conflict(acme, "PUT", CORE, json=right, headers=match) == second
    assert conflict(acme, "DELETE", CORE, headers=match) == second
    old = {"expected_updated_at": first["updated_at"]}
    assert conflict(acme, "DELETE", CORE, params=old) == second
    # as a client writes it that does not encode the plus sign
    now = second["updated_at"].replace("Z", "+00:00")
    assert acme("DELETE", f"{CORE}?expected_updated_at={now}").status_code == 200
    fresh = acme("PUT", CORE, json={"content": "- new"}, headers={"If-None-Match": "*"})
    assert fresh.status_code == 201
    assert conflict(acme, "PUT", CORE, json={"content": "x"}, headers={"If-None-Match": "*"})


def test_a_write_without_a_condition_is_refused(acme: Caller) -> None:
    refused = acme.refused(400, "PUT", CORE, json={"content": "- one"})
    assert refused["field"] == "expected_updated_at"
    for body in (
        {"content": "- one", "expected_updated_at": "soon"},
        {"content": "- one", "expected_updated_at": 5},
        {"content": 5, "expected_updated_at": None},
        {"expected_updated_at": None},
        {"content": "- one", "expected_updated_at": None, "source": "me"},
    ):
        acme.refused(400, "PUT", CORE, json=body)
    assert acme.get(BLOCKS) == []


def test_a_naive_time_is_utc(acme: Caller) -> None:
    made = put(acme, "- one")
    put(acme, "- two", made["updated_at"].removesuffix("Z"))


def test_a_block_over_its_limit_is_413_and_unchanged(acme: Caller) -> None:
    made = put(acme, "- one")
    for content, words in (("x" * 4_001, "4,001"), ("- x\n" * 21, "21 entries")):
        body = {"content": content, "expected_updated_at": made["updated_at"]}
        assert words in acme.refused(413, "PUT", CORE, json=body)["message"]
    assert acme.get(CORE) == made


def test_blocks_of_an_agent_are_named_by_scope_and_agent(acme: Caller) -> None:
    agent, other = acme.agent("emails"), acme.agent("records")
    mine = put(acme, "- mine")
    theirs = put(acme, "- with emails", path=f"{CORE}?scope=agent&agent_id=emails")
    assert (theirs["scope"], theirs["agent_id"]) == ("agent", agent)
    assert acme.get(f"{CORE}?agent_id={agent}") == theirs
    assert acme.get(f"{BLOCKS}?scope=all") == [mine, theirs]
    assert acme.get(f"{BLOCKS}?agent_id={other}") == []
    acme.refused(404, "GET", f"{CORE}?agent_id={other}")
    acme.refused(404, "GET", f"{CORE}?agent_id=nobody")
    acme.refused(400, "GET", f"{CORE}?scope=user&agent_id={agent}")
    acme.refused(400, "GET", f"{CORE}?scope=agent")
    acme.refused(400, "GET", f"{CORE}?scope=all")
    acme.refused(400, "GET", f"{CORE}?scope=team")
    acme.refused(404, "GET", f"{BLOCKS}/recent")


def test_blocks_of_another_user_or_account_do_not_exist(site: Site, acme: Caller) -> None:
    agent = acme.agent("emails")
    put(acme, "- of the owner")
    put(acme, "- of the owner with emails", path=f"{CORE}?agent_id={agent}")
    ada, bolt = acme.user_key("ada"), site.account("bolt")
    for other in (ada, bolt, acme.as_user("bob@example.com")):
        assert other.get(f"{BLOCKS}?scope=all") == []
        other.refused(404, "GET", CORE)
        other.refused(404, "GET", f"{CORE}?agent_id={agent}")
        assert other.post("/api/v1/memory/recall", {"query": "owner"}, 200) == []
    hers = put(ada, "- of ada", path=f"{CORE}?agent_id={agent}")
    assert ada.get(f"{BLOCKS}?scope=all") == [hers]
    assert acme.get(f"{CORE}?agent_id={agent}")["content"] == "- of the owner with emails"


def test_recall_finds_archival_lines(acme: Caller) -> None:
    agent = acme.agent("records")
    archival = f"{BLOCKS}/archival"
    put(acme, "- Harbour lease: the lawyer wants options\n- tea is green", path=archival)
    put(acme, "- Globex: legal approved", path=f"{archival}?agent_id={agent}")
    put(acme, "- Harbour is in the core")
    body = {"query": "Harbour lease", "agent_id": "records", "limit": 10}
    first, *rest = acme.post("/api/v1/memory/recall", body, 200)
    BlockLineBody.model_validate(first)
    assert (first["content"], first["line_number"]) == (
        "- Harbour lease: the lawyer wants options",
        1,
    )
    assert all(one["score"] <= first["score"] for one in rest)
    listed = acme.post("/api/v1/memory/recall", {"agent_id": agent}, 200)
    assert [one["scope"] for one in listed] == ["user", "user", "agent"]
    for bad in ({"limit": 0}, {"limit": 101}, {"query": 5}, {"agent": agent}):
        acme.refused(400, "POST", "/api/v1/memory/recall", json=bad)
    acme.refused(404, "POST", "/api/v1/memory/recall", json={"agent_id": "nobody"})


def test_a_reminder_is_in_no_entry_and_no_event_of_the_stream(spoken: Site, puppet: Puppet) -> None:
    acme = spoken.account("acme")
    agent = acme.agent(memoryPolicy={"archival_mode": "auto"})
    put(acme, "- Harbour lease: the lawyer wants options", path=f"{BLOCKS}/archival")
    body = {"message": "What of the Harbour lease?"}
    preview = acme.post(f"/v1/agents/{agent}/prompt-preview", body, 200)
    puppet.stops("noted")
    done = taken(acme, agent, "e1", "What of the Harbour lease?")
    assert "lawyer" in puppet.is_asked()
    conversation = done["conversationId"]
    (step,) = acme.get(f"/v1/conversations/{conversation}/receipts")["receipts"][0]["steps"]
    assert step["digest"] == preview["digest"]
    assert "lawyer" not in acme("GET", f"/v1/conversations/{conversation}/entries").text
    assert "lawyer" not in acme("GET", f"/v1/agents/{agent}/events/e1/stream").text
    off = {**body, "memory_policy": {"archival_mode": "off"}}
    without = acme.post(f"/v1/agents/{agent}/prompt-preview", off, 200)
    assert without["digest"] != preview["digest"]
