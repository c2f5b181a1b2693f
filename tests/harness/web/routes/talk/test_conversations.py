"""Conversations over HTTP: listing, entries, cancelling, forking, deleting, receipts and approvals."""

from __future__ import annotations

from typing import Any

from harness.messages.message import ToolCall
from tests.harness.web.site import Caller
from tests.harness.web.turning import Puppet, Told, followed, said, settled, taken

TURNS = "/v1/agents/helper/turns"
LIST = "/v1/agents/helper/conversations"
WEATHER = {"name": "weather", "description": "Says it.", "inputSchema": {"type": "object"}}


def talked(acme: Caller, puppet: Puppet, event_id: str, key: str = "c1") -> str:
    """One turn; the id of its conversation."""
    puppet.stops(f"answer to {event_id}")
    return taken(acme, "helper", event_id, event_id, key)["conversationId"]


def pages(acme: Caller, path: str, name: str, **query: Any) -> list[Any]:
    """Every page."""
    found: list[Any] = []
    while True:
        page = acme.get(path, params=query)
        assert set(page) == {name, "nextCursor"}
        found.append(page[name])
        if page["nextCursor"] is None:
            return found
        query["cursor"] = page["nextCursor"]


def test_conversations_are_listed_in_pages_newest_first(acme: Caller, puppet: Puppet) -> None:
    acme.agent("other")
    for number in range(5):
        talked(acme, puppet, f"e{number}", f"c{number}")
    puppet.stops("elsewhere")
    taken(acme, "other", "e", "x", "c9")
    shown = pages(acme, LIST, "conversations", limit=2)
    assert [[one["key"] for one in page] for page in shown] == [["c4", "c3"], ["c2", "c1"], ["c0"]]
    assert shown[0][0]["entries"] == 2
    assert [len(page) for page in pages(acme, LIST, "conversations", limit=5)] == [5]
    for query in ({"limit": 0}, {"limit": 201}, {"limit": "x"}, {"before": "c1"}):
        acme.refused(400, "GET", LIST, params=query)


def test_entries_are_listed_in_pages_by_their_numbers(acme: Caller, puppet: Puppet) -> None:
    for number in range(3):
        conversation = talked(acme, puppet, f"e{number}")
    path = f"/v1/conversations/{conversation}/entries"
    forward = pages(acme, path, "entries", limit=4)
    assert [[one["entry"] for one in page] for page in forward] == [[1, 2, 3, 4], [5, 6]]
    assert forward[0][0]["message"]["parts"] == [{"type": "text", "text": "e0"}]
    back = pages(acme, path, "entries", limit=4, newest="true")
    assert [[one["entry"] for one in page] for page in back] == [[6, 5, 4, 3], [2, 1]]
    assert pages(acme, path, "entries", cursor="5") == [forward[1][1:]]
    assert acme.refused(400, "GET", path, params={"cursor": "x"})["field"] == "cursor"


def test_a_conversation_shows_its_current_state(acme: Caller, puppet: Puppet) -> None:
    conversation = talked(acme, puppet, "e1")
    path = f"/v1/conversations/{conversation}"
    shown = acme.get(path)
    assert (shown["key"], shown["entries"], shown["waiting"], shown["pending"]) == ("c1", 2, 0, [])
    assert "turnId" not in shown
    acme.post(TURNS, said("e2"), 202)
    puppet.is_asked()
    puppet.is_asked()
    acme.post(TURNS, said("e3"), 202)
    busy = acme.get(path)
    assert (busy["waiting"], busy["turnId"].startswith("turn_")) == (1, True)
    for method, what in (("DELETE", ""), ("POST", "/reset")):
        assert acme.refused(409, method, path + what)["code"] == "busy"
    puppet.stops("two")
    puppet.stops("three")
    settled(acme, "/v1/agents/helper/events/e3")
    session = acme.post(f"{path}/reset", None, 200)
    assert session["first"] == 7
    assert [one["first"] for one in acme.get(path)["sessions"]] == [1, 7]


def test_cancelling_a_turn_keeps_the_queued_events(acme: Caller, puppet: Puppet) -> None:
    with followed(acme, "POST", TURNS, json=said("e1", stream=True)) as told:
        assert next(told).name == "entry"
        puppet.says("I was about to")
        assert next(told).name == "text"
        waiting = acme.post(TURNS, said("e2"), 202)
        path = f"/v1/conversations/{waiting['conversationId']}/cancel"
        assert acme.post(path, None, 200) == {"cancelled": True}
        last = list(told)[-1]
    assert (last.name, last.data["outcome"]) == ("outcome", "interrupted")
    puppet.stops("the next")
    assert settled(acme, waiting["statusUrl"])["reply"] == "the next"
    assert acme.post(path, None, 200) == {"cancelled": False}


def test_a_forked_conversation_begins_with_the_entries_of_the_original(
    acme: Caller, puppet: Puppet
) -> None:
    for number in range(2):
        conversation = talked(acme, puppet, f"e{number}")
    path = f"/v1/conversations/{conversation}/fork"
    made = acme.post(path, {"key": "c2", "at": 2})
    assert (made["entries"], made["forkedFrom"]) == (2, f"{conversation} 2")
    assert acme.post(path, {"key": "c3"})["entries"] == 4
    acme.refused(409, "POST", path, json={"key": "c2"})
    assert acme.refused(400, "POST", path, json={"key": "c4", "at": 9})["field"] == "at"
    assert acme.refused(400, "POST", path, json={"key": "shared"})["field"] == "key"


def test_deleting_a_conversation_frees_its_key(acme: Caller, puppet: Puppet) -> None:
    conversation = talked(acme, puppet, "e1")
    path = f"/v1/conversations/{conversation}"
    assert acme("DELETE", path).json() == {"deleted": True}
    acme.refused(404, "GET", path)
    acme.refused(404, "GET", "/v1/agents/helper/events/e1")
    assert acme.get(LIST)["conversations"] == []
    assert talked(acme, puppet, "e1") != conversation


def test_a_receipt_lists_the_parts_that_the_model_was_shown(acme: Caller, puppet: Puppet) -> None:
    conversation = talked(acme, puppet, "e1")
    path = f"/v1/conversations/{conversation}/receipts"
    (turn,) = acme.list(path, "receipts")
    (step,) = turn["steps"]
    assert "text" not in step
    assert any(part["source"].startswith("memory") for part in step["parts"])
    (found,) = acme.list(path, "receipts", params={"turn": turn["turn"][:10], "text": "true"})
    assert "Durable facts" in found["steps"][0]["text"]
    acme.refused(404, "GET", path, params={"turn": "turn_x"})


def test_a_turn_waits_for_the_result_of_a_client_tool_and_continues(
    acme: Caller, puppet: Puppet
) -> None:
    puppet.stops("I ask.", ToolCall("toolu_1", "weather", {"city": "Ulm"}))
    with followed(acme, "POST", TURNS, json=said("e1", tools=[WEATHER], stream=True)) as told:
        last = list(told)[-1]
    assert (last.name, last.data["status"]) == ("outcome", "waiting")
    call = {
        "callId": "toolu_1",
        "tool": "weather",
        "input": {"city": "Ulm"},
        "workspace": None,
        "waitsFor": "result",
    }
    assert last.data["pending"] == [call]
    path = f"/v1/conversations/{last.data['conversationId']}"
    assert acme.list(f"{path}/approvals", "approvals") == [call]
    assert acme.get(path)["pending"] == [call]
    wrong = {"approvals": [{"callId": "toolu_9", "allowed": True}]}
    acme.refused(404, "POST", f"{path}/approvals", json=wrong)
    puppet.stops("It rains.")
    result = {"type": "tool_result", "callId": "toolu_1", "content": "rain"}
    body = {**said("e2", stream=True), "events": [result]}
    with followed(acme, "POST", TURNS, json=body) as told:
        rest = list(told)
    assert [(one.name, one.id) for one in rest] == [
        ("entry", "3"),
        ("text", None),
        ("entry", "4"),
        ("outcome", None),
    ]
    assert rest[1] == Told("text", {"text": "It rains."})
    for event in ("e1", "e2"):
        done = acme.get(f"/v1/agents/helper/events/{event}")
        assert (done["status"], done["reply"]) == ("done", "It rains.")
        assert done["turnId"] == last.data["turnId"]


def test_a_pending_call_is_approved_or_denied_only_by_its_user(
    acme: Caller, puppet: Puppet
) -> None:
    sandbox = acme.post("/accounts/me/sandboxes", {"name": "s", "config": {"permission": "ask"}})
    acme.agent("careful", sandbox=sandbox["id"])
    ada, bob = acme.user_key("ada"), acme.user_key("bob")
    write = ToolCall("toolu_1", "write", {"path": "a.md", "content": "x\n"})
    puppet.stops(write)
    waiting = taken(ada, "careful", "e1")
    assert waiting["status"] == "waiting"
    path = f"/v1/conversations/{waiting['conversationId']}/approvals"
    decided = {"eventId": "d1", "approvals": [{"callId": "toolu_1", "allowed": False}]}
    for other in (bob, acme):
        other.refused(404, "POST", path, json=decided)
    puppet.stops("Then not.")
    accepted = ada.post(path, decided, 202)
    done = settled(ada, accepted["statusUrl"])
    assert (done["status"], done["reply"], done["revisions"]) == ("done", "Then not.", [])
    assert ada.post(path, decided, 200)["reply"] == "Then not."
    another = {**decided, "eventId": "d2"}
    assert ada.refused(404, "POST", path, json=another)["code"] == "not_found"
