"""Two servers on one home: a client may use either, whichever of them runs its turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from harness import Harness
from tests.harness.messages_server import (
    KEY,
    Hold,
    MessagesServer,
    breaks_off,
    says,
    serving,
    text,
    tool_use,
)
from tests.harness.web.serving import TURNS, WAIT_S, Home, Server, home_at, read, until
from tests.harness.web.turning import Told, said

LASTING = {"entry", "outcome"}
"""Told however late somebody reads; pieces of an answer are not told when its entry is there."""

STREAM = "/v1/agents/assistant/events/e1/stream"


@dataclass(frozen=True)
class Neighbours:
    home: Home
    provider: MessagesServer
    here: Server
    there: Server


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Neighbours]:
    with serving() as provider:
        variables = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": provider.url}
        home = home_at(tmp_path / "home", **variables)
        with home.served() as here, home.served() as there:
            yield Neighbours(home, provider, here, there)
    assert provider.broken_rules == []
    assert provider.left_unsaid == 0


def held(two: Neighbours, event_id: str = "e1", *how: str) -> tuple[Hold, Any]:
    """A turn that is under way here: its model has begun to speak and does not go on."""
    hold = Hold()
    two.provider.answers(breaks_off(text("I was ", "about to"), ending=[hold]))
    accepted = two.here.ask("POST", TURNS, said(event_id, *how))
    assert hold.reached.wait(WAIT_S)
    return hold, accepted


def asked_to_allow(two: Neighbours) -> Any:
    """A turn that waits here to be allowed a write."""
    with Harness.open(two.home.terminal.home) as harness:
        harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
    call = tool_use("toolu_1", "write", '{"path": "a.md", "content": "kept"}')
    two.provider.answers(says(call))
    accepted = two.here.ask("POST", TURNS, said("e1"))
    return two.here.ask("GET", f"{accepted['statusUrl']}?wait=60")


def limited(two: Neighbours, **limits: float) -> None:
    with Harness.open(two.home.terminal.home) as harness:
        harness.rooms.account.patch({"config": {"limits": limits}})


def refusal(server: Server, body: Any) -> tuple[int, Any]:
    with pytest.raises(HTTPError) as caught:
        server.ask("POST", TURNS, body)
    with caught.value as answer:
        assert int(answer.headers["retry-after"]) >= 1
        return answer.code, json.load(answer)


def decided_at(server: Server, path: str, *, allowed: bool) -> Any:
    """What became of it; None when nothing waited any more."""
    try:
        body = {"approvals": [{"callId": "toolu_1", "allowed": allowed}]}
        accepted = server.ask("POST", path, body)
    except HTTPError as refused:
        with refused:
            assert refused.code == 404
        return None
    return server.ask("GET", f"{accepted['statusUrl']}?wait=60")


def test_a_turn_is_cancelled_through_a_server_that_does_not_run_the_turn(two: Neighbours) -> None:
    hold, accepted = held(two)
    conversation = f"/v1/conversations/{accepted['conversationId']}"
    with two.here.opened("GET", STREAM) as mine, two.there.opened("GET", STREAM) as theirs:
        assert two.there.ask("POST", f"{conversation}/cancel") == {"cancelled": True}
        for answer in (mine, theirs):
            last = list(read(answer))[-1]
            assert (last.name, last.data["outcome"]) == ("outcome", "interrupted")
    assert hold.left.wait(WAIT_S), "the model is not asked any more"
    assert two.there.ask("POST", f"{conversation}/cancel") == {"cancelled": False}
    two.provider.answers(says(text("Yes.")))
    next_ = two.there.ask("POST", TURNS, said("e2", "are you there?"))
    assert two.here.ask("GET", f"{next_['statusUrl']}?wait=60")["reply"] == "Yes."


def test_an_event_queued_at_another_server_is_answered_after_a_cancelled_turn(
    two: Neighbours,
) -> None:
    _, accepted = held(two)
    two.provider.answers(says(text("Now me.")))
    with two.there.opened("POST", TURNS, said("e2", "me, too", stream=True)) as answer:
        steps = read(answer)
        assert next(steps) == Told("queued", {"ahead": 1})
        two.there.ask("POST", f"/v1/conversations/{accepted['conversationId']}/cancel")
        rest = list(steps)
    assert [one.name for one in rest if one.name in LASTING] == ["entry", "entry", "outcome"]
    assert rest[-1].data["reply"] == "Now me."
    assert two.here.ask("GET", accepted["statusUrl"])["outcome"] == "interrupted"


def test_entries_are_streamed_by_a_server_that_does_not_run_the_turn(two: Neighbours) -> None:
    two.provider.answers(
        says(text("Let me look."), tool_use("toolu_1", "read", '{"path": "MEMORY.md"}'))
    )
    _, accepted = held(two)
    with two.there.opened("GET", STREAM) as answer:
        steps = read(answer)
        seen = until(steps, lambda one: one.id == "3")
        assert [one.name for one in seen] == ["entry"] * 3
        assert [one.data["message"]["role"] for one in seen] == ["user", "assistant", "user"]
        two.here.ask("POST", f"/v1/conversations/{accepted['conversationId']}/cancel")
        assert [one.name for one in steps] == ["outcome"]


def test_a_call_is_approved_through_another_server(two: Neighbours) -> None:
    waiting = asked_to_allow(two)
    path = f"/v1/conversations/{waiting['conversationId']}/approvals"
    assert two.there.ask("GET", path)["approvals"] == waiting["pending"]
    two.provider.answers(says(text("Written.")))
    approvals = [{"callId": "toolu_1", "allowed": True}]
    with two.there.opened("POST", path, {"approvals": approvals, "stream": True}) as answer:
        steps = list(read(answer))
    roles = [one.data["message"]["role"] for one in steps if one.name == "entry"]
    assert roles == ["user", "user", "assistant"], "what was allowed, what came of it, the answer"
    for server in (two.here, two.there):
        done = server.ask("GET", "/v1/agents/assistant/events/e1")
        assert (done["status"], done["reply"]) == ("done", "Written.")
        assert len(done["revisions"]) == 1
    with pytest.raises(HTTPError) as caught:
        two.here.ask("POST", path, {"approvals": approvals})
    with caught.value as refused:
        assert refused.code == 404


def test_simultaneous_approval_decisions_at_two_servers_count_once(two: Neighbours) -> None:
    waiting = asked_to_allow(two)
    path = f"/v1/conversations/{waiting['conversationId']}/approvals"
    two.provider.answers(says(text("So be it.")))
    with ThreadPoolExecutor(2) as pool:
        decided = pool.map(
            lambda one: decided_at(one[0], path, allowed=one[1]),
            [(two.here, True), (two.there, False)],
        )
    settled = [one for one in decided if one is not None]
    done = two.here.ask("GET", "/v1/agents/assistant/events/e1?wait=60")
    assert (done["status"], done["reply"]) == ("done", "So be it.")
    assert [one["reply"] for one in settled if one["status"] == "done"] == ["So be it."]
    (message,) = two.provider.requests[-1]["messages"][-1:]
    (result,) = [block for block in message["content"] if block["type"] == "tool_result"]
    assert bool(done["revisions"]) != bool(result.get("is_error"))


def test_the_limits_of_an_account_apply_across_its_servers(two: Neighbours) -> None:
    limited(two, turnsPerMinute=1)
    two.provider.answers(says(text("One.")))
    first = two.here.ask("POST", TURNS, said("e1"))
    assert two.here.ask("GET", f"{first['statusUrl']}?wait=60")["reply"] == "One."
    status, body = refusal(two.there, said("e2"))
    assert (status, body["error"]["code"]) == (429, "limit_reached")
    assert "turnsPerMinute" in body["error"]["message"]
    limited(two, turnsPerMinute=600, runningTurns=1)
    _, accepted = held(two, "e3")
    status, body = refusal(two.there, said("e4", "hello", "c2"))
    assert (status, body["error"]["code"]) == (429, "limit_reached")
    assert "runningTurns" in body["error"]["message"]
    two.there.ask("POST", f"/v1/conversations/{accepted['conversationId']}/cancel")
    assert two.there.ask("GET", f"{accepted['statusUrl']}?wait=60")["status"] == "done"
    two.provider.answers(says(text("Four.")))
    again = two.there.ask("POST", TURNS, said("e4", "hello", "c2"))
    assert two.there.ask("GET", f"{again['statusUrl']}?wait=60")["reply"] == "Four."
