"""Decisions over HTTP: list, outcome, re-examination, and their refusals."""

from __future__ import annotations

from typing import Any

from harness.messages.message import ToolCall
from harness.web.routes.runs.decisions import DecisionList
from harness.web.routes.runs.documents import RunDocument, RunHistory
from tests.harness.web.routes.runs.test_runs import ended
from tests.harness.web.site import Caller
from tests.harness.web.turning import Puppet
from workspaces.validation import parse

DATA = {"verdict": "WAIT", "reason": "range unresolved"}
REVIEW = {"conviction_score": 70, "notes": "Volume holds.", "suggested_action": "KEEP"}


def decided(acme: Caller, puppet: Puppet, agent: str, call: str = "s1") -> Any:
    puppet.stops(ToolCall(call, "submit_result", DATA))
    run = acme.post(f"/api/agents/{agent}/runs", {"prompt": "decide"}, 202)
    return ended(acme, run["id"])


def test_decisions_are_listed_resolved_and_examined_again(acme: Caller, puppet: Puppet) -> None:
    agent = acme.agent("judge", card="decision")
    run = decided(acme, puppet, agent)
    assert run["result"] == {"type": "decision", "data": DATA, "line": "WAIT · range unresolved"}
    outcome = {"outcome": "right", "fields": {"gain": 3}, "resolutionStatus": "resolved"}
    noted = acme.post(f"/api/runs/{run['id']}/outcome", outcome, 200)
    parse(RunDocument, noted)
    assert (noted["outcome"], noted["outcomeFields"]) == ("right", {"gain": 3})
    assert noted["resolutionStatus"] == "resolved"
    assert noted["result"] == run["result"]
    puppet.stops(ToolCall("s2", "submit_result", REVIEW))
    answer = acme("POST", f"/api/runs/{run['id']}/re-examine")
    assert answer.status_code == 202
    child = ended(acme, answer.json()["id"])
    assert (child["status"], child["source"]) == ("succeeded", "re_examine")
    assert child["parentRunId"] == run["id"]
    assert child["result"]["data"]["conviction_score"] == 70
    history = acme.get(f"/api/runs/{run['id']}/re-examinations")
    parse(RunHistory, history)
    assert [one["id"] for one in history["runs"]] == [child["id"]]
    conviction = acme.get(f"/api/runs/{run['id']}")["conviction"]
    assert (conviction["score"], conviction["runId"]) == (70, child["id"])
    listed = acme.get(f"/api/agents/{agent}/decisions")
    parse(DecisionList, listed)
    (one,) = listed["decisions"]
    assert (one["runId"], one["data"], one["outcome"]) == (run["id"], DATA, "right")
    assert one["conviction"] == conviction
    assert listed["tally"] == {"good": 1, "bad": 0, "hitRate": 1.0}
    cleared = acme.post(f"/api/runs/{run['id']}/outcome", {"outcome": None}, 200)
    fields = ("outcome", "outcomeFields", "resolutionStatus")
    assert [cleared[name] for name in fields] == [None] * 3


def test_wrong_outcomes_and_wrong_parents_are_refused(acme: Caller, puppet: Puppet) -> None:
    agent = acme.agent("judge", card="decision")
    run = decided(acme, puppet, agent)
    path = f"/api/runs/{run['id']}/outcome"
    for body in (
        {},
        {"outcome": ""},
        {"outcome": "x" * 81},
        {"outcome": 1},
        {"outcome": "win", "resolutionStatus": "over"},
        {"outcome": "win", "fields": []},
        {"outcome": "win", "other": 1},
    ):
        acme.refused(400, "POST", path, json=body)
    acme.refused(404, "POST", "/api/runs/run_nothing/outcome", json={"outcome": "win"})
    acme.refused(404, "POST", "/api/runs/run_nothing/re-examine")
    acme.refused(404, "GET", "/api/runs/run_nothing/re-examinations")
    acme.refused(400, "POST", f"/api/runs/{run['id']}/re-examine", json={"prompt": "x"})
    puppet.stops("plain")
    plain = ended(acme, acme.post("/api/agents/helper/runs", {"prompt": "go"}, 202)["id"])
    acme.refused(400, "POST", f"/api/runs/{plain['id']}/re-examine")
    acme.refused(400, "POST", f"/api/runs/{plain['id']}/outcome", json={"outcome": "win"})
    acme.refused(400, "GET", f"/api/agents/{agent}/decisions?limit=21")
    acme.post(f"/api/agents/{agent}/runs", {"prompt": "busy"}, 202)
    error = acme.refused(409, "POST", f"/api/runs/{run['id']}/re-examine")
    assert error["code"] == "agent_running"
    puppet.stops(ToolCall("s9", "submit_result", DATA))
    eve = acme.user_key("eve")
    eve.refused(403, "POST", f"/api/runs/{run['id']}/re-examine")
    eve.refused(403, "GET", f"/api/agents/{agent}/decisions")


def test_a_persons_edit_is_among_the_problems_and_in_no_answer(
    acme: Caller, puppet: Puppet
) -> None:
    agent = acme.agent("judge", card="decision")
    run = decided(acme, puppet, agent)
    place = f"/v1/workspaces/agent:{agent}"
    (path,) = (file["path"] for file in acme.get(f"{place}/files")["files"])
    assert acme.get(f"{place}/problems")["problems"] == []
    text = acme("GET", f"{place}/files/{path}").text
    written = acme("PUT", f"{place}/files/{path}", content=text.replace("WAIT", "GO").encode())
    assert written.status_code == 200
    (problem,) = acme.get(f"{place}/problems")["problems"]
    assert (problem["path"], problem["kind"]) == (path, "edited")
    assert acme.get(f"/api/runs/{run['id']}")["result"]["data"] == DATA
    assert acme.get(f"/api/agents/{agent}/decisions")["decisions"][0]["data"] == DATA


def test_a_card_that_does_not_exist_is_refused_with_its_field(acme: Caller) -> None:
    config = {"name": "x", "config": {"card": "nothing"}}
    error = acme.refused(400, "POST", "/accounts/me/agents", json=config)
    assert error["field"] == "config.card"
