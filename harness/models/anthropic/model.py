"""Claude, through the provider's own SDK: one question, streamed.

A question is usually one request. Two cases need more than one. If the provider pauses a turn of its own
tools (`pause_turn`), the answer is sent back unchanged and continues. If a request is refused because of the
thinking in it, it is sent once more without. Temporary failures are not retried here: `RetryingModel` does
that.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from harness.messages.message import Message, Part, part_as_json
from harness.messages.model_request import NO_USAGE, ModelFailure, ModelRequest, Reply
from harness.messages.progress import Counted, Emit, TextArrived
from harness.models.anthropic.clients import AnthropicClients
from harness.models.anthropic.errors import (
    broken,
    declined,
    is_about_thinking,
    refusal,
    unreachable,
    window_full,
)
from harness.models.anthropic.stream_parser import StreamParser
from workspaces.storage.records import JsonObject

PAUSES_MAX = 10
"""The most pauses of one answer. The provider pauses after about ten uses of its own tools, and no person
waits for a hundred uses."""


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class AnthropicModel:
    def __init__(self, name: str, clients: AnthropicClients) -> None:
        self.name = name
        self._clients = clients

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        if self._clients.unusable is not None:
            return self._clients.unusable
        request_parameters = parameters(self.name, request, output_tokens_max)
        return await _Exchange(self._clients.of_running_loop(), request_parameters, emit).run()


class _Exchange:
    """The exchange for one question. Its parameters grow while it runs."""

    def __init__(self, client: Any, parameters: JsonObject, emit: Emit) -> None:
        self._client = client
        self._parameters = parameters
        self._messages: list[JsonObject] = parameters["messages"]
        self._answer_blocks: list[JsonObject] = []
        self._emit = emit
        self._parts: tuple[Part, ...] = ()
        self._blocks_before = 0
        """Blocks of the answers that paused."""
        self._usage = NO_USAGE

    async def run(self) -> Reply | ModelFailure:
        for _ in range(PAUSES_MAX):
            answer = StreamParser()
            failure = await self._ask(answer)
            self._usage += answer.usage
            if failure is not None:
                return replace(failure, usage=self._usage)
            self._parts += answer.parts()
            self._blocks_before += answer.block_count
            match answer.stop_reason:
                case "refusal":
                    return declined(answer.stop_details, self._usage)
                case "model_context_window_exceeded":
                    return window_full(self._usage)
                case "pause_turn" if not Message("assistant", self._parts).tool_calls:
                    self._continue_after(answer)
                case reason:
                    return self._reply(reason)
        return self._reply("pause_turn")

    async def _ask(self, answer: StreamParser) -> ModelFailure | None:
        """Send one request, and once more without thinking if it is refused because of that."""
        import anthropic

        try:
            return await self._request(answer)
        except anthropic.APIStatusError as error:
            plain = _without_thinking(self._parameters)
            if not is_about_thinking(error) or plain == self._parameters:
                return refusal(error)
        self._parameters = plain
        try:
            return await self._request(answer)
        except anthropic.APIStatusError as error:
            return refusal(error)

    async def _request(self, answer: StreamParser) -> ModelFailure | None:
        """Send one request and read its answer. Return None if the answer is complete, else the failure.

        Raises: APIStatusError if the provider rejects the request.
        """
        import anthropic
        import httpx2

        try:
            async with (
                await self._open_stream() as stream,
                aclosing(_texts(stream, answer)) as texts,
            ):
                await self._emit_texts(texts, answer)
        except anthropic.APIStatusError:
            raise
        except (anthropic.APIConnectionError, httpx2.HTTPError) as error:
            return unreachable(f"the provider cannot be reached ({type(error).__name__})")
        except (anthropic.APIError, _InvalidAnswer) as error:
            name = type(error.__cause__ or error).__name__
            return broken(f"its answer cannot be understood ({name})")
        is_whole = answer.is_whole and answer.stop_reason is not None
        return None if is_whole else broken("its answer broke off")

    async def _open_stream(self) -> Any:
        """Send the request without the SDK's `messages.create`. That searches the whole request for values to
        convert, which takes as long as everything else before the first byte. Events are returned as they
        were sent, not converted to objects first."""
        import anthropic

        body = _JSON.encode(self._parameters).encode()
        return await self._client.post(
            "/v1/messages",
            content=body,
            cast_to=anthropic.types.Message,
            stream=True,
            stream_cls=anthropic.AsyncStream[object],
        )

    async def _emit_texts(self, texts: AsyncGenerator[str | None], answer: StreamParser) -> None:
        usage = NO_USAGE
        async for text in texts:
            if text:
                self._emit(TextArrived(text, self._blocks_before + answer.block))
            if answer.usage != usage:
                usage = answer.usage
                self._emit(Counted(self._usage + usage))

    def _continue_after(self, answer: StreamParser) -> None:
        """Add the answer so far to the next request, exactly as the provider sent it."""
        self._answer_blocks += answer.blocks()
        message = {"role": "assistant", "content": self._answer_blocks}
        self._parameters = {**self._parameters, "messages": [*self._messages, message]}

    def _reply(self, stop_reason: str | None) -> Reply:
        message = Message("assistant", self._parts)
        ended = {"tool_use"} if message.tool_calls else {"end_turn", "stop_sequence", "tool_use"}
        return Reply(message, self._usage, is_complete=stop_reason in ended)


class _InvalidAnswer(Exception):
    """An answer that cannot be parsed."""


async def _texts(stream: AsyncIterator[Any], answer: StreamParser) -> AsyncGenerator[str | None]:
    """Yield the text that each event adds. The caller emits it elsewhere, so that exceptions of its listeners
    are not taken for an invalid answer."""
    try:
        async for event in stream:
            yield answer.take(event)
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise _InvalidAnswer from error


def parameters(model: str, request: ModelRequest, output_tokens_max: int) -> JsonObject:
    """Return the request in the provider's notation, as its SDK accepts it."""
    system: list[JsonObject] = [{"type": "text", "text": text} for text in request.system]
    contents = [[part_as_json(part) for part in message.parts] for message in request.messages]
    cached = [system[at] for at in request.breakpoints.system]
    for block in (*cached, *(contents[at][-1] for at in request.breakpoints.messages)):
        block["cache_control"] = {"type": "ephemeral"}
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
        for tool in request.tools
    ]
    return {
        "model": model,
        "max_tokens": output_tokens_max,
        "stream": True,
        "messages": [
            {"role": message.role, "content": content}
            for message, content in zip(request.messages, contents, strict=True)
        ],
        **({"system": system} if system else {}),
        **({"tools": tools} if tools else {}),
        **({"tool_choice": _choice(request.forced_tool)} if request.forced_tool else {}),
    }


def _choice(tool: str) -> JsonObject:
    """Return the choice that leaves the model one tool, to be called once."""
    return {"type": "tool", "name": tool, "disable_parallel_tool_use": True}


def _without_thinking(parameters: JsonObject) -> JsonObject:
    """Return the parameters without thinking. A message that holds only thinking stays, because an empty one
    would be refused, too."""
    return {**parameters, "messages": [_plain(message) for message in parameters["messages"]]}


def _plain(message: JsonObject) -> JsonObject:
    blocks = [block for block in message["content"] if block["type"] not in _THINKING]
    return {**message, "content": blocks or message["content"]}


_THINKING = {"thinking", "redacted_thinking"}
