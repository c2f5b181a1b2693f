"""Claude, through the provider's own SDK: streaming, one request at a time.

The SDK is told not to retry. It would sleep through any `retry-after`, an hour too, and it never
retries what breaks within a stream; the loop here waits a bounded time, says so, and treats both
alike. A stream that ends without a stop reason raises nothing in the SDK: it is a failure here.

A client lives as long as one question: kept longer it would hold connections of an event loop that may
be gone, and nobody would close them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, cast

from harness.message import Message, Part, Text, Thinking, ToolCall, part_as_json
from harness.progress import Emit, TextArrived, Waiting
from harness.request import FailureKind, ModelFailure, Reply, Request, Usage
from workspaces.records import JsonObject

TRIES_MAX = 4
WAIT_S_MAX = 20.0
"""Longer than a provider is overloaded as a rule, shorter than a person waits without a word."""

BASE_URL = "https://api.anthropic.com"

CONNECT_S_MAX = 10.0
SILENCE_S_MAX = 120.0
"""Between two events of a stream; the provider sends a ping every 15 seconds."""

REASON_CHARACTERS_MAX = 300
"""A proxy in between may answer with a page."""

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

    async def reply(
        self, request: Request, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        unusable = _unusable(self._api_key, self._base_url)
        if unusable is not None:
            return unusable
        parameters = _parameters(self.name, request, output_tokens_max)
        async with self._opened() as client:
            return await self._persist(client, parameters, emit)

    async def _persist(
        self, client: Any, parameters: Mapping[str, Any], emit: Emit
    ) -> Reply | ModelFailure:
        """Ask until there is an answer, a failure that stays, or text that somebody has read."""
        for attempt in range(1, TRIES_MAX + 1):
            told = False

            def emit_and_note(progress: Any) -> None:
                nonlocal told
                told = True
                emit(progress)

            result, wait_s = await _ask(client, parameters, emit_and_note)
            is_worth_another = isinstance(result, ModelFailure) and result.kind in _RETRIED
            if not is_worth_another or told or attempt == TRIES_MAX or wait_s > WAIT_S_MAX:
                return result
            seconds = wait_s or min(WAIT_S_MAX, 0.5 * 2**attempt) * random.uniform(0.75, 1.0)  # noqa: S311
            emit(Waiting(cast(ModelFailure, result).reason, seconds))
            await self._pause(seconds)
        raise AssertionError("unreachable: the last attempt returns")

    def _opened(self) -> Any:
        import anthropic
        import httpx2

        return anthropic.AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._base_url or BASE_URL,
            max_retries=0,
            timeout=httpx2.Timeout(SILENCE_S_MAX, connect=CONNECT_S_MAX),
        )


async def _ask(
    client: Any, parameters: Mapping[str, Any], emit: Emit
) -> tuple[Reply | ModelFailure, float]:
    """One attempt; beside its result how long the provider asks to wait, 0 when it does not."""
    import anthropic
    import httpx2

    try:
        async with client.messages.stream(**parameters) as stream:
            await _forward_text(stream, emit)
            return _reply(await stream.get_final_message()), 0.0
    except anthropic.APIStatusError as error:
        return _refusal(error), _asked_wait_s(error.response.headers)
    except (anthropic.APIConnectionError, httpx2.HTTPError) as error:
        return _unreachable(f"the provider cannot be reached ({type(error).__name__})"), 0.0
    except (
        anthropic.APIError,
        ValueError,
        LookupError,
        RuntimeError,
        AssertionError,
    ) as error:  # what a broken stream raises
        return _broken(f"its answer cannot be understood ({type(error).__name__})"), 0.0


def _unusable(api_key: str, base_url: str | None) -> ModelFailure | None:
    """What cannot even be sent; the SDK would call it a network that fails, or raise."""
    import httpx2

    if not (api_key.isascii() and api_key.isprintable()):
        return _wrong_key("ANTHROPIC_API_KEY holds a character that no key has")
    try:
        url = httpx2.URL(base_url or BASE_URL)
        is_address = url.scheme in {"http", "https"} and bool(url.host)
    except (httpx2.InvalidURL, ValueError):
        is_address = False
    return None if is_address else _unreachable(f"{base_url!r} is not the address of a provider")


def _parameters(model: str, request: Request, output_tokens_max: int) -> dict[str, Any]:
    system: list[dict[str, Any]] = [{"type": "text", "text": text} for text in request.system]
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
        "messages": [
            {"role": message.role, "content": content}
            for message, content in zip(request.messages, contents, strict=True)
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
    if final.stop_reason == "refusal":
        remedy = "say it in other words, or begin a new conversation"
        return ModelFailure("refused", "the model declines to answer this", remedy)
    parts = tuple(_part(block) for block in final.content if not _is_unsigned(block))
    counted = final.usage
    usage = Usage(
        counted.input_tokens,
        counted.output_tokens,
        counted.cache_read_input_tokens or 0,
        counted.cache_creation_input_tokens or 0,
    )
    message = Message("assistant", parts)
    ended = {"tool_use"} if message.tool_calls else {"end_turn", "stop_sequence", "tool_use"}
    return Reply(message, usage, is_complete=final.stop_reason in ended)


def _is_unsigned(block: Any) -> bool:
    """Thinking that was cut before its signature came: the provider takes it back from nobody."""
    return block.type == "thinking" and not block.signature


def _part(block: Any) -> Part:
    match block.type:
        case "text":
            return Text(block.text)
        case "tool_use":
            arguments: Any = block.input  # whatever JSON the model has written
            if not isinstance(arguments, dict):
                raise ValueError("the input of a tool call is not an object")
            return ToolCall(block.id, block.name, cast(JsonObject, arguments))
        case _:
            return Thinking(block.model_dump(mode="json", exclude_none=True))


def _refusal(error: Any) -> ModelFailure:
    """An error within a stream comes with status 200: then its type alone says what it is."""
    told = " ".join(str(getattr(error, "api_message", None) or error).split())
    message = told[:REASON_CHARACTERS_MAX]
    match (error.status_code, getattr(error, "type", None)):
        case (429 | 529, _) | (_, "overloaded_error" | "rate_limit_error"):
            return ModelFailure("overloaded", "the provider is busy", "try again in a minute")
        case (401 | 403, _) | (_, "authentication_error" | "permission_error"):
            return _wrong_key(f"the provider refuses the key: {message}")
        case (413, _) | (_, "request_too_large"):
            return _too_long()
        case (200 | 400, _) if "too long" in told:
            return _too_long()
        case (408, _):
            return _broken("it took too long to take the question")
        case (200, kind) if kind != "invalid_request_error":
            return _broken(f"it failed on the way ({kind or message})")
        case (status, _) if status >= 500:
            return _broken(f"it failed with status {status}")
        case (status, _):
            remedy = "check the agent's model and configuration"
            return ModelFailure("refused", f"the provider refuses ({status}): {message}", remedy)


def _wrong_key(reason: str) -> ModelFailure:
    return ModelFailure("key", reason, "set ANTHROPIC_API_KEY to a key that may use this model")


def _unreachable(reason: str) -> ModelFailure:
    remedy = "check the network and ANTHROPIC_BASE_URL, then say it again"
    return ModelFailure("unreachable", reason, remedy)


def _too_long() -> ModelFailure:
    remedy = "begin a new conversation, or shorten MEMORY.md"
    return ModelFailure("too_long", "the conversation is longer than the model can take", remedy)


def _broken(what: str) -> ModelFailure:
    return ModelFailure("broken", f"the provider answered, but {what}", "say it again")


def _asked_wait_s(headers: Mapping[str, str]) -> float:
    """In seconds, in milliseconds or as a date; 0 for what makes no sense."""
    try:
        if stated_ms := headers.get("retry-after-ms"):
            seconds = float(stated_ms) / 1000
        else:
            seconds = _seconds(headers.get("retry-after") or "0")
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, seconds) if isfinite(seconds) or seconds > 0 else 0.0


def _seconds(stated: str) -> float:
    if not stated[:1].isalpha() or stated.lower() in {"inf", "infinity", "nan"}:
        return float(stated)
    moment = parsedate_to_datetime(stated)
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
