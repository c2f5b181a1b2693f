"""The conformance tests of a model. An adapter's test is a subclass with the fixture `speaks`: it returns
a model that replies with the given lines, a line to each request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from harness.messages.message import Message, Text, ToolCall, ToolResult, user
from harness.messages.model_request import ModelFailure, ModelRequest, Reply, ToolSpec
from harness.messages.progress import Progress, TextArrived
from harness.models.port import Model

T = TypeVar("T")
Speaks = Callable[..., Model]

READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {}})
HELLO = ModelRequest(("Be brief.",), (user("hello"),), (READ,))
TEST_S_MAX = 60.0


class ModelConformance:
    def test_a_model_has_a_name(self, speaks: Speaks) -> None:
        assert speaks().name

    def test_a_model_reply_is_an_assistant_message_equal_to_the_streamed_text(
        self, speaks: Speaks
    ) -> None:
        reply, told = asked(speaks("Hello there."))
        assert isinstance(reply, Reply)
        assert reply.message == Message("assistant", (Text("Hello there."),))
        assert reply.is_complete
        assert "".join(p.text for p in told if isinstance(p, TextArrived)) == "Hello there."

    def test_model_usage_is_never_negative(self, speaks: Speaks) -> None:
        usage = answered(speaks("Hello there.")).usage
        assert min(usage.input, usage.output, usage.cache_read, usage.cache_write) >= 0
        assert usage.cache_write_hour <= usage.cache_write
        assert usage.input + usage.output > 0

    def test_tool_calls_of_a_model_reply_arrive_whole_and_in_order(self, speaks: Speaks) -> None:
        calls = (
            ToolCall("t1", "read", {"path": "a.md", "limit": 3, "deep": {"x": [1, "ä"]}}),
            ToolCall("t2", "read", {}),
        )
        reply = answered(speaks([Text("Let me look."), *calls]))
        assert reply.is_complete
        assert reply.message.tool_calls == calls
        assert reply.message.text == "Let me look."

    def test_a_model_accepts_tool_calls_and_results_in_its_messages(self, speaks: Speaks) -> None:
        model = speaks([ToolCall("t1", "read", {"path": "a.md"})], "It is empty.")
        first = answered(model).message
        results = Message("user", (ToolResult("t1", "a.md is empty."),))
        request = ModelRequest(HELLO.system, (*HELLO.messages, first, results), HELLO.tools)
        assert answered(model, request).message.text == "It is empty."

    def test_a_model_keeps_no_state_between_requests(self, speaks: Speaks) -> None:
        model = speaks("one", "two")
        assert answered(model).message.text == "one"
        assert answered(model).message.text == "two"
        assert ModelRequest(("Be brief.",), (user("hello"),), (READ,)) == HELLO

    def test_a_model_failure_is_returned_with_reason_and_remedy(self, speaks: Speaks) -> None:
        failure = ModelFailure("declined", "the model declines to answer this", "say it otherwise")
        result, _ = asked(speaks(failure, "here"))
        assert isinstance(result, ModelFailure)
        assert result.kind == "declined"
        assert result.reason
        assert result.remedy

    def test_a_model_replies_again_after_a_failure(self, speaks: Speaks) -> None:
        model = speaks(ModelFailure("declined", "no", "say it otherwise"), "here")
        asked(model)
        assert answered(model).message.text == "here"

    def test_a_model_replies_to_several_concurrent_requests(self, speaks: Speaks) -> None:
        model = speaks(*["yes"] * 8)

        async def all_at_once() -> list[Reply | ModelFailure]:
            return await asyncio.gather(*(_ask(model, HELLO) for _ in range(8)))

        replies = _run(all_at_once())
        assert [isinstance(r, Reply) and r.message.text for r in replies] == ["yes"] * 8

    def test_a_model_replies_in_successive_event_loops(self, speaks: Speaks) -> None:
        model = speaks("one", "two")
        assert [answered(model).message.text for _ in range(2)] == ["one", "two"]

    def test_a_model_request_can_be_cancelled_before_sending(self, speaks: Speaks) -> None:
        model = speaks("never", "later")

        async def cancel() -> None:
            asking = asyncio.create_task(_ask(model, HELLO))
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert isinstance(await _ask(model, HELLO), Reply)
            await _ask(model, HELLO)

        _run(cancel())

    def test_a_model_request_can_be_cancelled_during_the_reply(self, speaks: Speaks) -> None:
        model = speaks("half of it", "later")

        async def cancel() -> None:
            asking: list[asyncio.Task[Any]] = []

            def stop(progress: Progress) -> None:
                if isinstance(progress, TextArrived):
                    asking[0].cancel()

            asking.append(asyncio.create_task(_ask(model, HELLO, stop)))
            await asyncio.wait(asking, timeout=TEST_S_MAX)
            assert asking[0].done()
            assert isinstance(await _ask(model, HELLO), Reply)

        _run(cancel())


def asked(
    model: Model, request: ModelRequest = HELLO
) -> tuple[Reply | ModelFailure, list[Progress]]:
    told: list[Progress] = []
    return _run(_ask(model, request, told.append)), told


def answered(model: Model, request: ModelRequest = HELLO) -> Reply:
    reply, _ = asked(model, request)
    assert isinstance(reply, Reply), reply
    return reply


async def _ask(
    model: Model, request: ModelRequest, emit: Callable[[Progress], None] = lambda _: None
) -> Reply | ModelFailure:
    return await model.reply(request, output_tokens_max=500, emit=emit)


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, TEST_S_MAX))
