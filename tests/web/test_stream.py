"""Events followed while they happen: the words on the wire, and going on where a reader stopped."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from harness.audience import HEARD_MAX, TEXT_CHARACTERS_MAX, Audience, Heard, Stored
from harness.message import ToolCall
from harness.progress import TextArrived, ToolStarted
from harness.web.app import Patience
from tests.web.site import Caller, Site
from tests.web.turning import Puppet, Told, followed, said, settled
from workspaces.ids import ConversationId

TURNS = "/v1/agents/helper/turns"
STREAM = "/v1/agents/helper/events/e1/stream"
READ = ToolCall("toolu_1", "read", {"path": "MEMORY.md"})
CONVERSATION = ConversationId("conv_1")

WIRE = Path(__file__).parent / "snapshots" / "stream.txt"


@pytest.fixture
def puppet() -> Puppet:
    return Puppet()


@pytest.fixture
def site(tmp_path: Path, puppet: Puppet) -> Iterator[Site]:
    with Site.open(tmp_path / "home", model=puppet, patience=Patience(turns_s=0)) as opened:
        yield opened


@pytest.fixture
def acme(site: Site) -> Caller:
    acme = site.account("acme")
    acme.agent()
    return acme


def masked(text: str) -> str:
    text = re.sub(r"\b(conv|turn)_[0-9a-f]{24}", "ID", text)
    text = re.sub(r'("content":)"(?:[^"\\]|\\.)*"', r'\1"(empty)"', text)
    text = re.sub(r',"seen":\{[^}]*\}', "", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "AT", text)


def of(name: str, told: list[Told]) -> list[Any]:
    return [one.data for one in told if one.name == name]


def test_the_words_on_the_wire(acme: Caller, puppet: Puppet) -> None:
    puppet.stops("I\nlook", READ)
    puppet.stops("Nothing – yet.")
    answer = acme("POST", TURNS, json=said("e1", stream=True))
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-accel-buffering"] == "no"
    assert masked(answer.text) == WIRE.read_text()


def test_text_comes_while_it_is_said(acme: Caller, puppet: Puppet) -> None:
    with followed(acme, "POST", TURNS, json=said("e1", stream=True)) as told:
        assert next(told).name == "entry"
        for piece in ("One", " at", " a time"):
            puppet.says(piece)
            assert next(told) == Told("text", {"text": piece})
        puppet.stops()
        assert [one.name for one in told] == ["entry", "outcome"]


def test_who_comes_back_reads_each_entry_once_and_the_answer_under_way_from_its_beginning(
    acme: Caller, puppet: Puppet
) -> None:
    with followed(acme, "POST", TURNS, json=said("e1", stream=True)) as told:
        puppet.stops("first", READ)
        puppet.says("half an ")
        seen = [next(told) for _ in range(7)]
        assert seen[-1] == Told("text", {"text": "half an "})
    newest = max(int(one.id) for one in seen if one.id)
    assert newest == 3
    for method, path, more in (
        ("GET", STREAM, {}),
        ("POST", TURNS, {"json": said("e1", stream=True)}),
    ):
        with followed(acme, method, path, after=newest, **more) as told:
            assert next(told) == Told("text", {"text": "half an "})
    with followed(acme, "GET", STREAM, after=newest) as told:
        assert next(told) == Told("text", {"text": "half an "})
        puppet.stops("answer")
        rest = list(told)
    assert [one.name for one in rest] == ["text", "entry", "outcome"]
    assert rest[-1].data["reply"] == "half an answer"
    with followed(acme, "GET", STREAM) as told:
        whole = list(told)
    assert [one.id for one in whole] == ["1", "2", "3", "4", None]
    assert [one.data["reply"] for one in whole[-1:]] == ["half an answer"]


def test_an_event_that_waits_is_told_its_place_and_nothing_of_the_others(
    acme: Caller, puppet: Puppet
) -> None:
    acme.post(TURNS, said("e0"), 202)
    puppet.is_asked()
    with followed(acme, "POST", TURNS, json=said("e1", stream=True)) as told:
        assert next(told) == Told("queued", {"ahead": 1})
        puppet.stops("not for you")
        puppet.stops("for you")
        rest = list(told)
    assert of("text", rest) == [{"text": "for you"}]
    assert [one.data["event"] for one in rest if one.name == "entry" and "event" in one.data] == [
        "e1"
    ]
    assert [one["entry"] for one in of("entry", rest)] == [3, 4]


def test_a_reader_who_goes_ends_nothing(acme: Caller, puppet: Puppet) -> None:
    with followed(acme, "POST", TURNS, json=said("e1", stream=True)) as told:
        next(told)
    puppet.stops("all the same")
    assert settled(acme, "/v1/agents/helper/events/e1")["reply"] == "all the same"


def test_a_server_that_ends_asks_its_readers_to_come_back(
    site: Site, acme: Caller, puppet: Puppet
) -> None:
    with followed(acme, "POST", TURNS, json=said("e1", stream=True)) as told:
        assert next(told).name == "entry"
        site.app.state.curfew.call()
        assert list(told) == [Told("reconnect", {})]


def test_what_is_followed_may_be_deleted(acme: Caller, puppet: Puppet) -> None:
    with followed(acme, "POST", TURNS, json=said("e1", stream=True)) as told:
        conversation = acme.get("/v1/agents/helper/events/e1")["conversationId"]
        acme.refused(409, "DELETE", f"/v1/conversations/{conversation}")
        puppet.stops("done")
        assert list(told)[-1].name == "outcome"
    assert acme("DELETE", f"/v1/conversations/{conversation}").status_code == 200
    acme.refused(404, "GET", STREAM)


@pytest.mark.parametrize("stated", ["x", "-1", "1.5", "1" * 13, "٣"])
def test_only_the_number_of_an_entry_is_a_place_to_go_on_from(acme: Caller, stated: str) -> None:
    headers = {"Last-Event-ID": stated.encode()}
    error = acme.refused(400, "GET", STREAM, headers=cast(Any, headers))
    assert error["field"] == "Last-Event-ID"


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def test_a_reader_who_is_slow_loses_the_end_of_a_text_and_never_an_entry() -> None:
    async def listened() -> list[Heard]:
        audience, found = Audience(), list[Heard]()
        with audience.listening(CONVERSATION) as listener, audience.stage(CONVERSATION) as stage:
            stage.begin(0)
            stage.stored(1)
            stage.emit(TextArrived("a"))
            found += await listener.heard(1)
            for number in range(2 * HEARD_MAX):
                stage.emit(ToolStarted(ToolCall(f"t{number}", "read", {})))
            stage.emit(TextArrived("lost"))
            stage.stored(2)
            stage.emit(TextArrived("b"))
            found += await listener.heard(1)
        return found

    found = run(listened())
    assert [(one.entry, one.told) for one in found] == [
        (1, Stored()),
        (1, TextArrived("a")),
        (1, Stored()),
        (2, Stored()),
        (2, TextArrived("b")),
    ]


def test_texts_that_nobody_fetched_are_one_text_within_a_bound() -> None:
    async def listened() -> list[Heard]:
        audience = Audience()
        with audience.listening(CONVERSATION) as listener, audience.stage(CONVERSATION) as stage:
            stage.begin(3)
            for _ in range(10 * HEARD_MAX):
                stage.emit(TextArrived("ab"))
            found = list(await listener.heard(1))
            stage.emit(TextArrived("x" * (TEXT_CHARACTERS_MAX + 1)))
            return found + list(await listener.heard(1))

    found = run(listened())
    assert [one.told for one in found] == [TextArrived("ab" * 10 * HEARD_MAX), Stored()]


def test_a_stage_is_kept_no_longer_than_it_is_used() -> None:
    async def used() -> Audience:
        audience = Audience()
        with audience.listening(CONVERSATION), audience.stage(CONVERSATION):
            pass
        with audience.stage(CONVERSATION):
            pass
        return audience

    assert not run(used())._stages
