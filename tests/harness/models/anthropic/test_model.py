"""The provider's model: what is sent over HTTP, and what its streams become."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import pytest

from harness.messages.message import INVALID_JSON, Message, Text, ToolCall, ToolResult, user
from harness.messages.model_request import (
    Breakpoints,
    FailureKind,
    ModelFailure,
    ModelRequest,
    Reply,
    ToolSpec,
    Usage,
)
from harness.messages.progress import Counted, Progress, TextArrived, Waiting, Withdrawn
from harness.models.anthropic.clients import AnthropicClients
from harness.models.anthropic.model import PAUSES_MAX, AnthropicModel, parameters
from harness.models.retrying import TRIES_MAX, WAIT_S_MAX, RetryingModel
from harness.runtime.settings import DEFAULT_MODEL
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
    server_tool_use,
    text,
    thinking,
    tool_use,
)

READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {}})
HELLO = ModelRequest(("Be brief.",), (user("hello"),), (READ,), Breakpoints(system=(0,)))
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
    def withdrawn(self) -> int:
        return sum(isinstance(p, Withdrawn) for p in self.progress)

    @property
    def texts(self) -> list[str]:
        return [p.text for p in self.progress if isinstance(p, TextArrived)]


Ask = Callable[..., Told]


@pytest.fixture
def ask(server: MessagesServer) -> Ask:
    """Ask the provider once, through the SDK; waiting takes no time."""

    def asked(
        *lines: Line,
        request: ModelRequest = HELLO,
        key: str = KEY,
        base_url: str | None = None,
    ) -> Told:
        server.answers(*lines)
        pauses: list[float] = []
        progress: list[Progress] = []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)

        clients = AnthropicClients(key, base_url or server.url)
        model = RetryingModel(AnthropicModel("claude-test", clients), pause=pause)
        reply = model.reply(request, output_tokens_max=500, emit=progress.append)
        return Told(asyncio.run(asyncio.wait_for(reply, TEST_S_MAX)), progress, pauses)

    return asked


def test_text_is_emitted_piece_by_piece(ask: Ask) -> None:
    told = ask(says(text("Hel", "lo", " there.")))
    assert told.texts == ["Hel", "lo", " there."]
    assert told.reply.message == Message("assistant", (Text("Hello there."),))
    assert told.reply.is_complete


def test_text_is_emitted_before_the_stream_ends(server: MessagesServer) -> None:
    hold = Hold()
    server.answers(breaks_off(text("early"), ending=[hold]))
    model = AnthropicModel("claude-test", AnthropicClients(KEY, server.url))

    async def ask() -> None:
        came = asyncio.Event()

        def hear(progress: Progress) -> None:
            if isinstance(progress, TextArrived):
                came.set()

        asking = asyncio.create_task(model.reply(HELLO, output_tokens_max=500, emit=hear))
        await asyncio.wait_for(came.wait(), TEST_S_MAX)
        assert not asking.done()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(ask())
    assert hold.left.wait(TEST_S_MAX), "the connection outlives the question"


def test_the_request_equals_that_of_the_sdk(server: MessagesServer) -> None:
    clients = AnthropicClients(KEY, server.url)
    server.answers(says(text("ours")), says(text("its own")))

    async def both() -> None:
        model = AnthropicModel("claude-test", clients)
        await model.reply(HELLO, output_tokens_max=500, emit=lambda _: None)
        stated = parameters("claude-test", HELLO, 500)
        async with await clients.of_running_loop().messages.create(**stated) as stream:
            assert [event.type async for event in stream][-1] == "message_stop"

    asyncio.run(both())
    ours, its_own = zip(server.requests, server.heads, strict=True)
    assert ours == its_own


def test_the_request_holds_the_prompt_the_tools_and_the_token_limit(
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


def test_breakpoints_become_cache_control_marks(ask: Ask, server: MessagesServer) -> None:
    result = Message("user", (ToolResult("t1", "text"), Text("and more")))
    call = Message("assistant", (ToolCall("t1", "read", {}),))
    request = ModelRequest(
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


def test_usage_includes_the_cache_tokens(ask: Ask) -> None:
    assert ask(says(text("ok"), output=42)).reply.usage == Usage(11, 42, 200, 100, 40)


@pytest.mark.parametrize(
    "pieces",
    [
        ('{"path": "MEMORY.md", "limit": 3}',),
        ('{"pa', 'th": "MEM', "ORY", '.md", "limit"', ": ", "3", "}"),
        tuple('{"path": "MEMORY.md", "limit": 3}'),
        ("", '{"path":"MEMORY.md","limit":3}', ""),
    ],
)
def test_a_tool_call_is_assembled_however_its_input_is_split(
    ask: Ask, pieces: tuple[str, ...]
) -> None:
    reply = ask(says(text("Let me look."), tool_use("toolu_1", "read", *pieces))).reply
    assert reply.is_complete
    assert reply.message.tool_calls == (
        ToolCall("toolu_1", "read", {"path": "MEMORY.md", "limit": 3}),
    )


def test_a_tool_call_without_input_gets_an_empty_object(ask: Ask) -> None:
    reply = ask(says(tool_use("toolu_1", "read"))).reply
    assert reply.message.tool_calls == (ToolCall("toolu_1", "read", {}),)


def test_tool_calls_and_thinking_are_resent_unchanged(ask: Ask, server: MessagesServer) -> None:
    first = ask(
        says(thinking("Hm, ", "well."), text("Looking."), tool_use("toolu_1", "read", "{}"))
    ).reply.message
    results = Message("user", (ToolResult("toolu_1", "No such file.", is_error=True),))
    ask(says(text("done")), request=ModelRequest((), (user("hello"), first, results), (READ,)))
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


def _event(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


FAULTS: list[tuple[str, Line, FailureKind]] = [
    ("a wrong key", Refusal(401, "authentication_error"), "key"),
    ("a key without rights", Refusal(403, "permission_error"), "key"),
    ("an unknown model", Refusal(404, "not_found_error", "model: nix"), "refused"),
    ("a bad request", Refusal(400, "invalid_request_error", "bad"), "refused"),
    ("a large body", Refusal(413, "request_too_large"), "too_long"),
    (
        "a long prompt",
        Refusal(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
        "too_long",
    ),
    (
        "a prompt that leaves no room for the answer",
        Refusal(
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 7 + 2 > 8, decrease input length or "
            "`max_tokens` and try again",
        ),
        "too_long",
    ),
    ("a full window", says(text("I"), stop="model_context_window_exceeded"), "window_full"),
    ("a refusal of the model's", says(stop="refusal"), "declined"),
    (
        "an empty purse",
        Refusal(400, "invalid_request_error", "Your credit balance is too low"),
        "budget",
    ),
    ("a bill unpaid", Refusal(402, "billing_error"), "budget"),
    ("too many requests", Refusal(429, "rate_limit_error"), "overloaded"),
    ("an overload", OVERLOADED, "overloaded"),
    ("a server error", Refusal(500, "api_error"), "broken"),
    ("a gateway's page", Refusal(502, body=b"<html>Bad Gateway</html>"), "broken"),
    ("a gateway's silence", Refusal(504, body=b""), "broken"),
    ("a request that was slow", Refusal(408, "timeout_error"), "broken"),
    (
        "an overload within the stream",
        breaks_off(ending=[error_event("overloaded_error")]),
        "overloaded",
    ),
    (
        "a limit within the stream",
        breaks_off(ending=[error_event("rate_limit_error")]),
        "overloaded",
    ),
    ("an error within the stream", breaks_off(ending=[error_event("api_error")]), "broken"),
    ("a stream that ends early", breaks_off(), "broken"),
    ("an empty stream", Streamed([]), "broken"),
    ("a dropped connection", breaks_off(ending=[Drop()]), "unreachable"),
    ("events of nonsense", Streamed([b"event: nix\ndata: {]\n\n"]), "broken"),
    ("an event that is no object", Streamed([_event("message_start", 5)]), "broken"),
    (
        "an event of nothing",
        Streamed([_event("message_start", {"type": "message_start"})]),
        "broken",
    ),
    ("events out of order", Streamed(says(text("x")).events[1:]), "broken"),
    (
        "a block that never began",
        Streamed([event for event in says(text("x")).events if b"block_start" not in event]),
        "broken",
    ),
    ("a page in place of a stream", Refusal(200, body=b"<html>Log in</html>"), "broken"),
    ("a redirect", Refusal(302, headers={"location": "/elsewhere"}, body=b""), "refused"),
]


@pytest.mark.parametrize(
    ("line", "kind"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
def test_every_provider_error_has_a_kind_a_remedy_and_a_bounded_number_of_tries(
    ask: Ask, server: MessagesServer, line: Line, kind: FailureKind
) -> None:
    tries = TRIES_MAX.get(kind, 1)
    told = ask(*[line] * tries)
    assert told.failure.kind == kind
    assert told.failure.reason
    assert told.failure.remedy
    assert len(server.requests) == tries
    waits = [p.seconds for p in told.progress if isinstance(p, Waiting)]
    assert waits == told.pauses
    assert len(told.pauses) == tries - 1
    assert all(0 < seconds <= WAIT_S_MAX for seconds in told.pauses)


def test_retry_pauses_grow(ask: Ask) -> None:
    told = ask(*[OVERLOADED] * TRIES_MAX["overloaded"])
    assert told.pauses == sorted(told.pauses)


@pytest.mark.parametrize("fault", [OVERLOADED, Refusal(500), breaks_off(), Streamed([])])
def test_a_temporary_error_is_retried_and_answered(ask: Ask, fault: Line) -> None:
    told = ask(fault, says(text("here")))
    assert told.reply.message.text == "here"
    assert len(told.pauses) == 1


@pytest.mark.parametrize(
    "ending",
    [[error_event("overloaded_error")], [Drop()], []],
    ids=["error", "dropped", "ended"],
)
def test_a_broken_stream_withdraws_its_text_and_is_retried(
    ask: Ask, server: MessagesServer, ending: Sequence[Any]
) -> None:
    told = ask(breaks_off(text("half an ans"), ending=ending), says(text("a whole one")))
    assert told.texts == ["half an ans", "a whole one"]
    kinds = [type(p) for p in told.progress if not isinstance(p, Counted)]
    assert kinds == [TextArrived, Withdrawn, Waiting, TextArrived]
    assert told.reply.message.text == "a whole one"
    assert told.reply.usage.input == 2 * 11, "what broke off was paid for, too"


@pytest.mark.parametrize("headers", [{"retry-after": "3"}, {"retry-after-ms": "3000"}])
def test_the_retry_pause_follows_the_providers_header(ask: Ask, headers: dict[str, str]) -> None:
    told = ask(Refusal(429, "rate_limit_error", headers=headers), says(text("ok")))
    assert told.pauses == [3.0]


@pytest.mark.parametrize("asked", ["3600", "1e9", "inf", "Wed, 21 Oct 2099 07:28:00 GMT"], ids=str)
def test_a_retry_pause_over_the_limit_is_a_failure(
    ask: Ask, server: MessagesServer, asked: str
) -> None:
    told = ask(Refusal(429, "rate_limit_error", headers={"retry-after": asked}))
    assert told.failure.kind == "overloaded"
    assert "asks to wait" in told.failure.reason
    assert told.pauses == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("asked", ["-5", "nan", "soon", "", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_nonsensical_retry_header_is_replaced_by_the_default_pause(ask: Ask, asked: str) -> None:
    told = ask(Refusal(429, "rate_limit_error", headers={"retry-after": asked}), says(text("ok")))
    (seconds,) = told.pauses
    assert 0 < seconds <= WAIT_S_MAX


@pytest.mark.parametrize("stop", ["max_tokens", "end_turn", "refusal", "pause_turn"])
def test_a_truncated_tool_call_makes_the_reply_incomplete(ask: Ask, stop: str) -> None:
    told = ask(says(text("So"), tool_use("t1", "read", '{"path": "MEM'), stop=stop))
    assert isinstance(told.result, ModelFailure) or not told.result.is_complete


def test_unsigned_thinking_is_dropped(ask: Ask) -> None:
    reply = ask(says(thinking("Hm", signature=""), stop="max_tokens")).reply
    assert not reply.is_complete
    assert reply.message.parts == ()


def test_an_unreachable_provider_is_a_failure_that_names_the_base_url_setting(ask: Ask) -> None:
    told = ask(base_url="http://127.0.0.1:1")
    assert told.failure.kind == "unreachable"
    assert "ANTHROPIC_BASE_URL" in told.failure.remedy
    assert len(told.pauses) == TRIES_MAX["unreachable"] - 1


@pytest.mark.parametrize(
    "url", ["nowhere", "ftp://127.0.0.1", "http://[::1", "http://\n", "http://a:b"]
)
def test_a_malformed_base_url_is_refused_without_a_retry(ask: Ask, url: str) -> None:
    told = ask(base_url=url)
    assert told.failure.kind == "refused"
    assert told.pauses == []
    assert "ANTHROPIC_BASE_URL" in told.failure.remedy


@pytest.mark.parametrize("key", ["sk-tëst", "sk-\ntest", "sk-test\udcff"])
def test_an_api_key_with_forbidden_characters_is_a_key_failure(ask: Ask, key: str) -> None:
    told = ask(key=key)
    assert told.failure.kind == "key"
    assert told.pauses == []


def test_a_failure_never_shows_the_api_key(ask: Ask) -> None:
    told = ask(key="sk-secret")
    assert told.failure.kind == "key"
    assert "sk-secret" not in repr(told.failure)


NO_OBJECTS = [
    '{"path": oops',
    "[1, 2]",
    "null",
    '{"path": "MEM',
    '{"line": 1e999}',
    '{"a":' * 5_000,
]


@pytest.mark.parametrize("stated", NO_OBJECTS, ids=range(len(NO_OBJECTS)))
def test_a_tool_input_that_is_no_object_is_passed_to_the_tool_unchanged(
    ask: Ask, server: MessagesServer, stated: str
) -> None:
    reply = ask(says(text("So."), tool_use("t1", "read", stated))).reply
    assert reply.message.tool_calls == (ToolCall("t1", "read", {INVALID_JSON: stated}),)
    assert reply.is_complete
    assert reply.message.text == "So."
    assert len(server.requests) == 1


def test_a_long_tool_input_in_many_pieces_is_assembled(ask: Ask) -> None:
    content = "word " * 40_000
    whole = json.dumps({"path": "a.md", "content": content})
    pieces = [whole[at : at + 50] for at in range(0, len(whole), 50)]
    (call,) = ask(says(tool_use("t1", "write", *pieces))).reply.message.tool_calls
    assert call.input == {"path": "a.md", "content": content}


PAUSED = says(
    text("Searching."),
    server_tool_use("srv_1", "web_search", '{"query": ', '"tea"}'),
    stop="pause_turn",
)


def test_a_paused_reply_is_resent_and_continued(ask: Ask, server: MessagesServer) -> None:
    told = ask(PAUSED, says(text("Tea is fine.")))
    assert told.reply.is_complete
    assert told.reply.message.text == "Searching.\n\nTea is fine."
    assert told.reply.usage.output == 2 * 7
    assert told.texts == ["Searching.", "Tea is fine."]
    assert [m["role"] for m in server.requests[1]["messages"]] == ["user", "assistant"]


def test_a_reply_that_pauses_too_often_is_incomplete(ask: Ask) -> None:
    told = ask(*[PAUSED] * PAUSES_MAX)
    assert not told.reply.is_complete


def test_a_refusal_states_the_models_explanation_on_one_line(ask: Ask) -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "It could\nharm."}
    told = ask(says(stop="refusal", details=details))
    assert "(It could harm.)" in told.failure.reason
    assert told.failure.usage.input == 11


def test_thinking_refused_by_the_provider_is_left_out_and_the_request_repeated(
    ask: Ask, server: MessagesServer
) -> None:
    server.binds_thinking = True
    first = ask(says(thinking("Hm."), tool_use("toolu_1", "read", "{}"))).reply.message
    results = Message("user", (ToolResult("toolu_1", "It is empty."),))
    same = ModelRequest(HELLO.system, (*HELLO.messages, first, results), (READ,))
    ask(says(text("with")), request=same)
    assert server.requests[-1]["messages"][1]["content"][0]["type"] == "thinking"
    other = ModelRequest(("Be long.",), same.messages, (READ,))
    assert ask(says(text("without")), request=other).reply.message.text == "without"
    assert [b["type"] for b in server.requests[-1]["messages"][1]["content"]] == ["tool_use"]
    assert len(server.refused) == 1


def test_a_silent_stream_is_ended_as_unreachable(server: MessagesServer) -> None:
    server.answers(breaks_off(text("I"), ending=[Hold()]))
    model = AnthropicModel("claude-test", AnthropicClients(KEY, server.url, event_gap_s=1.0))
    reply = model.reply(HELLO, output_tokens_max=500, emit=lambda _: None)
    result = asyncio.run(asyncio.wait_for(reply, TEST_S_MAX))
    assert isinstance(result, ModelFailure)
    assert result.kind == "unreachable"


def test_requests_of_one_event_loop_share_a_connection(server: MessagesServer) -> None:
    server.answers(*[says(text("ok"))] * 3)
    clients = AnthropicClients(KEY, server.url)
    seen: set[int] = set()

    async def ask() -> None:
        for _ in range(3):
            model = AnthropicModel("claude-test", clients)
            await model.reply(HELLO, output_tokens_max=500, emit=lambda _: None)
            seen.add(id(clients.of_running_loop()))

    asyncio.run(ask())
    assert len(seen) == 1
    assert len(server.callers) == 1


def test_an_http_client_is_closed_on_release_and_when_its_event_loop_ends(
    server: MessagesServer,
) -> None:
    server.answers(*[says(text("ok"))] * 2)
    kept: list[Any] = []
    clients = AnthropicClients(KEY, server.url)
    model = AnthropicModel("claude-test", clients)

    async def ask(*, close: bool) -> None:
        await model.reply(HELLO, output_tokens_max=500, emit=lambda _: None)
        kept.append(clients.of_running_loop())
        assert not kept[-1].is_closed()
        if close:
            owner_task = clients._open_clients[asyncio.get_running_loop()].owner_task
            clients.close()
            await asyncio.wait([owner_task])
            assert kept[-1].is_closed()

    asyncio.run(asyncio.wait_for(ask(close=True), TEST_S_MAX))
    asyncio.run(ask(close=False))
    assert [client.is_closed() for client in kept] == [True, True]


def test_the_default_model_is_known_to_the_sdk_and_not_deprecated() -> None:
    from anthropic.resources.messages.messages import DEPRECATED_MODELS
    from anthropic.types import ModelParam

    known = {name for part in get_args(ModelParam) for name in get_args(part)}
    assert DEFAULT_MODEL in known
    assert DEFAULT_MODEL not in DEPRECATED_MODELS
