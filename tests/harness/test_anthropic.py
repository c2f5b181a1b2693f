from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.message import Message, Text, ToolCall, ToolResult, user
from harness.models.anthropic import TRIES_MAX, WAIT_S_MAX, AnthropicModel
from harness.progress import Progress, TextArrived, Waiting
from harness.request import Breakpoints, FailureKind, ModelFailure, Reply, Request, ToolSpec, Usage
from tests.harness.messages_server import (
    KEY,
    Drop,
    Hold,
    Line,
    MessagesServer,
    Refusal,
    Streamed,
    breaks_off,
    error_event,
    says,
    text,
    thinking,
    tool_use,
)

READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {}})
HELLO = Request(("Be brief.",), (user("hello"),), (READ,), Breakpoints(system=(0,)))
OVERLOADED = Refusal(529, "overloaded_error", "Overloaded")
TEST_S_MAX = 60.0


@dataclass
class Told:
    """What one question came to."""

    result: Reply | ModelFailure
    progress: list[Progress] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    @property
    def reply(self) -> Reply:
        assert isinstance(self.result, Reply), self.result
        return self.result

    @property
    def failure(self) -> ModelFailure:
        assert isinstance(self.result, ModelFailure), self.result
        return self.result

    @property
    def texts(self) -> list[str]:
        return [p.text for p in self.progress if isinstance(p, TextArrived)]


Ask = Callable[..., Told]


@pytest.fixture
def ask(server: MessagesServer) -> Ask:
    """Ask the provider once, through the SDK; waiting takes no time."""

    def asked(
        *lines: Line, request: Request = HELLO, key: str = KEY, base_url: str | None = None
    ) -> Told:
        server.answers(*lines)
        pauses: list[float] = []
        progress: list[Progress] = []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)

        model = AnthropicModel(
            "claude-test", api_key=key, base_url=base_url or server.url, pause=pause
        )
        reply = model.reply(request, output_tokens_max=500, emit=progress.append)
        return Told(asyncio.run(asyncio.wait_for(reply, TEST_S_MAX)), progress, pauses)

    return asked


def test_text_is_told_as_it_comes(ask: Ask) -> None:
    told = ask(says(text("Hel", "lo", " there.")))
    assert told.texts == ["Hel", "lo", " there."]
    assert told.reply.message == Message("assistant", (Text("Hello there."),))
    assert told.reply.is_complete


def test_text_is_told_before_the_stream_has_ended(server: MessagesServer) -> None:
    hold = Hold()
    server.answers(breaks_off(text("early"), ending=[hold]))
    model = AnthropicModel("claude-test", api_key=KEY, base_url=server.url)

    async def ask() -> None:
        came = asyncio.Event()
        asking = asyncio.create_task(
            model.reply(HELLO, output_tokens_max=500, emit=lambda _: came.set())
        )
        await asyncio.wait_for(came.wait(), TEST_S_MAX)
        assert not asking.done()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(ask())
    assert hold.left.wait(TEST_S_MAX), "the connection outlives the question"


def test_the_request_holds_the_prompt_the_tools_and_the_limit(
    ask: Ask, server: MessagesServer
) -> None:
    ask(says(text("ok")))
    (body,) = server.requests
    assert body["model"] == "claude-test"
    assert body["max_tokens"] == 500
    assert body["system"] == [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    ]
    assert body["tools"] == [
        {"name": "read", "description": "Read a file.", "input_schema": READ.schema}
    ]
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]


def test_the_provider_is_asked_to_keep_what_stays(ask: Ask, server: MessagesServer) -> None:
    result = Message("user", (ToolResult("t1", "text"), Text("and more")))
    call = Message("assistant", (ToolCall("t1", "read", {}),))
    request = Request(
        ("Shared.", "Own.", "For this turn."),
        (user("hello"), call, result),
        (READ,),
        Breakpoints(system=(0, 1), messages=(0, 2)),
    )
    ask(says(text("ok")), request=request)
    (body,) = server.requests
    kept = {"type": "ephemeral"}
    assert [block.get("cache_control") for block in body["system"]] == [kept, kept, None]
    marks = [[part.get("cache_control") for part in one["content"]] for one in body["messages"]]
    assert marks == [[kept], [None], [None, kept]]


def test_usage_is_counted_with_the_cache(ask: Ask) -> None:
    assert ask(says(text("ok"), output=42)).reply.usage == Usage(11, 42, 200, 100)


@pytest.mark.parametrize(
    "pieces",
    [
        ('{"path": "MEMORY.md", "limit": 3}',),
        ('{"pa', 'th": "MEM', "ORY", '.md", "limit"', ": ", "3", "}"),
        tuple('{"path": "MEMORY.md", "limit": 3}'),
        ("", '{"path":"MEMORY.md","limit":3}', ""),
    ],
)
def test_a_tool_call_is_put_together_however_its_input_is_split(
    ask: Ask, pieces: tuple[str, ...]
) -> None:
    reply = ask(says(text("Let me look."), tool_use("toolu_1", "read", *pieces))).reply
    assert reply.is_complete
    assert reply.message.tool_calls == (
        ToolCall("toolu_1", "read", {"path": "MEMORY.md", "limit": 3}),
    )


def test_a_tool_call_without_input_has_an_empty_one(ask: Ask) -> None:
    reply = ask(says(tool_use("toolu_1", "read"))).reply
    assert reply.message.tool_calls == (ToolCall("toolu_1", "read", {}),)


def test_calls_and_thinking_are_replayed_as_they_came(ask: Ask, server: MessagesServer) -> None:
    first = ask(
        says(thinking("Hm, ", "well."), text("Looking."), tool_use("toolu_1", "read", "{}"))
    ).reply.message
    results = Message("user", (ToolResult("toolu_1", "No such file.", is_error=True),))
    ask(says(text("done")), request=Request((), (user("hello"), first, results), (READ,)))
    assert server.requests[1]["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm, well.", "signature": "SIGNATURE=="},
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": "No such file.",
                    "is_error": True,
                }
            ],
        },
    ]


FAULTS: list[tuple[str, Line, FailureKind, int]] = [
    ("a wrong key", Refusal(401, "authentication_error"), "key", 1),
    ("a key without rights", Refusal(403, "permission_error"), "key", 1),
    ("an unknown model", Refusal(404, "not_found_error", "model: nix"), "refused", 1),
    ("a bad request", Refusal(400, "invalid_request_error", "bad"), "refused", 1),
    ("a large body", Refusal(413, "request_too_large"), "too_long", 1),
    (
        "a long prompt",
        Refusal(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
        "too_long",
        1,
    ),
    ("a full window", says(text("I"), stop="model_context_window_exceeded"), "too_long", 1),
    ("a refusal of the model's", says(stop="refusal"), "refused", 1),
    ("too many requests", Refusal(429, "rate_limit_error"), "overloaded", TRIES_MAX),
    ("an overload", OVERLOADED, "overloaded", TRIES_MAX),
    ("a server error", Refusal(500, "api_error"), "broken", TRIES_MAX),
    ("a gateway's page", Refusal(502, body=b"<html>Bad Gateway</html>"), "broken", TRIES_MAX),
    ("a gateway's silence", Refusal(504, body=b""), "broken", TRIES_MAX),
    ("a request that was slow", Refusal(408, "timeout_error"), "broken", TRIES_MAX),
    (
        "an overload within the stream",
        breaks_off(ending=[error_event("overloaded_error")]),
        "overloaded",
        TRIES_MAX,
    ),
    (
        "a limit within the stream",
        breaks_off(ending=[error_event("rate_limit_error")]),
        "overloaded",
        TRIES_MAX,
    ),
    (
        "an error within the stream",
        breaks_off(ending=[error_event("api_error")]),
        "broken",
        TRIES_MAX,
    ),
    ("a stream that ends early", breaks_off(), "broken", TRIES_MAX),
    ("an empty stream", Streamed([]), "broken", TRIES_MAX),
    ("a dropped connection", breaks_off(ending=[Drop()]), "unreachable", TRIES_MAX),
    ("input that is no JSON", says(tool_use("t1", "read", '{"path": oops}')), "broken", TRIES_MAX),
    ("input that is no object", says(tool_use("t1", "read", "[1, 2]")), "broken", TRIES_MAX),
    ("input that is null", says(tool_use("t1", "read", "null")), "broken", TRIES_MAX),
    ("events of nonsense", Streamed([b"event: nix\ndata: {]\n\n"]), "broken", TRIES_MAX),
    ("events out of order", Streamed(says(text("x")).events[1:]), "broken", TRIES_MAX),
    (
        "a block that never began",
        Streamed([event for event in says(text("x")).events if b"block_start" not in event]),
        "broken",
        TRIES_MAX,
    ),
    ("a page in place of a stream", Refusal(200, body=b"<html>Log in</html>"), "broken", TRIES_MAX),
    ("a redirect", Refusal(302, headers={"location": "/elsewhere"}, body=b""), "refused", 1),
]


@pytest.mark.parametrize(
    ("line", "kind", "tries"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
def test_a_fault_has_its_kind_a_remedy_and_a_bounded_number_of_tries(
    ask: Ask, server: MessagesServer, line: Line, kind: FailureKind, tries: int
) -> None:
    told = ask(*[line] * tries)
    assert told.failure.kind == kind
    assert told.failure.reason
    assert told.failure.remedy
    assert len(server.requests) == tries
    waits = [p.seconds for p in told.progress if isinstance(p, Waiting)]
    assert waits == told.pauses
    assert len(told.pauses) == tries - 1
    assert all(0 < seconds <= WAIT_S_MAX for seconds in told.pauses)


def test_pauses_grow(ask: Ask) -> None:
    told = ask(*[OVERLOADED] * TRIES_MAX)
    assert told.pauses == sorted(told.pauses)


@pytest.mark.parametrize("fault", [OVERLOADED, Refusal(500), breaks_off(), Streamed([])])
def test_what_passes_is_answered_at_the_next_try(ask: Ask, fault: Line) -> None:
    told = ask(fault, says(text("here")))
    assert told.reply.message.text == "here"
    assert len(told.pauses) == 1


@pytest.mark.parametrize(
    "ending",
    [[error_event("overloaded_error")], [Drop()], []],
    ids=["error", "dropped", "ended"],
)
def test_nothing_is_asked_again_once_text_was_told(
    ask: Ask, server: MessagesServer, ending: Sequence[Any]
) -> None:
    told = ask(breaks_off(text("half an ans"), ending=ending))
    assert told.texts == ["half an ans"]
    assert told.failure.remedy
    assert len(server.requests) == 1


@pytest.mark.parametrize("headers", [{"retry-after": "3"}, {"retry-after-ms": "3000"}])
def test_the_provider_says_how_long_to_wait(ask: Ask, headers: dict[str, str]) -> None:
    told = ask(Refusal(429, "rate_limit_error", headers=headers), says(text("ok")))
    assert told.pauses == [3.0]


@pytest.mark.parametrize("asked", ["3600", "1e9", "inf", "Wed, 21 Oct 2099 07:28:00 GMT"], ids=str)
def test_nobody_waits_longer_than_a_person_would(
    ask: Ask, server: MessagesServer, asked: str
) -> None:
    told = ask(Refusal(429, "rate_limit_error", headers={"retry-after": asked}))
    assert told.failure.kind == "overloaded"
    assert told.pauses == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("asked", ["-5", "nan", "soon", "", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_wait_that_makes_no_sense_is_chosen_by_us(ask: Ask, asked: str) -> None:
    told = ask(Refusal(429, "rate_limit_error", headers={"retry-after": asked}), says(text("ok")))
    (seconds,) = told.pauses
    assert 0 < seconds <= WAIT_S_MAX


@pytest.mark.parametrize("stop", ["max_tokens", "end_turn", "refusal", "pause_turn"])
def test_a_call_that_the_provider_did_not_finish_asking_for_is_not_to_be_run(
    ask: Ask, stop: str
) -> None:
    told = ask(says(text("So"), tool_use("t1", "read", '{"path": "MEM'), stop=stop))
    assert isinstance(told.result, ModelFailure) or not told.result.is_complete


def test_thinking_that_was_never_signed_is_not_kept(ask: Ask) -> None:
    reply = ask(says(thinking("Hm", signature=""), stop="max_tokens")).reply
    assert not reply.is_complete
    assert reply.message.parts == ()


def test_a_provider_that_is_not_there_is_unreachable(ask: Ask) -> None:
    told = ask(base_url="http://127.0.0.1:1")
    assert told.failure.kind == "unreachable"
    assert "ANTHROPIC_BASE_URL" in told.failure.remedy
    assert len(told.pauses) == TRIES_MAX - 1


@pytest.mark.parametrize(
    "url", ["nowhere", "ftp://127.0.0.1", "http://[::1", "http://\n", "http://a:b"]
)
def test_an_address_that_is_none_is_the_caller_s_to_mend(ask: Ask, url: str) -> None:
    told = ask(base_url=url)
    assert told.failure.kind in {"unreachable", "refused"}
    assert "ANTHROPIC_BASE_URL" in told.failure.remedy


@pytest.mark.parametrize("key", ["sk-tëst", "sk-\ntest", "sk-test\udcff"])
def test_a_key_that_cannot_be_sent_is_a_wrong_key(ask: Ask, key: str) -> None:
    told = ask(key=key)
    assert told.failure.kind == "key"
    assert told.pauses == []


def test_a_key_is_never_shown(ask: Ask) -> None:
    told = ask(key="sk-secret")
    assert told.failure.kind == "key"
    assert "sk-secret" not in repr(told.failure)
