"""Server-sent events: the stream's format, resuming a stream, and slow or closing readers."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from harness.conversations.event_status import EventStatus
from harness.messages.message import ToolCall, ToolResult, user
from harness.messages.model_request import Usage
from harness.messages.progress import (
    Compacting,
    Counted,
    Queued,
    TextArrived,
    ToolEnded,
    ToolStarted,
    Waiting,
    Withdrawn,
)
from harness.transcripts.transcript import Entry
from harness.turns.broadcast import (
    MESSAGES_MAX,
    TEXT_CHARACTERS_MAX,
    Broadcaster,
    ChannelMessage,
    Stored,
)
from harness.turns.event_stream import Disconnect, KeepAlive, StreamItem
from harness.web.app import ServerTimeouts
from harness.web.http.sse import NAMES, encode
from harness.web.loop_watchdog import STALL_S
from tests.harness.web.site import Caller, Site
from tests.harness.web.turning import Puppet, Told, followed, said, settled, told
from tests.harness.web.wire import received, running, send
from workspaces.ids import ConversationId, TurnId
from workspaces.timestamp import Stamp

TURNS = "/v1/agents/helper/turns"
STREAM = "/v1/agents/helper/events/e1/stream"
READ = ToolCall("toolu_1", "read", {"path": "MEMORY.md"})
CONVERSATION = ConversationId("conv_1")

WIRE = Path(__file__).parents[1] / "snapshots" / "stream.txt"


def masked(text: str) -> str:
    text = re.sub(r"\b(conv|turn)_[0-9a-f]{24}", "ID", text)
    text = re.sub(r'("content":)"(?:[^"\\]|\\.)*"', r'\1"(empty)"', text)
    text = re.sub(r',"seen":\{[^}]*\}', "", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "AT", text)


def of(name: str, told: list[Told]) -> list[Any]:
    return [one.data for one in told if one.name == name]


def test_a_turns_stream_has_the_recorded_format(acme: Caller, puppet: Puppet) -> None:
    puppet.stops("I\nlook", READ)
    puppet.stops("Nothing – yet.")
    answer = acme("POST", TURNS, json=said("e1", stream=True))
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-accel-buffering"] == "no"
    assert masked(answer.text) == WIRE.read_text()


def test_line_separators_in_a_text_do_not_split_a_stream_message(
    acme: Caller, puppet: Puppet
) -> None:
    ends = "a\nb\rc\vd\fe\x1cf\x1dg\x1eh\x85i\u2028j\u2029k"
    puppet.stops(ends)
    answer = acme("POST", TURNS, json=said("e1", ends, stream=True))
    steps = list(told(iter(answer.text.splitlines())))
    assert [one.name for one in steps] == ["entry", "text", "entry", "outcome"]
    assert steps[0].data["message"]["parts"][0]["text"] == ends
    assert (steps[1].data["text"], steps[-1].data["reply"]) == (ends, ends)


def test_every_stream_message_name_is_documented() -> None:
    page = (Path(__file__).parents[4] / "docs" / "turns.md").read_text()
    table = page.partition("## A stream")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(NAMES)


TELLABLE: tuple[StreamItem, ...] = (
    Entry(1, Stamp("2026-01-01T00:00:00.000000Z"), TurnId("turn_1"), user("hello")),
    TextArrived("a"),
    ToolStarted(READ),
    ToolEnded(READ, ToolResult(READ.id, "text")),
    Waiting("the provider is busy", 1.0),
    Withdrawn(),
    Counted(Usage(1, 1)),
    Queued(1),
    Compacting(100_000),
    EventStatus("e1", "done", CONVERSATION, 1),
    KeepAlive(),
    Disconnect(),
)


def test_every_stream_item_is_encoded_with_a_documented_name() -> None:
    assert {type(step) for step in TELLABLE} == set(get_args(StreamItem))
    told = [encode(step).decode() for step in TELLABLE]
    names = {line[7:] for text in told for line in text.splitlines() if line.startswith("event: ")}
    of_other_streams = {"refused", "step"}  # an error's, and a chain's
    assert names | of_other_streams == set(NAMES)


def test_text_is_streamed_while_the_model_produces_the_reply(acme: Caller, puppet: Puppet) -> None:
    with followed(acme, "POST", TURNS, json=said("e1", stream=True)) as told:
        assert next(told).name == "entry"
        for piece in ("One", " at", " a time"):
            puppet.says(piece)
            assert next(told) == Told("text", {"text": piece})
        puppet.stops()
        assert [one.name for one in told] == ["entry", "outcome"]


def test_a_resumed_stream_repeats_no_entry_and_restarts_the_running_reply(
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


def test_the_stream_of_a_queued_event_shows_its_place_but_not_the_events_ahead(
    acme: Caller, puppet: Puppet
) -> None:
    acme.post(TURNS, said("e0"), 202)
    puppet.is_asked()
    with followed(acme, "POST", TURNS, json=said("e1", stream=True)) as told:
        assert next(told) == Told("queued", {"ahead": 1})
        puppet.stops("not for you")
        puppet.says("for you")
        rest = [next(told)]
        while rest[-1].name != "text":
            rest.append(next(told))
        puppet.stops()
        rest += told
    assert of("text", rest) == [{"text": "for you"}]
    assert [one.data["event"] for one in rest if one.name == "entry" and "event" in one.data] == [
        "e1"
    ]
    assert [one["entry"] for one in of("entry", rest)] == [3, 4]


def test_a_disconnected_stream_reader_does_not_end_the_turn(acme: Caller, puppet: Puppet) -> None:
    with followed(acme, "POST", TURNS, json=said("e1", stream=True)) as told:
        next(told)
    puppet.stops("all the same")
    assert settled(acme, "/v1/agents/helper/events/e1")["reply"] == "all the same"


def test_a_stopping_server_asks_stream_readers_to_reconnect(
    spoken: Site, acme: Caller, puppet: Puppet
) -> None:
    with followed(acme, "POST", TURNS, json=said("e1", stream=True)) as told:
        assert next(told).name == "entry"
        spoken.app.state.shutdown.call()
        assert list(told) == [Told("reconnect", {})]


def test_a_stopping_server_does_not_wait_for_stream_readers(tmp_path: Path, puppet: Puppet) -> None:
    patience = ServerTimeouts(turns_s=0)
    with running(tmp_path / "real", model=puppet, patience=patience) as up, up.connected() as wire:
        body = json.dumps(said("e1", stream=True)).encode()
        head = up.head("POST", "/v1/agents/assistant/turns", Content_Length=str(len(body)))
        send(wire, head + body)
        puppet.is_asked()
        heard = b""
        while b"event: entry" not in heard:
            heard += received(wire)
        up.server.should_exit = True
        while not heard.endswith(b"0\r\n\r\n"):
            heard += received(wire)
    assert b"event: reconnect\ndata: {}\n\n" in heard
    assert b"event: outcome" not in heard


def test_keep_alive_comments_are_sent_only_while_a_stream_is_silent(
    tmp_path: Path, puppet: Puppet
) -> None:
    body = json.dumps(said("e1", stream=True)).encode()
    for sign_s, signs in ((0.01, 3), (3600.0, 0)):
        home = tmp_path / f"{sign_s}"
        patience = ServerTimeouts(turns_s=0, sign_s=sign_s)
        with running(home, model=puppet, patience=patience) as up, up.connected() as wire:
            head = up.head("POST", "/v1/agents/assistant/turns", Content_Length=str(len(body)))
            send(wire, head + body)
            puppet.is_asked()
            heard = b""
            while b"event: entry" not in heard or heard.count(b": still there\n\n") < signs:
                heard += received(wire)
            puppet.stops("So.")
            while not heard.endswith(b"0\r\n\r\n"):
                heard += received(wire)
        assert b"event: outcome" in heard
        assert (b": still there" in heard) == bool(signs)


def test_a_streamed_conversation_is_deletable_only_after_the_turn_ended(
    acme: Caller, puppet: Puppet
) -> None:
    with followed(acme, "POST", TURNS, json=said("e1", stream=True)) as told:
        conversation = acme.get("/v1/agents/helper/events/e1")["conversationId"]
        acme.refused(409, "DELETE", f"/v1/conversations/{conversation}")
        puppet.stops("done")
        assert list(told)[-1].name == "outcome"
    assert acme("DELETE", f"/v1/conversations/{conversation}").status_code == 200
    acme.refused(404, "GET", STREAM)


@pytest.mark.parametrize("stated", ["x", "-1", "1.5", "1" * 13, "٣"])
def test_a_last_event_id_that_is_not_an_entry_number_is_400(acme: Caller, stated: str) -> None:
    headers = {"Last-Event-ID": stated.encode()}
    error = acme.refused(400, "GET", STREAM, headers=cast(Any, headers))
    assert error["field"] == "Last-Event-ID"


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def test_a_slow_subscriber_loses_streamed_text_but_never_an_entry() -> None:
    async def listened() -> list[ChannelMessage]:
        audience, found = Broadcaster(), list[ChannelMessage]()
        with (
            audience.subscribe(CONVERSATION) as subscriber,
            audience.channel(CONVERSATION) as channel,
        ):
            channel.begin(0)
            channel.stored(1)
            channel.emit(TextArrived("a"))
            found += await subscriber.read(1)
            for number in range(MESSAGES_MAX + 10):
                channel.emit(ToolStarted(ToolCall(f"t{number}", "read", {})))
            channel.emit(TextArrived("lost"))
            channel.stored(2)
            channel.emit(TextArrived("b"))
            found += await subscriber.read(1)
        return found

    found = run(listened())
    assert [(one.entry, one.content) for one in found] == [
        (1, Stored()),
        (1, TextArrived("a")),
        (1, Stored()),
        (2, Stored()),
        (2, TextArrived("b")),
    ]


def test_unread_streamed_texts_are_joined_up_to_a_limit() -> None:
    async def listened() -> list[ChannelMessage]:
        audience = Broadcaster()
        with (
            audience.subscribe(CONVERSATION) as subscriber,
            audience.channel(CONVERSATION) as channel,
        ):
            channel.begin(3)
            for _ in range(10 * MESSAGES_MAX):
                channel.emit(TextArrived("ab"))
            found = list(await subscriber.read(1))
            channel.emit(TextArrived("x" * (TEXT_CHARACTERS_MAX + 1)))
            return found + list(await subscriber.read(1))

    found = run(listened())
    assert [one.content for one in found] == [TextArrived("ab" * 10 * MESSAGES_MAX), Stored()]


def test_a_broadcast_channel_is_dropped_after_its_last_use() -> None:
    async def used() -> Broadcaster:
        audience = Broadcaster()
        with audience.subscribe(CONVERSATION), audience.channel(CONVERSATION):
            pass
        with audience.channel(CONVERSATION):
            pass
        return audience

    assert not run(used())._channels


def test_encoding_ten_megabytes_of_stream_text_does_not_stall_the_loop() -> None:
    begun = time.thread_time()
    written_ = encode(TextArrived("é\x85\u2028" + "ü" * 10_000_000))
    assert time.thread_time() - begun < STALL_S
    assert written_.startswith('event: text\ndata: {"text":"é\\u0085\\u2028ü'.encode())
