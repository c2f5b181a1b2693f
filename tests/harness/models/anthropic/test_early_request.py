"""Early requests: the request head is sent while the entry is being stored, the body only after."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.billing.ledger import Ledger, UsageOwner
from harness.billing.limits import AccountLimiter
from harness.billing.price import own_prices
from harness.messages.event import Event
from harness.messages.message import Message, Text, ToolCall, user
from harness.messages.model_request import ModelRequest, Reply, Usage
from harness.messages.progress import Emit, Progress, TextArrived, silent
from harness.models.anthropic.clients import AnthropicClients
from harness.models.anthropic.model import AnthropicModel
from harness.models.metered import MeteredModel
from harness.models.port import Foreseeing
from harness.models.retrying import RetryingModel
from harness.models.scripted import ScriptedModel
from harness.transcripts.outcome import Outcome
from tests.harness.messages_server import KEY, Hold, MessagesServer, breaks_off, says, text
from tests.harness.talk import ingress_of, opened
from workspaces.accounts.account import Accounts
from workspaces.clock import ManualClock
from workspaces.errors import Failure, Unavailable
from workspaces.ids import AgentId
from workspaces.storage.idle_hook import about_to_wait
from workspaces.storage.in_memory import MemoryRecords
from workspaces.storage.records import Counter, RecordChange, RecordStore

TEST_S_MAX = 60.0
HELD_S = TEST_S_MAX
"""Nothing here depends on how soon a head comes."""
HELLO = ModelRequest(("Be brief.",), (user("hello"),), ())
OTHER = ModelRequest(("Be brief.",), (user("something else"),), ())
TURNS_OF_THE_LOOP = 100
"""In which whatever does not wait is done."""


class Provider:
    """One that sees what comes when it comes, and answers whole requests."""

    def __init__(self) -> None:
        self.heads = 0
        self.head_came = asyncio.Event()
        self.bodies: list[bytes] = []
        self.left = asyncio.Event()
        """Somebody has gone in the middle of a request."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads += 1
                self.head_came.set()
                length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
                try:
                    self.bodies.append(await reader.readexactly(int(length)))
                except asyncio.IncompleteReadError as error:
                    assert error.partial == b""
                    self.left.set()
                    return
                writer.write(_ANSWER if b" /v1/messages " in head else _ELSEWHERE)
                await writer.drain()
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


_EVENTS = b"".join(one for one in says(text("Hel", "lo.")).events if isinstance(one, bytes))
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s" % (
    len(_EVENTS),
    _EVENTS,
)


_ELSEWHERE = (
    b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /v1/messages\r\ncontent-length: 0\r\n\r\n"
)


@asynccontextmanager
async def provider(at: socket.socket | None = None) -> AsyncGenerator[tuple[Provider, str]]:
    at, found = at or an_address(), Provider()
    server = await asyncio.start_server(found.answer, sock=at)
    try:
        yield found, url_of(at)
    finally:
        server.close()


def an_address() -> socket.socket:
    """At which nobody listens yet."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    return taken


def url_of(taken: socket.socket) -> str:
    return f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(autouse=True)
def _long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.models.anthropic.early_request.HELD_S_MAX", HELD_S)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), HELD_S + TEST_S_MAX))


async def everything_else() -> None:
    for _ in range(TURNS_OF_THE_LOOP):
        await asyncio.sleep(0)


def a_model(url: str) -> AnthropicModel:
    return AnthropicModel("claude-test", AnthropicClients(KEY, url))


async def asked(model: AnthropicModel, request: ModelRequest, emit: Emit = silent) -> str:
    reply = await model.reply(request, output_tokens_max=500, emit=emit)
    assert isinstance(reply, Reply), reply
    return reply.message.text


def test_the_body_of_an_early_request_is_sent_only_when_the_model_is_asked() -> None:
    async def story() -> None:
        async with provider() as (there, url):
            model = a_model(url)
            model.foresee(HELLO, output_tokens_max=500)
            await there.head_came.wait()
            await everything_else()
            assert there.bodies == []
            told: list[Progress] = []
            assert await asked(model, HELLO, told.append) == "Hello."
            assert [one.text for one in told if isinstance(one, TextArrived)] == ["Hel", "lo."]
            assert (there.heads, len(there.bodies)) == (1, 1)

    run(story)


def test_an_early_request_sends_the_same_bytes_as_an_ordinary_request(
    server: MessagesServer,
) -> None:
    """Also for the rules of the provider; and once."""
    server.answers(*[says(text("ok"))] * 2)

    async def story() -> None:
        model = a_model(server.url)
        model.foresee(HELLO, output_tokens_max=500)
        assert await asked(model, HELLO) == "ok"
        assert await asked(model, HELLO) == "ok"

    run(story)
    foreseen, plain = server.requests
    assert foreseen == plain
    assert server.heads[0] == server.heads[1]


@pytest.mark.parametrize("other", [(OTHER, 500), (HELLO, 400)])
def test_an_early_request_that_differs_from_the_asked_request_is_dropped(
    other: tuple[ModelRequest, int],
) -> None:
    async def story() -> None:
        async with provider() as (there, url):
            model = a_model(url)
            model.foresee(HELLO, output_tokens_max=500)
            await there.head_came.wait()
            request, tokens_max = other
            reply = await model.reply(request, output_tokens_max=tokens_max, emit=silent)
            assert isinstance(reply, Reply)
            await there.left.wait()
            assert len(there.bodies) == 1
            assert request.messages[0].text.encode() in there.bodies[0]
            assert b'"max_tokens":%d' % tokens_max in there.bodies[0]

    run(story)


def test_an_early_request_that_is_never_asked_is_closed() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with provider() as (there, url):
            model = a_model(url)
            model.foresee(HELLO, output_tokens_max=500)
            await there.head_came.wait()
            time = loop.time
            loop.time = lambda: time() + HELD_S  # type: ignore[method-assign]
            await there.left.wait()
            assert await asked(model, HELLO) == "Hello."  # later than anybody thought
            assert len(there.bodies) == 1

    run(story)


def test_a_failed_early_request_falls_back_to_an_ordinary_request() -> None:
    """The provider is there when it counts."""
    taken = an_address()

    async def story() -> None:
        model = a_model(url_of(taken))
        model.foresee(HELLO, output_tokens_max=500)
        assert model._foreseen is not None
        head_start = model._foreseen[2]
        await asyncio.wait([head_start._asking])
        assert head_start.is_lost
        async with provider(taken) as (there, _):
            assert await asked(model, HELLO) == "Hello."
            assert len(there.bodies) == 1

    run(story)


def test_an_early_request_follows_a_redirect_of_the_provider() -> None:
    async def story() -> None:
        async with provider() as (there, url):
            model = a_model(f"{url}/before")
            model.foresee(HELLO, output_tokens_max=500)
            assert await asked(model, HELLO) == "Hello."
            assert len(there.bodies) == 2

    run(story)


def test_cancelling_the_model_call_closes_the_connection_of_an_early_request(
    server: MessagesServer,
) -> None:
    hold = Hold()
    server.answers(breaks_off(text("early"), ending=[hold]))

    async def story() -> None:
        came = asyncio.Event()
        model = a_model(server.url)
        model.foresee(HELLO, output_tokens_max=500)
        asking = asyncio.create_task(asked(model, HELLO, lambda _: came.set()))
        await came.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    run(story)
    assert hold.left.wait(TEST_S_MAX)


def test_a_model_wrapper_forwards_early_requests_to_models_that_support_them() -> None:
    seer = Seer()
    RetryingModel(seer).foresee(HELLO, output_tokens_max=500)
    RetryingModel(ScriptedModel("yes")).foresee(HELLO, output_tokens_max=500)
    assert seer.foreseen == [HELLO]


@pytest.mark.parametrize(("limits", "is_foreseen"), [({}, True), ({"dollarsPerDay": 1.0}, False)])
def test_no_early_request_is_sent_when_the_budget_may_be_spent(
    limits: dict[str, float], is_foreseen: bool
) -> None:
    records, clock = MemoryRecords(), ManualClock()
    accounts = Accounts(records, clock)
    account = accounts.create({"name": "one", "config": {"limits": limits}})
    ledger = Ledger(records, clock, own_prices)
    allowance = AccountLimiter(records, clock, accounts, ledger)
    spender = UsageOwner(account.id, AgentId("agent_1"), account.owner_id)
    seer = Seer()
    model = MeteredModel(seer, spender, ledger, allowance)
    allowance.check(account.id)
    clock.advance(10.0)  # an answer takes that long
    model.foresee(HELLO, output_tokens_max=500)
    assert seer.foreseen == [HELLO] * is_foreseen


class Seer(Foreseeing):
    """Answers "done", after a call of `read` if that was asked for. It says what it foresees."""

    name = "seer"

    def __init__(self) -> None:
        self.foreseen: list[ModelRequest] = []
        self.asked: list[ModelRequest] = []
        self.foresees = threading.Event()

    def foresee(self, request: ModelRequest, *, output_tokens_max: int) -> None:
        self.foreseen.append(request)
        self.foresees.set()

    async def reply(self, request: ModelRequest, *, output_tokens_max: int, emit: Emit) -> Reply:
        self.asked.append(request)
        is_done = "read" not in request.messages[0].text or len(request.messages) > 1
        part = Text("done") if is_done else ToolCall("toolu_1", "read", {"path": "MEMORY.md"})
        return Reply(Message("assistant", (part,)), Usage(1, 1))


class Slow:
    """Records on which whatever holds a receipt is written when the model has foreseen its question, and
    not sooner; or not at all, once it `fails`."""

    def __init__(self, store: RecordStore, seer: Seer, *, fails: bool = False) -> None:
        self._store = store
        self._seer = seer
        self.fails = fails
        self.get, self.scan, self.close = store.get, store.scan, store.close

    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        if not any(change.key.sort.startswith("receipt:") for change in changes):
            return self._store.write(*changes)
        self._seer.foresees.clear()
        about_to_wait()
        assert self._seer.foresees.wait(TEST_S_MAX)
        assert len(self._seer.asked) < len(self._seer.foreseen)
        if self.fails:
            raise Unavailable("records", "the disk is full")
        return self._store.write(*changes)


def said(home: Path, seer: Seer, text: str, *, fails: bool = False) -> Outcome | Failure:
    rooms = opened(home, seer)
    try:
        ingress = ingress_of(rooms, records=Slow(rooms.records, seer, fails=fails))
        agent, event = rooms.agents.get("assistant"), Event.said("e1", "c1", text)
        return asyncio.run(asyncio.wait_for(ingress.run(agent, event), TEST_S_MAX))
    except Failure as failure:
        return failure
    finally:
        rooms.records.close()


def test_every_request_of_a_turn_is_first_prepared_as_an_early_request(home: Path) -> None:
    seer = Seer()
    outcome = said(home, seer, "read that")
    assert isinstance(outcome, Outcome)
    assert (outcome.status, outcome.reply) == ("done", "done")
    assert len(seer.asked) == 2
    assert seer.foreseen == seer.asked
    assert all(one is other for one, other in zip(seer.foreseen, seer.asked, strict=True))


def test_a_request_whose_entry_could_not_be_stored_is_never_sent(home: Path) -> None:
    seer = Seer()
    failure = said(home, seer, "hello", fails=True)
    assert isinstance(failure, Unavailable)
    assert len(seer.foreseen) == 1
    assert seer.asked == []
    outcome = said(home, seer, "hello")  # and the event may come again
    assert isinstance(outcome, Outcome)
    assert (outcome.reply, len(seer.asked)) == ("done", 1)
