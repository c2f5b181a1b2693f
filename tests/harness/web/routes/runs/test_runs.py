"""Runs and active memory over HTTP."""

from __future__ import annotations

import time
from typing import Any

from harness.messages.message import ToolCall
from harness.messages.model_request import ModelFailure
from harness.web.routes.runs.documents import (
    Cancelled,
    MemoryDocument,
    MemorySummary,
    RunDocument,
    RunList,
)
from tests.harness.web.site import Caller, Site
from tests.harness.web.turning import Puppet
from workspaces.validation import parse

WAIT_S = 60.0


def ended(caller: Caller, run_id: str) -> Any:
    """The run when nothing more happens to it by itself."""
    give_up_at = time.monotonic() + WAIT_S
    while time.monotonic() < give_up_at:
        run = caller.get(f"/api/runs/{run_id}")
        parse(RunDocument, run)
        if run["status"] not in {"queued", "running"} or run["waiting"]:
            return run
        time.sleep(0.01)
    raise AssertionError("the run does not end")


def test_a_run_is_accepted_and_brought_to_its_end(acme: Caller, puppet: Puppet) -> None:
    puppet.stops("all is well")
    answer = acme("POST", "/api/agents/helper/runs", json={"prompt": "look"})
    assert answer.status_code == 202
    run = answer.json()
    parse(RunDocument, run)
    assert answer.headers["location"] == f"/api/runs/{run['id']}"
    assert (run["status"], run["source"], run["reply"]) == ("queued", "on_demand", None)
    done = ended(acme, run["id"])
    assert (done["status"], done["reply"]) == ("succeeded", "all is well")
    assert done["sessionIdBefore"] is None
    assert done["usage"]["output"] == 1


def test_a_run_without_a_body_uses_the_default_prompt(acme: Caller, puppet: Puppet) -> None:
    assert acme.refused(400, "POST", "/api/agents/helper/runs")["field"] == "prompt"
    assert acme.refused(400, "POST", "/api/agents/helper/runs", json={})["field"] == "prompt"
    agent = acme.agent("usual", defaultPrompt="do the usual")
    puppet.stops("done")
    run = acme("POST", f"/api/agents/{agent}/runs").json()
    assert ended(acme, run["id"])["prompt"] == "do the usual"


def test_bad_bodies_and_unknown_ids_are_refused(acme: Caller) -> None:
    path = "/api/agents/helper/runs"
    for body in ({"prompt": ""}, {"prompt": 1}, {"promt": "x"}, {"prompt": "x", "onBusy": "wait"}):
        acme.refused(400, "POST", path, json=body)
    acme.refused(404, "POST", "/api/agents/nobody/runs", json={"prompt": "x"})
    acme.refused(404, "GET", "/api/runs/run_nothing")
    acme.refused(404, "POST", "/api/runs/run_nothing/cancel")
    acme.refused(404, "GET", "/api/agents/nobody/memory")
    acme.refused(400, "GET", f"{path}?limit=101")
    acme.refused(400, "GET", f"{path}?limit=0")


def test_an_agent_that_runs_refuses_or_queues_another_run(acme: Caller, puppet: Puppet) -> None:
    path = "/api/agents/helper/runs"
    first = acme.post(path, {"prompt": "first"}, 202)
    error = acme.refused(409, "POST", path, json={"prompt": "second"})
    assert error["code"] == "agent_running"
    assert first["id"] in error["message"]
    second = acme.post(path, {"prompt": "second", "onBusy": "queue"}, 202)
    puppet.stops("one")
    puppet.stops("two")
    assert [ended(acme, one["id"])["reply"] for one in (first, second)] == ["one", "two"]
    listed = acme.get(f"{path}?limit=1")
    parse(RunList, listed)
    assert [run["id"] for run in listed["runs"]] == [second["id"]]
    rest = acme.get(f"{path}?limit=1&cursor={listed['nextCursor'].replace(' ', '%20')}")
    assert [run["id"] for run in rest["runs"]] == [first["id"]]
    assert rest["nextCursor"] is None


def test_the_hundred_and_second_run_is_refused_with_429(acme: Caller) -> None:
    path = "/api/agents/helper/runs"
    for number in range(101):
        acme.post(path, {"prompt": f"{number}", "onBusy": "queue"}, 202)
    error = acme.refused(429, "POST", path, json={"prompt": "x", "onBusy": "queue"})
    assert error["code"] == "too_many"


def test_a_run_is_cancelled_while_it_runs(acme: Caller, puppet: Puppet) -> None:
    run = acme.post("/api/agents/helper/runs", {"prompt": "go"}, 202)
    puppet.is_asked()
    answer = acme.post(f"/api/runs/{run['id']}/cancel", {}, 200)
    parse(Cancelled, answer)
    assert answer == {"cancelled": True}
    assert ended(acme, run["id"])["status"] == "cancelled"
    assert acme.post(f"/api/runs/{run['id']}/cancel", {}, 200) == {"cancelled": False}


def test_a_run_that_waits_says_so_and_goes_on_after_the_approval(
    acme: Caller, puppet: Puppet
) -> None:
    box = {"name": "box", "config": {"permission": "ask"}}
    sandbox = acme.post("/accounts/me/sandboxes", box)["id"]
    agent = acme.agent("careful", sandbox=sandbox)
    puppet.stops(ToolCall("w1", "write", {"path": "tea.md", "content": "green"}))
    run = ended(acme, acme.post(f"/api/agents/{agent}/runs", {"prompt": "go"}, 202)["id"])
    assert (run["status"], run["waiting"][0]["callId"]) == ("running", "w1")
    puppet.stops("written")
    approval = {"approvals": [{"callId": "w1", "allowed": True}]}
    acme.post(f"/v1/conversations/{run['conversationId']}/approvals", approval, 202)
    give_up_at = time.monotonic() + WAIT_S
    while ended(acme, run["id"])["waiting"] and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert ended(acme, run["id"])["reply"] == "written"


def test_a_failed_run_shows_its_error(acme: Caller, puppet: Puppet) -> None:
    puppet.says(ModelFailure("overloaded", "too busy", "wait"))
    run = ended(acme, acme.post("/api/agents/helper/runs", {"prompt": "go"}, 202)["id"])
    assert (run["status"], run["error"]) == (
        "failed",
        {"code": "overloaded", "message": "too busy"},
    )


def test_only_the_owner_uses_runs(site: Site) -> None:
    acme = site.account("acme")
    agent = acme.agent()
    alice = acme.user_key("alice")
    acme.post("/accounts/me/users", {"name": "bob"})
    for method, path in (
        ("POST", f"/api/agents/{agent}/runs"),
        ("GET", f"/api/agents/{agent}/runs"),
        ("GET", f"/api/agents/{agent}/memory"),
        ("POST", f"/api/agents/{agent}/memory/reset"),
        ("GET", "/api/agents/memory-summary"),
        ("GET", "/api/runs/run_x"),
    ):
        body = {"json": {"prompt": "x"}} if path.endswith("runs") and method == "POST" else {}
        assert alice.refused(403, method, path, **body)["code"] == "forbidden"
        error = acme.as_user("bob").refused(400, method, path, **body)
        assert error["field"] == "X-Harness-User"
        site.nobody.refused(401, method, path, **body)


def test_another_account_sees_no_run(spoken: Site, acme: Caller, puppet: Puppet) -> None:
    run = acme.post("/api/agents/helper/runs", {"prompt": "go"}, 202)
    other = spoken.account("other")
    other.refused(404, "GET", f"/api/runs/{run['id']}")
    other.refused(404, "POST", f"/api/runs/{run['id']}/cancel")
    puppet.stops("done")
    ended(acme, run["id"])


def test_active_memory_is_shown_and_reset(acme: Caller, puppet: Puppet) -> None:
    agent = acme.agent("keen", activeMemory=True)
    path = f"/api/agents/{agent}/memory"
    fresh = acme.get(path)
    parse(MemoryDocument, fresh)
    assert fresh == {
        "enabled": True,
        "hasSession": False,
        "sessionId": None,
        "sessionUpdatedAt": None,
        "runsSinceReset": 0,
        "status": "Fresh",
    }
    puppet.stops("done")
    run = ended(acme, acme.post(f"/api/agents/{agent}/runs", {"prompt": "go"}, 202)["id"])
    carrying = acme.get(path)
    assert carrying["sessionId"] == run["sessionIdAfter"]
    assert (carrying["status"], carrying["runsSinceReset"]) == ("Carrying context", 1)
    summary = acme.get("/api/agents/memory-summary")
    assert {agent} <= set(summary)
    for one in summary.values():
        parse(MemorySummary, one)
    assert {**summary[agent], "sessionId": carrying["sessionId"]} == carrying
    reset = acme.post(f"{path}/reset", {}, 200)
    assert reset == fresh


def test_a_message_without_a_conversation_key_continues_the_shared_session(
    acme: Caller, puppet: Puppet
) -> None:
    agent = acme.agent("keen", activeMemory=True)
    puppet.stops("ran")
    ended(acme, acme.post(f"/api/agents/{agent}/runs", {"prompt": "go"}, 202)["id"])
    puppet.stops("chatted")
    turn = {"eventId": "e1", "events": [{"type": "user", "content": "and now?"}]}
    acme("POST", f"/v1/agents/{agent}/turns", json=turn)
    status = acme.get(f"/v1/agents/{agent}/events/e1?wait=60")
    assert status["reply"] == "chatted"
    entries = acme.get(f"/v1/conversations/{status['conversationId']}/entries")["entries"]
    texts = [entry["message"]["parts"][0]["text"] for entry in entries]
    assert texts == ["go", "ran", "and now?", "chatted"]
    error = acme.user_key("eve").refused(400, "POST", f"/v1/agents/{agent}/turns", json=turn)
    assert error["field"] == "conversationKey"
    named = {**turn, "conversationKey": "shared"}
    acme.refused(400, "POST", f"/v1/agents/{agent}/turns", json=named)
    acme.refused(400, "POST", f"/v1/agents/{agent}/turns", json={**turn, "eventId": "run:x"})
