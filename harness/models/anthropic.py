"""Claude, through the provider's own SDK: streaming, one request at a time.

The SDK is told not to retry. It would sleep through any `retry-after`, an hour too, and it never
retries what breaks within a stream; the loop here waits a bounded time, says so, and treats both
alike. A stream that ends without a stop reason raises nothing in the SDK: it is a failure here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from harness.message import Message, Part, Text, Thinking, ToolCall, part_as_json
from harness.progress import Emit, TextArrived, Waiting
from harness.request import FailureKind, ModelFailure, Reply, Request, Usage

TRIES_MAX = 4
WAIT_S_MAX = 20.0
"""Longer than a provider is overloaded as a rule, shorter than a person waits without a word."""

CONNECT_S_MAX = 10.0
SILENCE_S_MAX = 120.0
"""Between two events of a stream; the provider sends a ping every 15 seconds."""

_RETRIED: frozenset[FailureKind] = frozenset({"overloaded", "unreachable", "broken"})


class AnthropicModel:
    def __init__(
        self,
        name: str,
        *,
        api_key: str,
        base_url: str | None = None,
        pause: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self.name = name
        self._api_key = api_key
        self._base_url = base_url
        self._pause = pause
        self._client: Any = None

    async def reply(
        self, request: Request, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        for attempt in range(1, TRIES_MAX + 1):
            told = False

            def emit_and_note(progress: Any) -> None:
                nonlocal told
                told = True
                emit(progress)

            result, wait_s = await self._ask(request, output_tokens_max, emit_and_note)
            is_worth_another = isinstance(result, ModelFailure) and result.kind in _RETRIED
            if not is_worth_another or told or attempt == TRIES_MAX or wait_s > WAIT_S_MAX:
                return result
            seconds = wait_s or min(WAIT_S_MAX, 0.5 * 2**attempt) * random.uniform(0.75, 1.0)  # noqa: S311
            emit(Waiting(cast(ModelFailure, result).reason, seconds))
            await self._pause(seconds)
        raise AssertionError("unreachable: the last attempt returns")

    async def _ask(
        self, request: Request, output_tokens_max: int, emit: Emit
    ) -> tuple[Reply | ModelFailure, float]:
        """One attempt; beside its result how long the provider asks to wait, 0 when it does not."""
        import anthropic
        import httpx2

        try:
            async with self._opened().messages.stream(
                **_parameters(self.name, request, output_tokens_max)
            ) as stream:
                await _forward_text(stream, emit)
                return _reply(await stream.get_final_message()), 0.0
        except anthropic.APIStatusError as error:
            return _refusal(error), _asked_wait_s(error)
        except (anthropic.APIConnectionError, httpx2.HTTPError) as error:
            reason = f"the provider cannot be reached ({type(error).__name__})"
            remedy = "check the network and ANTHROPIC_BASE_URL, then say it again"
            return ModelFailure("unreachable", reason, remedy), 0.0
        except (
            anthropic.APIError,
            ValueError,
            AssertionError,
        ) as error:  # what a broken stream raises
            return _broken(f"its answer cannot be understood ({type(error).__name__})"), 0.0

    def _opened(self) -> Any:
        if self._client is None:
            import anthropic
            import httpx2

            self._client = anthropic.AsyncAnthropic(
                api_key=self._api_key,
                base_url=self._base_url or "https://api.anthropic.com",
                max_retries=0,
                timeout=httpx2.Timeout(SILENCE_S_MAX, connect=CONNECT_S_MAX),
            )
        return self._client


def _parameters(model: str, request: Request, output_tokens_max: int) -> dict[str, Any]:
    system: list[dict[str, Any]] = [{"type": "text", "text": text} for text in request.system]
    if system:
        system[-1]["cache_control"] = {"type": "ephemeral"}
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
        for tool in request.tools
    ]
    return {
        "model": model,
        "max_tokens": output_tokens_max,
        "messages": [
            {"role": message.role, "content": [part_as_json(part) for part in message.parts]}
            for message in request.messages
        ],
        **({"system": system} if system else {}),
        **({"tools": tools} if tools else {}),
    }


async def _forward_text(stream: AsyncIterator[Any], emit: Emit) -> None:
    async for event in stream:
        if event.type == "text":
            emit(TextArrived(event.text))


def _reply(final: Any) -> Reply | ModelFailure:
    if final.stop_reason is None:
        return _broken("its answer broke off")
    if final.stop_reason == "model_context_window_exceeded":
        return _too_long()
    parts = tuple(_part(block) for block in final.content)
    counted = final.usage
    usage = Usage(
        counted.input_tokens,
        counted.output_tokens,
        counted.cache_read_input_tokens or 0,
        counted.cache_creation_input_tokens or 0,
    )
    is_complete = final.stop_reason in {"end_turn", "tool_use", "stop_sequence", "refusal"}
    return Reply(Message("assistant", parts), usage, is_complete)


def _part(block: Any) -> Part:
    match block.type:
        case "text":
            return Text(block.text)
        case "tool_use":
            return ToolCall(block.id, block.name, dict(block.input))
        case _:
            return Thinking(block.model_dump(mode="json", exclude_none=True))


def _refusal(error: Any) -> ModelFailure:
    message = str(getattr(error, "api_message", None) or error)
    if getattr(error, "type", None) == "overloaded_error" or error.status_code in {429, 529}:
        return ModelFailure("overloaded", "the provider is busy", "try again in a minute")
    match error.status_code:
        case 401 | 403:
            remedy = "set ANTHROPIC_API_KEY to a key that may use this model"
            return ModelFailure("key", f"the provider refuses the key: {message}", remedy)
        case 413:
            return _too_long()
        case 400 if "too long" in message:
            return _too_long()
        case status if status >= 500:
            return _broken(f"it failed with status {status}")
        case status:
            remedy = "check the agent's model and configuration"
            return ModelFailure("refused", f"the provider refuses ({status}): {message}", remedy)


def _too_long() -> ModelFailure:
    remedy = "begin a new conversation, or shorten MEMORY.md"
    return ModelFailure("too_long", "the conversation is longer than the model can take", remedy)


def _broken(what: str) -> ModelFailure:
    return ModelFailure("broken", f"the provider answered, but {what}", "say it again")


def _asked_wait_s(error: Any) -> float:
    try:
        return float(error.response.headers.get("retry-after") or 0)
    except ValueError:
        return 0.0
