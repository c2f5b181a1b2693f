"""What the model port costs over the provider's bare SDK, with a provider on this machine that answers at
once: the time to the first text that is streamed, and the whole of a long answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.provider import LONG_PIECES, MODEL, provider
from benchmarks.ratio import report
from harness.billing.ledger import Ledger, UsageOwner
from harness.billing.limits import AccountLimiter
from harness.billing.price import own_prices
from harness.messages.message import user
from harness.messages.model_request import ModelRequest, Reply, ToolSpec
from harness.messages.progress import Progress, TextArrived
from harness.models.anthropic.clients import AnthropicClients
from harness.models.anthropic.model import AnthropicModel
from harness.models.metered import MeteredModel
from harness.models.port import Model
from harness.models.retrying import RetryingModel
from workspaces.accounts.account import Accounts
from workspaces.clock import SystemClock
from workspaces.ids import AgentId
from workspaces.storage.in_memory import MemoryRecords

ROUNDS = 60
TOOLS = tuple(
    ToolSpec(f"tool_{number}", "Does something. " * 20, {"type": "object", "properties": {}})
    for number in range(8)
)
REQUEST = ModelRequest(("Be brief. " * 2_000,), (user("Hello. " * 50),), TOOLS)
QUESTION: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 500,
    "system": [{"type": "text", "text": REQUEST.system[0]}],
    "tools": [
        {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
        for tool in TOOLS
    ],
    "messages": [{"role": "user", "content": REQUEST.messages[0].text}],
}


def main() -> None:
    with provider() as url:
        asyncio.run(_measure(url))


async def _measure(url: str) -> None:
    import anthropic

    client = anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0)
    clients = AnthropicClients("k", url)
    bare = AnthropicModel(MODEL, clients)
    wired = RetryingModel(_metered(bare))
    sdk = _Sdk(client)
    for claim, model in (("the model", bare), ("as wired: patient, metered", wired)):
        ours, peer = await _in_turns(lambda model=model: _first(model), sdk.first)
        report(f"first streamed text, {claim} / the SDK's own", ours, peer, at_most=1.5)
    ours, peer = await _in_turns(lambda: _whole(wired), sdk.whole, rounds=10)
    report(f"an answer of {LONG_PIECES:,} pieces / the SDK's own", ours, peer, at_most=1.5)
    ours, peer = await _in_turns(lambda: _new_client(url), sdk.first, rounds=10)
    report("  first streamed text with a new client a question", ours, peer, at_most=None)
    clients.close()
    await client.close()


async def _in_turns(
    ours: Callable[[], Awaitable[float]],
    peer: Callable[[], Awaitable[float]],
    *,
    rounds: int = ROUNDS,
) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 2):
        for side in (0, 1) if number % 2 else (1, 0):
            seconds = await (ours, peer)[side]()
            if number >= 2:  # connections are open by then
                times[side].append(seconds)
    return median(times[0]), median(times[1])


async def _first(model: Model) -> float:
    """Seconds until text was told; the answer is heard to its end."""
    first: list[float] = []

    def hear(progress: Progress) -> None:
        if isinstance(progress, TextArrived) and not first:
            first.append(perf_counter())

    begin = perf_counter()
    assert isinstance(await model.reply(REQUEST, output_tokens_max=500, emit=hear), Reply)
    return first[0] - begin


async def _whole(model: Model) -> float:
    """Seconds to the end of a long answer."""
    request = ModelRequest(REQUEST.system, (user("long"),), TOOLS)
    begin = perf_counter()
    reply = await model.reply(request, output_tokens_max=500, emit=lambda _: None)
    assert isinstance(reply, Reply)
    assert len(reply.message.text) == LONG_PIECES * len("word ")
    return perf_counter() - begin


async def _new_client(url: str) -> float:
    clients = AnthropicClients("k", url)
    seconds = await _first(AnthropicModel(MODEL, clients))
    clients.close()
    return seconds


class _Sdk:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def first(self) -> float:
        begin, first = perf_counter(), 0.0
        async with self._client.messages.stream(**QUESTION) as stream:
            async for event in stream:
                if event.type == "text" and not first:
                    first = perf_counter()
            await stream.get_final_message()
        return first - begin

    async def whole(self) -> float:
        question = {**QUESTION, "messages": [{"role": "user", "content": "long"}]}
        begin = perf_counter()
        async with self._client.messages.stream(**question) as stream:
            async for _ in stream:
                pass
            await stream.get_final_message()
        return perf_counter() - begin


def _metered(model: Model) -> Model:
    records, clock = MemoryRecords(), SystemClock()
    accounts = Accounts(records, clock)
    account = accounts.add({"name": "one"})
    ledger = Ledger(records, clock, own_prices)
    spender = UsageOwner(account.id, AgentId("agent_1"), account.owner_id)
    return MeteredModel(model, spender, ledger, AccountLimiter(records, clock, accounts, ledger))


if __name__ == "__main__":
    main()
