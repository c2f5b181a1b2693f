"""Events over HTTP: accepting, queueing, deduplicating and refusing them, and their outcomes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.conversations.event_status import EventStatus
from harness.conversations.queue_state import WAITING_MAX
from harness.messages.message import ToolCall
from harness.messages.model_request import FailureKind, ModelFailure
from harness.messages.pending_call import PendingCall, RequiredAnswer
from harness.prompts.compaction import TOO_LONG
from harness.transcripts.outcome import Outcome, Remark
from harness.web.app import ServerTimeouts
from harness.web.http.body import JSON_BYTES_MAX
from harness.web.routes.talk.turns import EventDocument
from tests.harness.web.site import Caller, Site
from tests.harness.web.turning import Puppet, said, settled, taken
from workspaces.ids import ConversationId, TurnId

TURNS = "/v1/agents/helper/turns"


def test_a_posted_event_is_202_and_its_status_url_returns_the_outcome(
    acme: Caller, puppet: Puppet
) -> None:
    answer = acme("POST", TURNS, json=said("e/1 ü"))
    assert answer.status_code == 202
    accepted = answer.json()
    assert answer.headers["location"] == accepted["statusUrl"]
    assert puppet.is_asked().endswith("hello")
    running = acme.get(accepted["statusUrl"])
    assert (running["status"], running["eventId"]) == ("running", "e/1 ü")
    assert running["turnId"].startswith("turn_")
    puppet.stops("Hi", " there")
    done = settled(acme, accepted["statusUrl"])
    assert done == {
        "eventId": "e/1 ü",
        "status": "done",
        "conversationId": accepted["conversationId"],
        "turnId": running["turnId"],
        "outcome": "done",
        "reply": "Hi there",
        "usage": {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "cacheWriteHour": 0},
        "revisions": [],
        "durable": {"files": "here", "history": "here"},
    }


def test_a_repeated_event_returns_the_same_outcome_and_a_changed_body_is_409(
    acme: Caller, puppet: Puppet
) -> None:
    accepted = acme.post(TURNS, said("e1"), 202)
    puppet.is_asked()
    again = acme.post(TURNS, said("e1"), 202)
    assert (again["status"], again["conversationId"]) == ("running", accepted["conversationId"])
    puppet.stops("once")
    assert settled(acme, accepted["statusUrl"])["reply"] == "once"
    assert acme.post(TURNS, said("e1"), 200)["reply"] == "once"
    error = acme.refused(409, "POST", TURNS, json=said("e1", "something else"))
    assert error["code"] == "conflict"
    assert "a new id" in error["message"]
    assert puppet.asked.empty()


def test_an_event_for_a_busy_conversation_is_queued_or_rejected_on_request(
    acme: Caller, puppet: Puppet
) -> None:
    acme.post(TURNS, said("e1"), 202)
    puppet.is_asked()
    answer = acme("POST", TURNS, json=said("e2", onBusy="reject"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "busy")
    assert int(answer.headers["retry-after"]) >= 1
    message = answer.json()["error"]["message"]
    assert (
        message == "the conversation is in use by another operation; try again when that has ended"
    )
    queued = acme.post(TURNS, said("e3"), 202)
    assert (queued["status"], queued["ahead"]) == ("queued", 1)
    puppet.stops("one")
    puppet.stops("three")
    assert settled(acme, queued["statusUrl"])["reply"] == "three"


def test_an_event_for_a_full_event_queue_is_429(acme: Caller, puppet: Puppet) -> None:
    acme.post(TURNS, said("e"), 202)
    puppet.is_asked()
    for number in range(WAITING_MAX):
        acme.post(TURNS, said(f"e{number}"), 202)
    answer = acme("POST", TURNS, json=said("one more"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many")
    assert int(answer.headers["retry-after"]) >= 1
    for _ in range(WAITING_MAX + 1):
        puppet.stops("so")
    last = acme.get(f"/v1/agents/helper/events/e{WAITING_MAX - 1}?wait=60")
    assert last["reply"] == "so"


def test_an_exhausted_turn_limit_is_429_but_finished_events_stay_readable(
    acme: Caller, puppet: Puppet
) -> None:
    limits = {"config": {"limits": {"turnsPerMinute": 1}}}
    assert acme("PATCH", "/accounts/me", json=limits).status_code == 200
    puppet.stops("one")
    taken(acme, "helper", "e1")
    answer = acme("POST", TURNS, json=said("e2"))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (429, "limit_reached")
    assert "turnsPerMinute" in error["message"]
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert acme.post(TURNS, said("e1"), 200)["reply"] == "one"
    assert acme("PATCH", "/accounts/me", json={"config": {"limits": None}}).status_code == 200
    puppet.stops("two")
    assert taken(acme, "helper", "e2")["reply"] == "two"


def test_an_account_with_a_running_turn_cannot_be_deleted(acme: Caller, puppet: Puppet) -> None:
    accepted = acme.post(TURNS, said("e1"), 202)
    puppet.is_asked()
    assert acme.refused(409, "DELETE", "/accounts/me")["code"] == "busy"
    puppet.stops("to the end")
    assert settled(acme, accepted["statusUrl"])["reply"] == "to the end"
    assert acme("DELETE", "/accounts/me").json() == {"deleted": True}
    acme.refused(401, "GET", "/accounts/me")


def test_a_queued_event_does_not_count_towards_the_running_turns_limit(
    acme: Caller, puppet: Puppet
) -> None:
    limits = {"config": {"limits": {"runningTurns": 1}}}
    assert acme("PATCH", "/accounts/me", json=limits).status_code == 200
    acme.post(TURNS, said("e1"), 202)
    puppet.is_asked()
    queued = acme.post(TURNS, said("e2"), 202)
    assert (queued["status"], queued["ahead"]) == ("queued", 1)
    error = acme.refused(429, "POST", TURNS, json=said("e3", key="c2"))
    assert "runningTurns" in error["message"]
    puppet.stops("one")
    puppet.stops("two")
    assert settled(acme, queued["statusUrl"])["reply"] == "two"


def test_a_user_key_runs_turns_and_sees_only_its_own_events(acme: Caller, puppet: Puppet) -> None:
    ada, bob = acme.user_key("ada"), acme.user_key("bob")
    puppet.stops("for ada")
    done = taken(ada, "helper", "e1")
    assert done["reply"] == "for ada"
    for other in (bob, acme):
        other.refused(404, "GET", "/v1/agents/helper/events/e1")
        other.refused(404, "GET", "/v1/agents/helper/events/e1/stream")
        other.refused(404, "GET", f"/v1/conversations/{done['conversationId']}")
    puppet.stops("for bob, with the key that ada uses")
    own = taken(bob, "helper", "mine")
    assert own["conversationId"] != done["conversationId"]
    puppet.stops("for bob")
    assert taken(bob, "helper", "e1", key="c2")["reply"] == "for bob"


@pytest.mark.parametrize(
    "stated",
    [
        {"system": "obey"},
        {"events": [{"type": "system", "content": "obey"}, {"type": "user", "content": "x"}]},
        {
            "events": [
                {"type": "system", "content": "obey", "persist": True},
                {"type": "user", "content": "x"},
            ]
        },
    ],
    ids=["of the turn", "among its events", "for good"],
)
def test_a_user_key_cannot_give_system_instructions(
    acme: Caller, puppet: Puppet, stated: dict[str, Any]
) -> None:
    ada = acme.user_key("ada")
    error = ada.refused(403, "POST", TURNS, json={**said("e1"), **stated})
    assert error["code"] == "forbidden"
    assert "`system`" in error["message"]
    puppet.stops("for the platform")
    accepted = acme.post(TURNS, {**said("e1"), **stated}, status=202)
    assert settled(acme, accepted["statusUrl"])["reply"] == "for the platform"


def test_every_field_of_an_event_status_is_in_the_schema() -> None:
    call = PendingCall(ToolCall("t1", "weather", {}), RequiredAnswer("t1", "result"))
    outcome = Outcome(
        "waiting",
        "",
        ConversationId("conv_1"),
        TurnId("turn_1"),
        failure=ModelFailure("broken", "why", "what to do"),
        unavailable=("memory/w",),
        left_out=("w",),
        pending=(call,),
        remarks=(Remark("compacted", "it was long"),),
    )
    status = EventStatus(
        "e1", "waiting", outcome.conversation_id, 1, 2, outcome.turn_id, 1, outcome
    )
    told = {**status.as_json(), "statusUrl": "/v1/agents/a/events/e1"}
    schema = EventDocument.model_json_schema(by_alias=True)
    assert set(told) == set(schema["properties"])
    assert set(schema["required"]) == {"eventId", "status", "conversationId"}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no id": ({"eventId": ""}, "eventId"),
    "an id that is none": ({"eventId": 7}, "eventId"),
    "a reserved key": ({"conversationKey": "run:1"}, "conversationKey"),
    "a long key": ({"conversationKey": "k" * 300}, "conversationKey"),
    "nothing": ({"events": []}, "events"),
    "no list": ({"events": "hello"}, "events"),
    "no event": ({"events": ["hello"]}, "events.0"),
    "an unknown event": ({"events": [{"type": "shout"}]}, "events.0.type"),
    "an empty text": ({"events": [{"type": "user", "content": "  "}]}, "content"),
    "a picture": (
        {"events": [{"type": "user", "content": [{"type": "image"}]}]},
        "events.0.content.0.type",
    ),
    "a bad tool": ({"tools": [{"name": "no name"}]}, "tools.0"),
    "an unknown field": ({"onbusy": "reject"}, "onbusy"),
    "no policy": ({"memory_policy": "none"}, "memory_policy"),
    "an unknown mode": ({"memory_policy": {"archival_mode": "on"}}, "memory_policy.archival_mode"),
    "too many lines": ({"memory_policy": {"archival_limit": 0}}, "memory_policy.archival_limit"),
    "an unknown wish": ({"memory_policy": {"user": "none"}}, "memory_policy.user"),
    "a word for a switch": ({"stream": "yes"}, "stream"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_turn_field_is_400_with_its_path(acme: Caller, name: str) -> None:
    stated, field = BAD[name]
    error = acme.refused(400, "POST", TURNS, json={**said("e1"), **stated})
    assert error["code"] == "invalid"
    assert error["field"].startswith(field)
    assert not re.search("dictionary|instance|validation|[a-z]+Policy", error["message"])
    acme.refused(404, "GET", "/v1/agents/helper/events/e1")


def test_a_message_of_ten_megabytes_is_accepted_and_a_larger_body_is_413(
    acme: Caller, puppet: Puppet
) -> None:
    puppet.stops("that was long")
    assert taken(acme, "helper", "e1", "x" * 10_000_000)["reply"] == "that was long"
    assert len(puppet.is_asked()) >= 10_000_000
    error = acme.refused(413, "POST", TURNS, json=said("e2", "x" * JSON_BYTES_MAX))
    assert error["code"] == "over_limit"


@pytest.mark.parametrize("kind", sorted(set(get_args(FailureKind)) - set(TOO_LONG)))
def test_every_model_failure_becomes_an_outcome_and_the_next_event_is_answered(
    acme: Caller, puppet: Puppet, kind: FailureKind
) -> None:
    puppet.says(ModelFailure(kind, "it does not answer", "look at it"))
    failed = taken(acme, "helper", "e1")
    assert (failed["status"], failed["outcome"]) == ("failed", "failed")
    assert failed["error"] == {
        "code": kind,
        "message": "it does not answer",
        "remedy": "look at it",
    }
    assert acme.post(TURNS, said("e1"), 200)["status"] == "failed"
    puppet.stops("now it does")
    assert taken(acme, "helper", "e2")["reply"] == "now it does"


def test_an_event_refused_before_its_turn_began_can_be_posted_again(
    acme: Caller, puppet: Puppet
) -> None:
    acme.post(TURNS, said("e1"), 202)
    puppet.is_asked()
    waiting = acme.post(TURNS, said("e2"), 202)
    limits = {"config": {"limits": {"dollarsPerDay": 0}}}
    assert acme("PATCH", "/accounts/me", json=limits).status_code == 200
    puppet.stops("one")
    refused = settled(acme, waiting["statusUrl"])
    assert (refused["status"], refused["error"]["code"]) == ("refused", "limit_reached")
    assert "dollarsPerDay" in refused["error"]["message"]
    answer = acme("POST", TURNS, json=said("e2"))
    assert answer.status_code == 429
    assert acme("PATCH", "/accounts/me", json={"config": {"limits": None}}).status_code == 200
    puppet.stops("two")
    assert taken(acme, "helper", "e2")["reply"] == "two"


def test_a_turn_interrupted_by_shutdown_is_continued_by_the_next_server(tmp_path: Path) -> None:
    home, first, second = tmp_path / "other", Puppet(), Puppet()
    with Site.open(home, model=first, patience=ServerTimeouts(turns_s=0)) as site:
        acme = site.account("acme")
        acme.agent()
        acme.post(TURNS, said("e1"), 202)
        first.is_asked()
    second.stops("from the second")
    with Site.open(home, model=second) as site:
        again = Caller(site.client, acme.key)
        accepted = again.post(TURNS, said("e1"), 202)
        assert settled(again, accepted["statusUrl"])["reply"] == "from the second"
        page = again.get(f"/v1/conversations/{accepted['conversationId']}/entries")
        assert [one["message"]["role"] for one in page["entries"]] == ["user", "assistant"]
