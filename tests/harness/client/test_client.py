"""The client of the HTTP API: over a real socket and within the app's process, with equal answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request as HttpRequest

from harness import Harness, tool
from harness.client import Client, StreamEvent
from harness.client.connection import Connection
from harness.client.errors import ServerFailure
from harness.messages.event import Approval, ToolAnswer
from harness.messages.message import ToolCall
from harness.messages.model_request import ModelFailure
from harness.web.app import create_app
from tests.harness.messages_server import (
    KEY,
    Hold,
    MessagesServer,
    breaks_off,
    says,
    serving,
    text,
    tool_use,
)
from tests.harness.web.serving import Server, home_at
from tests.harness.web.turning import Puppet
from tests.harness.web.wire import running
from workspaces.accounts.account import Principal
from workspaces.conditions import ABSENT
from workspaces.errors import (
    AlreadyExists,
    Busy,
    Conflict,
    Exhausted,
    Failure,
    NotFound,
    Refused,
    Unauthorized,
    Unavailable,
)

WAIT_S = 60.0
READ = ToolCall("t1", "read", {"path": "MEMORY.md"})
TEA = ToolCall("w1", "write", {"path": "tea.md", "content": "green\n"})

Opened = Callable[..., Any]
Home = tuple[Harness, Opened]


@pytest.fixture(params=["by a socket", "within"])
def home(request: pytest.FixtureRequest, tmp_path: Path, puppet: Puppet) -> Iterator[Home]:
    """A home whose every agent says what the puppet does, and clients of it."""
    with ExitStack() as stack:
        if request.param == "within":
            harness = stack.enter_context(Harness.open(tmp_path / "home", model=puppet))
            _, key = harness.rooms.keys.create()

            def opened(key: str = key, **how: Any) -> Client:
                return Client.within(create_app(harness), key, **how)
        else:
            up = stack.enter_context(running(tmp_path / "home", model=puppet))
            harness, key = up.harness, up.key

            def opened(key: str = key, **how: Any) -> Client:
                return Client(f"http://127.0.0.1:{up.port}/", key, **how)

        yield harness, opened


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(WAIT_S):
            await test()

    asyncio.run(timed())


async def asked(puppet: Puppet) -> str:
    return await asyncio.to_thread(puppet.is_asked)


def test_the_client_returns_the_same_outcomes_as_the_harness_in_process(
    home: Home, puppet: Puppet
) -> None:
    harness, opened = home
    harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
    failure = ModelFailure("refused", "it does not want to", "ask nicely")

    async def test() -> None:
        async with opened() as client:
            puppet.stops("Let me write.", READ, TEA)
            waiting = await client.run("tea", conversation="c1", event_id="e/1 %2F ü?#")
            puppet.stops("Written.")
            done = await client.approve(waiting.conversation_id)
            puppet.says(failure)
            failed = await client.run("and now?", conversation="c1", event_id="e2")
            assert (await client.status("e/1 %2F ü?#"))["reply"] == "Written."
            puppet.stops("Briefly.")
            brief = await client.run("again", conversation="c1", system="Be brief.")
        assert await asyncio.to_thread(again, "tea", "e/1 %2F ü?#") == done
        assert await asyncio.to_thread(again, "and now?", "e2") == failed
        assert [one.id for one in waiting.pending] == ["w1"]
        assert done.changes[0].workspace == "notes"
        assert failed.failure == failure
        assert brief.reply == "Briefly."

    def again(said: str, event_id: str) -> Any:
        return harness.run(said, conversation="c1", event_id=event_id)

    run(test)


def test_the_client_receives_text_while_the_turn_runs(home: Home, puppet: Puppet) -> None:
    _, opened = home

    async def test() -> None:
        heard: asyncio.Queue[StreamEvent] = asyncio.Queue()
        event_id = "e 1/ü?#%2F"
        async with opened() as client:
            turn = asyncio.create_task(client.run("hi", event_id=event_id, hear=heard.put_nowait))
            assert (await heard.get()).entry == 1
            for piece in ("One", " at\x85", " a time\u2028"):
                puppet.says(piece)
                assert (await heard.get()).text == piece
            puppet.stops()
            assert (await turn).reply == "One at\x85 a time\u2028"
            assert [heard.get_nowait().name for _ in range(2)] == ["entry", "outcome"]
            assert [told.entry async for told in client.follow(event_id)] == [1, 2, None]
            assert [told.entry async for told in client.follow(event_id, after=1)] == [2, None]

    run(test)


def test_a_disconnected_client_does_not_end_its_turn_and_a_cancel_does(
    home: Home, puppet: Puppet
) -> None:
    _, opened = home

    async def test() -> None:
        async with opened() as client:
            turn = asyncio.create_task(client.run("hi", event_id="e1", conversation="c1"))
            await asked(puppet)
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)
            assert (await client.status("e1"))["status"] == "running"
            with pytest.raises(Busy) as busy:
                await client.run("me, too", conversation="c1", on_busy="reject")
            assert (busy.value.code, busy.value.status) == ("busy", 409)  # type: ignore[attr-defined]
            (found,) = [one async for one in client.conversations()]
            assert await client.cancel(found["id"])
            assert (await client.status("e1", wait_s=WAIT_S))["outcome"] == "interrupted"
            assert not await client.cancel(found["id"])

    run(test)


@tool
async def weather(city: str, days: int = 1) -> dict[str, Any]:
    """Says it."""
    if city == "Atlantis":
        raise ValueError("it has sunk")
    return {"city": city, "days": days}


@tool(asks=True)
def order(what: str) -> str:
    """Orders it."""
    return what


def test_local_tools_are_called_in_the_client(home: Home, puppet: Puppet) -> None:
    _, opened = home

    def calls(*inputs: dict[str, Any]) -> list[ToolCall]:
        return [ToolCall(f"c{at}", "weather", one) for at, one in enumerate(inputs)]

    async def test() -> None:
        async with opened() as client:
            puppet.stops(*calls({"city": "Graz"}, {"city": "Atlantis"}, {"town": "Graz"}))
            puppet.stops(ToolCall("c9", "weather", {"city": "Linz", "days": 2}))
            puppet.stops("Sunny.")
            done = await client.run("weather?", tools=[weather])
            assert done.reply == "Sunny."
            said = [one["message"] async for one in client.entries(done.conversation_id)]
            results = [
                (part["content"], part.get("is_error", False))
                for one in said
                for part in one["parts"]
                if part["type"] == "tool_result"
            ]
            assert results == [
                ('{"city": "Graz", "days": 1}', False),
                ("Not done: weather failed: ValueError: it has sunk.", True),
                ("Not done: city: is required.", True),
                ('{"city": "Linz", "days": 2}', False),
            ]
            with pytest.raises(Refused, match="order"):
                await client.run("tea", tools=[order])

    run(test)


def test_the_client_lists_and_answers_pending_calls(home: Home, puppet: Puppet) -> None:
    harness, opened = home
    harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
    other = {"name": "lamp", "description": "x", "inputSchema": {"type": "object"}}
    harness.agents.patch("assistant", {"config": {"tools": [other]}})

    async def test() -> None:
        async with opened() as client:
            mine, lamp = (
                ToolCall("c1", "weather", {"city": "Graz"}),
                ToolCall("c2", "lamp", {}),
            )
            puppet.stops(mine, TEA, lamp)
            waiting = await client.run("do it", conversation="c1", tools=[weather])
            place = waiting.conversation_id
            assert [one.id for one in waiting.pending] == ["w1", "c2"]
            denied = await client.approve(place, "w1", is_allowed=False, reason="no tea")
            assert [one.asked.waits_for for one in denied.pending] == ["result"]
            assert await client.pending(place) == denied.pending
            puppet.stops(ToolCall("c3", "weather", {"city": "Linz"}))
            puppet.stops("All done.")
            lit = ToolAnswer(call_id="c2", content="lit")
            done = await client.answer(place, lit, event_id="a1", tools=[weather])
            assert done.reply == "All done."
            assert (await client.answer(place, lit, event_id="a1")) == done
            with pytest.raises(NotFound):
                await client.approve(place)
            with pytest.raises(NotFound):
                await client.answer(place, Approval(call_id="w1", is_allowed=True))

    run(test)


def test_the_client_lists_reads_forks_and_deletes_conversations(home: Home, puppet: Puppet) -> None:
    _, opened = home

    async def test() -> None:
        async with opened() as client:
            for number in range(3):
                puppet.stops(f"answer {number}")
                await client.run("hi", conversation=f"c{number}")
            found = [one async for one in client.conversations("assistant")]
            assert [one["key"] for one in found] == ["c2", "c1", "c0"]
            place = found[0]["id"]
            numbers = [one["entry"] async for one in client.entries(place, newest=True)]
            assert numbers == [2, 1]
            assert [one["entry"] async for one in client.entries(place, after=1)] == [2]
            made = await client.fork_conversation(place, "again", at=1)
            assert (made["key"], made["entries"]) == ("again", 1)
            assert (await client.reset_conversation(place))["first"] == 3
            await client.delete_conversation(place)
            with pytest.raises(NotFound):
                await client.conversation(place)

    run(test)


def test_the_client_fetches_every_page_of_a_listing(home: Home, puppet: Puppet) -> None:
    harness, opened = home
    puppet.stops("one")
    conversation = harness.run("hi", conversation="c1").conversation_id
    found = harness.conversation(conversation)
    for number in range(60):
        harness.fork_conversation(found, f"f{number}")

    async def test() -> None:
        async with opened() as client:
            assert len([one async for one in client.conversations()]) == 61

    run(test)


def test_the_client_creates_reads_changes_and_deletes_records(home: Home, puppet: Puppet) -> None:
    harness, opened = home

    async def test() -> None:
        async with opened() as client:
            journal = await client.workspaces.create("my #1 journal", description="Days.")
            assert journal == await client.workspaces.open_or_create("my #1 journal")
            spare = await client.agents.open_or_create("spare", workspaces=[journal])
            assert spare == await client.agents.open_or_create("spare", model="demo")
            await client.agents.delete(spare)
            helper = await client.agents.create("helper", workspaces=[journal], model="demo")
            assert helper == harness.agents.get("helper").as_json()
            (mount,) = helper["config"]["workspaces"]
            assert mount == {"name": "my--1-journal", "workspaceId": journal["id"]}
            bare = await client.agents.create("bare", sandbox=None)
            assert "sandbox" not in bare["config"]
            puppet.stops("hello")
            assert (await client.run("hi", agent=helper)).reply == "hello"
            with pytest.raises(Conflict, match="helper"):
                await client.workspaces.delete(journal)
            await client.workspaces.delete("my #1 journal", force=True)
            changed = await client.agents.patch("helper", {"config": {"workspaces": None}})
            assert "workspaces" not in changed["config"]
            await client.agents.delete(helper)
            assert [one["name"] for one in await client.agents.list()] == ["assistant", "bare"]
            assert (await client.users.create("ada", externalId="a 1"))["externalId"] == "a 1"

    run(test)


def test_the_client_reads_writes_and_deletes_files_with_preconditions(home: Home) -> None:
    _, opened = home

    async def test() -> None:
        async with opened() as client:
            path = "notes/a b#ü.md"
            made = await client.write("notes", path, "one\n", expect=ABSENT)
            with pytest.raises(Conflict):
                await client.write("notes", path, "two\n", expect=ABSENT)
            await client.write("notes", path, b"two\n", expect=made["version"])
            with pytest.raises(Conflict):
                await client.write("notes", path, "three\n", expect=made["version"])
            file = await client.read("notes", path)
            assert (file.path, file.text) == (path, "two\n")
            assert (await client.read("notes", path, revision=made["revision"])).text == "one\n"
            listed = await client.files("notes", "notes/a")
            assert [one["version"] for one in listed] == [file.version]
            with pytest.raises(Conflict):
                await client.delete("notes", path, expect=made["version"])
            await client.delete("notes", path, expect=file.version)
            with pytest.raises(NotFound):
                await client.read("notes", path)
            for outside in ("../x", "a/../b", "/etc/passwd"):
                with pytest.raises(Refused):
                    await client.read("notes", outside)

    run(test)


def test_the_client_raises_the_same_failures_as_the_harness_in_process(
    home: Home, puppet: Puppet
) -> None:
    harness, opened = home
    harness.rooms.account.patch({"config": {"limits": {"turnsPerMinute": 1}}})

    async def refused(kind: type[Failure], asked: Awaitable[Any]) -> ServerFailure:
        with pytest.raises(kind) as caught:
            await asked
        assert isinstance(caught.value, ServerFailure)
        return caught.value

    async def test() -> None:
        async with opened() as client, opened("wh_wrong") as stranger:
            assert (await refused(NotFound, client.run("hi", agent="nobody"))).status == 404
            assert (await refused(Unauthorized, stranger.agents.list())).status == 401
            taken = await refused(AlreadyExists, client.workspaces.create("notes"))
            assert (taken.status, taken.code) == (409, "already_exists")
            blank = await refused(Refused, client.run("  "))
            assert (blank.status, blank.field) == (400, "content")
            await refused(Refused, client.run("\ud800"))
            puppet.stops("one")
            await client.run("one", event_id="e1")
            spent = await refused(Exhausted, client.run("two"))
            assert spent.status == 429
            assert spent.retry_after_s is not None and 1 <= spent.retry_after_s <= 60
            another = await refused(Conflict, client.run("one!", event_id="e1", conversation="c"))
            assert "a different body" in str(another)

    run(test)


def test_an_event_returned_at_its_turn_raises_the_reason_in_the_client(
    home: Home, puppet: Puppet
) -> None:
    harness, opened = home

    async def test() -> None:
        async with opened() as client:
            first = asyncio.create_task(client.run("one", conversation="c1"))
            await asked(puppet)
            queued: asyncio.Queue[StreamEvent] = asyncio.Queue()
            second = asyncio.create_task(
                client.run("two", conversation="c1", hear=queued.put_nowait)
            )
            assert (await queued.get()).name == "queued"
            limits = {"config": {"limits": {"dollarsPerDay": 0}}}
            await asyncio.to_thread(harness.rooms.account.patch, limits)
            puppet.stops("one")
            assert (await first).reply == "one"
            with pytest.raises(Exhausted, match="dollarsPerDay"):
                await second

    run(test)


def test_a_client_with_an_account_key_acts_for_a_user(home: Home, puppet: Puppet) -> None:
    _, opened = home

    async def test() -> None:
        async with opened(user="ada ü") as ada, opened() as owner:
            puppet.stops("for ada")
            done = await ada.run("hi", conversation="c1")
            with pytest.raises(NotFound):
                await owner.conversation(done.conversation_id)

    run(test)


def test_an_app_in_the_same_process_can_authenticate_requests_by_its_own_function(
    tmp_path: Path, puppet: Puppet
) -> None:
    with Harness.open(tmp_path / "home", model=puppet) as harness:

        async def authenticate(request: HttpRequest) -> Principal | None:
            return harness.rooms.principal if request.headers["x-harness-user"] == "me" else None

        app = create_app(harness, authenticate=authenticate)

        async def test() -> None:
            async with Client.within(app, user="me") as me:
                puppet.stops("hello")
                assert (await me.run("hi")).reply == "hello"
                async with Client.within(app, user="you") as you:
                    with pytest.raises(Unauthorized):
                        await you.run("hi")

        run(test)


def test_a_client_keeps_following_its_turn_when_the_server_is_killed_and_replaced(
    tmp_path: Path,
) -> None:
    with serving() as provider:
        provider.answers(
            says(text("Let me look."), tool_use("toolu_1", "read", '{"path": "MEMORY.md"}')),
            breaks_off(text("It ", "says"), ending=[hold := Hold()]),
            says(text("It is empty.")),
        )
        place = home_at(tmp_path / "home", ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=provider.url)
        heard: list[StreamEvent] = []

        async def test(server: Server, stack: ExitStack) -> None:
            port = int(server.url.rpartition(":")[2])
            async with Client(server.url, server.key) as client:
                turn = asyncio.create_task(client.run("hi", hear=heard.append))
                assert await asyncio.to_thread(hold.reached.wait, WAIT_S)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(stack.enter_context, place.served(port))
                assert (await turn).reply == "It is empty."

        with ExitStack() as stack:
            server = stack.enter_context(place.served())
            run(lambda: test(server, stack))
        assert_kept(provider)
    assert [told.entry for told in heard if told.entry] == [1, 2, 3, 4]
    assert [told.name for told in heard].count("outcome") == 1


def assert_kept(provider: MessagesServer) -> None:
    assert provider.broken_rules == []
    assert provider.left_unsaid == 0


def test_the_client_gives_up_on_an_unreachable_server(tmp_path: Path) -> None:
    async def test() -> None:
        async with Client("http://127.0.0.1:1", "wh_x", patience_s=0.2) as client:
            with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
                await client.run("hi")
            with pytest.raises(Unavailable):
                await client.agents.list()

    run(test)


ANSWERS: dict[str, bytes] = {
    "nothing": b"",
    "a status of somebody else's": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\n<h1>\n",
    "an end before anything": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "a request to come back": b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n"
    b"event: reconnect\ndata: {}\n\n   \n",
    "the same, and more": b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n"
    b"event: reconnect\ndata: {}\n\nevent: outcome\ndata: {}\n\n   \n",
}


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[Client]:
    """A client of a server that says these one after the other, and the last one for ever."""
    left = list(answers)

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(left.pop(0) if left[1:] else left[0])
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answered, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(f"http://127.0.0.1:{port}", "wh_x", patience_s=0.25) as client:
            yield client


def telling(events: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + events


@pytest.mark.parametrize("name", ANSWERS)
def test_the_client_gives_up_on_a_server_that_sends_no_events(name: str) -> None:
    async def test() -> None:
        async with answering(ANSWERS[name]) as client:
            with pytest.raises(Unavailable):
                await client.run("hi")

    run(test)


@pytest.mark.parametrize("sign", [b": still there\n\n", b'event: text\ndata: {"text": "a"}\n\n'])
def test_the_client_keeps_waiting_for_a_server_that_sends_signs_of_life(sign: bytes) -> None:
    deleted = b'event: refused\ndata: {"error": {"code": "not_found", "message": "gone"}}\n\n'

    async def test() -> None:
        async with answering(*[telling(sign)] * 6, telling(deleted)) as client:
            with pytest.raises(NotFound, match="gone"):
                await client.run("hi")

    run(test)


@asynccontextmanager
async def streaming(*pieces: bytes) -> AsyncIterator[AsyncIterator[StreamEvent]]:
    """What a client makes of a stream that arrives in these pieces."""

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            await asyncio.start_server(answered, "127.0.0.1", 0)
        )
        connection = Connection(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", {})
        stack.push_async_callback(connection.close)
        yield await stack.enter_async_context(connection.stream("GET", "/"))


def test_the_client_reads_server_sent_events_split_at_any_byte() -> None:
    stream = (
        b"retry: 1000\n\n: still there\n\nevent: entry\nid: 7\ndata: "
        + '{"a":"ü\u2028\x85"}'.encode()
        + b"\n\nevent:text\ndata:{}\n\n"
    )
    expected = [("sign", {}, None), ("entry", {"a": "ü\u2028\x85"}, 7), ("text", {}, None)]

    async def test() -> None:
        for size in (1, 3, 16, len(stream)):
            pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
            async with streaming(*pieces) as told:
                assert [(one.name, one.data, one.entry) async for one in told] == expected

    run(test)


class Toy:
    """An app that notes what becomes of it."""

    def __init__(self, starts: bool = True) -> None:
        self.seen: list[str] = []
        self._starts = starts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self._stream(receive, send)
            return
        for _ in range(2):
            kind = (await receive())["type"]
            await asyncio.sleep(0)
            self.seen.append(kind)
            outcome = "complete" if self._starts else "failed"
            await send({"type": f"{kind}.{outcome}"})

    async def _stream(self, receive: Any, send: Any) -> None:
        self.seen.append("asked")
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                data = b"event: text\ndata: {}\n\n"
                await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self.seen.append("left")


def test_a_client_within_an_app_starts_the_app_closes_its_streams_and_shuts_the_app_down() -> None:
    toy = Toy()

    async def test() -> None:
        async with Client.within(toy) as client:
            async with aclosing(client.follow("e1")) as telling:
                assert (await anext(telling)).name == "text"
            assert toy.seen == ["lifespan.startup", "asked", "left"]

    run(test)
    assert toy.seen[3:] == ["lifespan.shutdown"]


def test_a_client_within_an_app_that_fails_to_start_raises_unavailable() -> None:
    async def test() -> None:
        async with Client.within(Toy(starts=False)) as client:
            with pytest.raises(Unavailable):
                await client.agents.list()

    run(test)
