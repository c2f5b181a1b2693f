"""Claude, through the provider's own SDK: one question, streamed.

A question is one request as a rule. Two things make it more than one: a turn of the provider's own tools
that it pauses (`pause_turn`) is sent back as it came and goes on; and a request that is refused for the
thinking in it is sent once more without. What passes by itself is not waited for here: that is
`RetryingModel`'s.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from harness.messages.message import Message, Part, part_as_json
from harness.messages.model_request import NO_USAGE, ModelFailure, ModelRequest, Reply
from harness.messages.progress import Counted, Emit, TextArrived
from harness.models.anthropic.clients import AnthropicClients
from harness.models.anthropic.early_request import EarlyRequest, HeldBack
from harness.models.anthropic.errors import (
    broken,
    declined,
    is_about_thinking,
    refusal,
    unreachable,
    window_full,
)
from harness.models.anthropic.stream_parser import StreamParser
from harness.models.port import Foreseeing
from workspaces.storage.records import JsonObject

PAUSES_MAX = 10
"""The provider pauses after ten or so uses of its own tools; nobody waits for a hundred."""


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class AnthropicModel(Foreseeing):
    def __init__(self, name: str, clients: AnthropicClients) -> None:
        self.name = name
        self._clients = clients
        self._foreseen: tuple[ModelRequest, int, EarlyRequest] | None = None

    def foresee(self, request: ModelRequest, *, output_tokens_max: int) -> None:
        if self._clients.unusable is None:
            head_start = EarlyRequest(partial(self._ask, request, output_tokens_max))
            self._foreseen = request, output_tokens_max, head_start

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        if self._clients.unusable is not None:
            return self._clients.unusable
        head_start = self._head_start(request, output_tokens_max)
        if head_start is not None:
            return await head_start.finish(emit)
        return await self._ask(request, output_tokens_max, emit)

    def _head_start(self, request: ModelRequest, limit: int) -> EarlyRequest | None:
        """For this question, if there is one."""
        foreseen, self._foreseen = self._foreseen, None
        if foreseen is None:
            return None
        of, limit_of, head_start = foreseen
        if of is not request or limit_of != limit:
            head_start.give_up()
        return None if head_start.is_lost else head_start

    async def _ask(
        self, request: ModelRequest, limit: int, emit: Emit, held_back: HeldBack | None = None
    ) -> Reply | ModelFailure:
        stated = parameters(self.name, request, limit)
        question = _Question(self._clients.of_running_loop(), stated, emit, held_back)
        return await question.asked()


class _Question:
    """Its parameters grow while it is asked."""

    def __init__(
        self, client: Any, parameters: JsonObject, emit: Emit, held_back: HeldBack | None
    ) -> None:
        """`held_back`: what its first body waits for."""
        self._client = client
        self._parameters = parameters
        self._messages: list[JsonObject] = parameters["messages"]
        self._said: list[JsonObject] = []
        self._emit = emit
        self._held_back = held_back
        self._parts: tuple[Part, ...] = ()
        self._usage = NO_USAGE

    async def asked(self) -> Reply | ModelFailure:
        for _ in range(PAUSES_MAX):
            answer = StreamParser()
            failure = await self._ask(answer)
            self._usage += answer.usage
            if failure is not None:
                return replace(failure, usage=self._usage)
            self._parts += answer.parts()
            match answer.stop_reason:
                case "refusal":
                    return declined(answer.stop_details, self._usage)
                case "model_context_window_exceeded":
                    return window_full(self._usage)
                case "pause_turn" if not Message("assistant", self._parts).tool_calls:
                    self._go_on_behind(answer)
                case reason:
                    return self._reply(reason)
        return self._reply("pause_turn")

    async def _ask(self, answer: StreamParser) -> ModelFailure | None:
        """One request, without thinking if it is refused with it."""
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
        """None when the answer is whole. Raises what the provider refuses."""
        import anthropic
        import httpx2

        try:
            async with (
                await self._sent() as stream,
                aclosing(_texts(stream, answer)) as texts,
            ):
                await self._tell(texts, answer)
        except anthropic.APIStatusError:
            raise
        except (anthropic.APIConnectionError, httpx2.HTTPError) as error:
            return unreachable(f"the provider cannot be reached ({type(error).__name__})")
        except (anthropic.APIError, _Nonsense) as error:
            name = type(error.__cause__ or error).__name__
            return broken(f"its answer cannot be understood ({name})")
        is_whole = answer.is_whole and answer.stop_reason is not None
        return None if is_whole else broken("its answer broke off")

    async def _sent(self) -> Any:
        """As the SDK's `messages.create` sends it, which looks through all of a request for what is not plain
        yet: that takes as long as all else that is done before the first byte goes out. Events come as they
        were sent, and are not made objects of first."""
        import anthropic

        body = _JSON.encode(self._parameters).encode()
        held_back, self._held_back = self._held_back, None
        return await self._client.post(
            "/v1/messages",
            content=held_back(body) if held_back else body,
            options={"headers": {"content-length": str(len(body))}} if held_back else {},
            cast_to=anthropic.types.Message,
            stream=True,
            stream_cls=anthropic.AsyncStream[object],
        )

    async def _tell(self, texts: AsyncGenerator[str | None], answer: StreamParser) -> None:
        counted = NO_USAGE
        async for text in texts:
            if text:
                self._emit(TextArrived(text))
            if answer.usage != counted:
                counted = answer.usage
                self._emit(Counted(self._usage + counted))

    def _go_on_behind(self, answer: StreamParser) -> None:
        """The next request ends in what the provider has said so far, exactly as it said it."""
        self._said += answer.blocks()
        said = {"role": "assistant", "content": self._said}
        self._parameters = {**self._parameters, "messages": [*self._messages, said]}

    def _reply(self, stop_reason: str | None) -> Reply:
        message = Message("assistant", self._parts)
        ended = {"tool_use"} if message.tool_calls else {"end_turn", "stop_sequence", "tool_use"}
        return Reply(message, self._usage, is_complete=stop_reason in ended)


class _Nonsense(Exception):
    """What came is no answer."""


async def _texts(stream: AsyncIterator[Any], answer: StreamParser) -> AsyncGenerator[str | None]:
    """What each event adds to the text. Apart from telling it: what listeners raise is theirs."""
    try:
        async for event in stream:
            yield answer.take(event)
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise _Nonsense from error


def parameters(model: str, request: ModelRequest, output_tokens_max: int) -> JsonObject:
    """The request in the provider's notation, as its SDK takes it."""
    system: list[JsonObject] = [{"type": "text", "text": text} for text in request.system]
    contents = [[part_as_json(part) for part in message.parts] for message in request.messages]
    kept = [system[at] for at in request.breakpoints.system]
    for block in (*kept, *(contents[at][-1] for at in request.breakpoints.messages)):
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
    }


def _without_thinking(parameters: JsonObject) -> JsonObject:
    """A message of nothing else is left as it is: an empty one would be refused, too."""
    return {**parameters, "messages": [_plain(message) for message in parameters["messages"]]}


def _plain(message: JsonObject) -> JsonObject:
    kept = [block for block in message["content"] if block["type"] not in _THINKING]
    return {**message, "content": kept or message["content"]}


_THINKING = {"thinking", "redacted_thinking"}
