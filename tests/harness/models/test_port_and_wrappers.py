"""Every model against the port's contract, and the wrappers: retrying, faulty and metered."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from harness.billing.ledger import Ledger, UsageOwner
from harness.billing.limits import KNOWN_S, AccountLimiter
from harness.billing.price import own_prices
from harness.messages.message import INVALID_JSON, Text, ToolCall
from harness.messages.model_request import ModelFailure, Reply, Usage
from harness.messages.progress import Progress, TextArrived, Waiting, Withdrawn
from harness.models.anthropic.clients import AnthropicClients
from harness.models.anthropic.model import AnthropicModel
from harness.models.demo import DemoModel
from harness.models.faulty import (
    OVERLOADED,
    RATE_LIMITED,
    BreaksOff,
    Fails,
    FaultyModel,
    Malforms,
    ModelFault,
    Slow,
    seeded,
)
from harness.models.metered import MeteredModel
from harness.models.port import Model
from harness.models.retrying import TRIES_MAX, WAIT_S_MAX, RetryingModel
from harness.models.scripted import ScriptedModel, ScriptedReply
from tests.conformance.model import HELLO, ModelConformance, Speaks, answered, asked
from tests.harness.messages_server import (
    KEY,
    Hold,
    MessagesServer,
    breaks_off,
    says,
    text,
    tool_use,
)
from tests.harness.messages_server import Line as Wire
from workspaces.accounts.account import Accounts
from workspaces.clock import ManualClock
from workspaces.errors import Exhausted
from workspaces.ids import AgentId
from workspaces.storage.in_memory import MemoryRecords
from workspaces.storage.records import RecordStore


class TestScriptedModel(ModelConformance):
    @pytest.fixture
    def speaks(self) -> Speaks:
        return ScriptedModel


class TestPatientModel(ModelConformance):
    @pytest.fixture
    def speaks(self) -> Speaks:
        return lambda *lines: RetryingModel(ScriptedModel(*lines))


class TestFaultyModelWithoutFaults(ModelConformance):
    @pytest.fixture
    def speaks(self) -> Speaks:
        return lambda *lines: FaultyModel(ScriptedModel(*lines), iter(()))


class TestPatientModelOverAFaultyOne(ModelConformance):
    """What passes is not seen from outside, but for the waiting."""

    @pytest.fixture
    def speaks(self) -> Speaks:
        seed = random.randrange(10**9)
        print(f"seed {seed}")

        def open_model(*lines: ScriptedReply) -> Model:
            once = (fault for fault in [OVERLOADED, Fails("unreachable"), None] * 50)
            shuffled = list(once)
            random.Random(seed).shuffle(shuffled)
            faulty = FaultyModel(ScriptedModel(*lines), _never_too_often(shuffled))
            return RetryingModel(faulty, pause=_no_time)

        return open_model


class TestMeteredModel(ModelConformance):
    @pytest.fixture
    def speaks(self) -> Speaks:
        return lambda *lines: metered(ScriptedModel(*lines))[0]


class TestAnthropicModel(ModelConformance):
    @pytest.fixture
    def speaks(self, server: MessagesServer) -> Generator[Speaks]:
        clients = AnthropicClients(KEY, server.url)

        def open_model(*lines: ScriptedReply) -> Model:
            server.answers(*(_on_the_wire(line) for line in lines))
            return AnthropicModel("claude-test", clients)

        yield open_model
        server.forget()  # what a cancelled question left unsaid


class TestDemoModel:
    def test_the_demo_model_replies_and_emits_the_text_of_its_reply(self) -> None:
        reply, told = asked(DemoModel())
        assert isinstance(reply, Reply)
        assert told == [TextArrived(reply.message.text)]


def test_the_retrying_model_emits_each_wait_and_then_replies() -> None:
    model, pauses = patient(RATE_LIMITED, OVERLOADED, says_in_the_end="here")
    reply, told = asked(model)
    assert isinstance(reply, Reply)
    assert [p.seconds for p in told if isinstance(p, Waiting)] == pauses
    assert pauses[0] == RATE_LIMITED.wait_s


def test_the_retrying_model_fails_when_the_provider_asks_for_too_long_a_wait() -> None:
    model, pauses = patient(Fails("overloaded", wait_s=WAIT_S_MAX + 1), says_in_the_end="late")
    result, _ = asked(model)
    assert isinstance(result, ModelFailure)
    assert "asks to wait 61 seconds" in result.reason
    assert pauses == []


@pytest.mark.parametrize(
    "kind", ["key", "budget", "refused", "declined", "too_long", "window_full"]
)
def test_the_retrying_model_does_not_retry_a_permanent_failure(kind: Any) -> None:
    model, pauses = patient(Fails(kind), says_in_the_end="never")
    result, _ = asked(model)
    assert isinstance(result, ModelFailure)
    assert (result.kind, pauses) == (kind, [])


def test_the_retrying_model_stops_after_its_maximum_number_of_tries() -> None:
    model, pauses = patient(*[OVERLOADED] * 20, says_in_the_end="never")
    result, _ = asked(model)
    assert isinstance(result, ModelFailure)
    assert len(pauses) == TRIES_MAX["overloaded"] - 1


def test_the_retrying_model_withdraws_half_a_reply_and_counts_its_usage() -> None:
    model, _ = patient(BreaksOff(after=4), says_in_the_end="whole answer")
    reply, told = asked(model)
    assert [p.text for p in told if isinstance(p, TextArrived)] == ["whol", "whole answer"]
    assert sum(isinstance(p, Withdrawn) for p in told) == 1
    one = answered(ScriptedModel("whole answer")).usage
    assert reply.usage == one + one


def test_a_retry_wait_can_be_cancelled() -> None:
    async def cancel() -> None:
        model = RetryingModel(FaultyModel(ScriptedModel("never"), iter([Fails(wait_s=60.0)])))
        waits = asyncio.Event()
        asking = asyncio.create_task(
            model.reply(HELLO, output_tokens_max=5, emit=lambda _: waits.set())
        )
        await waits.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(cancel())


def test_the_faulty_model_can_be_slow_and_can_malform_a_tool_input() -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    call = ToolCall("t1", "read", {"path": "a.md"})
    inner = ScriptedModel("hello", [Text("So."), call])
    model = FaultyModel(inner, iter([Slow(3.0), Malforms()]), pause=pause)
    assert answered(model).message.text == "hello"
    assert pauses == [3.0]
    (malformed,) = answered(model).message.tool_calls
    assert list(malformed.input) == [INVALID_JSON]


def test_a_seed_reproduces_the_same_faults() -> None:
    first, second = seeded(7, share=0.5), seeded(7, share=0.5)
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]


def test_the_metered_model_records_the_usage_of_replies_and_failures() -> None:
    failure = ModelFailure("declined", "no", "say it otherwise", Usage(5, 1))
    model, ledger, spender = metered(ScriptedModel("yes", failure, name="claude-sonnet-5-5"))
    usage = answered(model).usage
    asked(model)
    spent = ledger.spent_on(spender.account_id, ledger.today())
    assert spent.asked == 2
    assert spent.usage == usage + Usage(5, 1)
    assert spent.nanodollars == (usage.input + 5) * 2_000 + (usage.output + 1) * 10_000


def test_the_metered_model_records_the_usage_of_a_cancelled_request(server: MessagesServer) -> None:
    hold = Hold()
    server.answers(breaks_off(text("Once upon"), ending=[hold]))
    provider = AnthropicModel("claude-sonnet-5-5", AnthropicClients(KEY, server.url))
    model, ledger, spender = metered(provider)

    async def cancel() -> None:
        came = asyncio.Event()

        def hear(progress: Progress) -> None:
            if isinstance(progress, TextArrived):
                came.set()

        asking = asyncio.create_task(model.reply(HELLO, output_tokens_max=500, emit=hear))
        await came.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(cancel())
    assert hold.left.wait(60.0)
    spent = ledger.spent_on(spender.account_id, ledger.today())
    assert spent.usage == Usage(11, 1, 200, 100, 40)


def test_an_exception_of_the_progress_listener_passes_through_the_model(
    server: MessagesServer,
) -> None:
    server.answers(says(text("Once.")))
    model = RetryingModel(AnthropicModel("claude-test", AnthropicClients(KEY, server.url)))

    def listen(progress: Progress) -> None:
        raise ValueError("a bug of the face")

    with pytest.raises(ValueError, match="a bug of the face"):
        asyncio.run(model.reply(HELLO, output_tokens_max=500, emit=listen))
    assert len(server.requests) == 1


def test_the_metered_model_sends_no_request_over_the_spending_limit() -> None:
    scripted = ScriptedModel("one", "two", name="claude-sonnet-5-5")
    model, _, _ = metered(scripted, limits={"dollarsPerDay": 0.00001})
    assert isinstance(asked(model)[0], Reply)
    result, _ = asked(model)
    assert isinstance(result, ModelFailure)
    assert result.kind == "budget"
    assert "dollarsPerDay" in result.reason
    assert "dollarsPerDay" in result.remedy
    assert len(scripted.requests) == 1


@pytest.mark.parametrize("seen_by", ["the clock", "an admission"])
def test_a_changed_spending_limit_is_enforced_shortly_or_at_the_next_admission(
    seen_by: str,
) -> None:
    clock = ManualClock()
    records = MemoryRecords(clock)
    accounts = Accounts(records, clock)
    account = accounts.add({"name": "one"})
    ledger = Ledger(records, clock, own_prices)
    allowance = AccountLimiter(records, clock, accounts, ledger)
    spender = UsageOwner(account.id, AgentId("agent_1"), account.owner_id)
    scripted = ScriptedModel("one", "two", name="claude-sonnet-5-5")
    model = MeteredModel(scripted, spender, ledger, allowance)
    assert isinstance(asked(model)[0], Reply)
    accounts.patch(account.id, {"config": {"limits": {"dollarsPerDay": 0.00001}}})
    if seen_by == "the clock":
        clock.advance(KNOWN_S + 0.001)
    else:
        with pytest.raises(Exhausted):
            allowance.admit(account.id)
    result, _ = asked(model)
    assert isinstance(result, ModelFailure)
    assert (result.kind, len(scripted.requests)) == ("budget", 1)


def test_the_metered_model_refuses_a_model_without_a_price_under_a_spending_limit() -> None:
    scripted = ScriptedModel("one", name="unheard-of")
    model, _, _ = metered(scripted, limits={"dollarsPerMonth": 5})
    result, _ = asked(model)
    assert isinstance(result, ModelFailure)
    assert result.kind == "budget"
    assert "prices" in result.remedy
    assert scripted.requests == []


def patient(*faults: ModelFault, says_in_the_end: str) -> tuple[Model, list[float]]:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    lines = [says_in_the_end] * (len(faults) + 1)
    return RetryingModel(FaultyModel(ScriptedModel(*lines), iter(faults)), pause=pause), pauses


def metered(
    model: Model, *, limits: dict[str, float] | None = None, records: RecordStore | None = None
) -> tuple[Model, Ledger, UsageOwner]:
    clock = ManualClock()
    records = records or MemoryRecords(clock)
    accounts = Accounts(records, clock)
    account = accounts.add({"name": "one", "config": {"limits": limits or {}}})
    ledger = Ledger(records, clock, own_prices)
    spender = UsageOwner(account.id, AgentId("agent_1"), account.owner_id)
    allowance = AccountLimiter(records, clock, accounts, ledger)
    return MeteredModel(model, spender, ledger, allowance), ledger, spender


async def _no_time(seconds: float) -> None:
    del seconds


def _never_too_often(faults: list[ModelFault | None]) -> Iterator[ModelFault | None]:
    """Never more in a row than patience takes."""
    in_a_row = 0
    for fault in faults:
        in_a_row = in_a_row + 1 if fault else 0
        if in_a_row < TRIES_MAX["unreachable"]:
            yield fault
        else:
            in_a_row = 0
            yield None


def _on_the_wire(line: ScriptedReply) -> Wire:
    if isinstance(line, str):
        return says(text(line))
    if isinstance(line, ModelFailure):
        assert line.kind == "declined"
        return says(stop="refusal")
    assert not callable(line)
    return says(*(_block(part) for part in line))


def _block(part: Any) -> list[bytes]:

    if isinstance(part, Text):
        return text(part.text)
    return tool_use(part.id, part.name, json.dumps(part.input))
