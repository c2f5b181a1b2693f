"""The client of memory blocks, and the examples of the document that it follows."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from harness import Harness
from harness.client import Client
from harness.client.memory import MemoryConflict
from harness.memory.blocks.condition import UNCONDITIONAL
from harness.web.app import create_app
from workspaces.errors import Conflict, NotFound, OverLimit, Refused

SOURCE = Path(__file__).parents[4] / "shared" / "seeds" / "blocks-and-recall.txt"
ROUTES = ("GET ", "PUT ", "POST ", "DELETE ")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Harness]:
    with Harness.open(tmp_path / "home") as harness:
        yield harness


@pytest.fixture
def during(home: Harness) -> Callable[[Callable[[Client], Awaitable[Any]]], Any]:
    """Run something with a client of the home."""
    _, key = home.rooms.keys.create()
    app = create_app(home)

    async def run(act: Callable[[Client], Awaitable[Any]]) -> Any:
        async with Client.within(app, key) as client:
            return await act(client)

    return lambda act: asyncio.run(run(act))


def put(home: Harness, block: Any, content: str, agent: str | None = None) -> None:
    place = home.blocks.place(block, agent=agent)
    home.blocks.put(place, content, UNCONDITIONAL, by=home.rooms.principal.author("api"))


def python_blocks(text: str) -> list[str]:
    """The pieces of Python in the document. It is plain text: a piece begins with a call of the client and
    goes on as long as the lines are Python."""
    lines = text.splitlines()
    found: list[str] = []
    at = 0
    while at < len(lines):
        if "= await client.memory." not in lines[at]:
            at += 1
            continue
        end = at + 1
        for stop in range(at + 1, min(len(lines), at + 20) + 1):
            if stop > at + 1 and lines[stop - 1].startswith(ROUTES):
                break
            if _is_python("\n".join(lines[at:stop])):
                end = stop
        found.append("\n".join(lines[at:end]))
        at = end
    return found


def _is_python(source: str) -> bool:
    try:
        compile(source, "document", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return False
    return True


@pytest.mark.skipif(not SOURCE.exists(), reason="the document does not lie beside this repository")
def test_the_python_blocks_of_the_source_document_run(
    home: Harness,
    during: Callable[[Callable[[Client], Awaitable[Any]]], Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocks = python_blocks(SOURCE.read_text())
    assert len(blocks) == 3
    for agent in ("agent_emails", "agent_records"):
        home.agents.create(agent)
    put(home, "core", "- Likes long reports")
    put(home, "core", "- Signs with initials", "agent_emails")
    put(home, "archival", "- Acme renewal: the price list was sent")
    put(home, "archival", "- Acme renewal: the contract is ready", "agent_records")

    async def run(client: Client) -> dict[str, Any]:
        names: dict[str, Any] = {"client": client}
        for source in blocks:
            code = compile(source, "document", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            pending = eval(code, names)
            if pending is not None:
                await cast("Awaitable[Any]", pending)
        return names

    names = during(run)
    assert {block.block_type for block in names["blocks"]} == {"core", "archival"}
    assert names["agent_core"].content == "- Signs with initials"
    assert names["core"].content == "- Likes long reports"
    assert isinstance(names["core"].updated_at, datetime)
    assert names["updated"].updated_at > names["core"].updated_at
    assert home.blocks.get(home.blocks.place("core")).content == names["updated"].content
    printed = capsys.readouterr().out.splitlines()
    assert {line.split(" ", 1)[0] for line in printed} == {"user", "agent"}
    assert len(printed) == len(names["matches"]) == 2


def test_a_conflict_carries_the_current_block(
    during: Callable[[Callable[[Client], Awaitable[Any]]], Any],
) -> None:
    async def act(client: Client) -> None:
        memory = client.memory
        with pytest.raises(NotFound):
            await memory.get("core")
        first = await memory.update("core", "- one", expected_updated_at=None)
        assert first.updated_at.tzinfo is not None
        second = await memory.update("core", "- two", expected_updated_at=first.updated_at)
        naive = second.updated_at.astimezone(UTC).replace(tzinfo=None).isoformat()
        third = await memory.update("core", "- three", expected_updated_at=naive)
        with pytest.raises(Conflict) as caught:
            await memory.update("core", "- four", expected_updated_at=first.updated_at)
        assert isinstance(caught.value, MemoryConflict)
        assert caught.value.block == third
        with pytest.raises(Conflict) as caught:
            await memory.delete("core", expected_updated_at=second.updated_at)
        assert cast(MemoryConflict, caught.value).block == third
        with pytest.raises(Conflict) as caught:
            await memory.update("archival", "- x", expected_updated_at=first.updated_at)
        assert cast(MemoryConflict, caught.value).block is None
        with pytest.raises(OverLimit):
            await memory.update("core", "x" * 4_001, expected_updated_at=third.updated_at)
        with pytest.raises(Refused):
            await memory.get("core", scope="user", agent_id="assistant")
        assert await memory.list(scope="all") == [third]
        assert await memory.recall() == []
        await memory.delete("core", expected_updated_at=third.updated_at.isoformat())
        assert await memory.list() == []

    during(act)


def test_a_memory_policy_reaches_the_turn(
    home: Harness, during: Callable[[Callable[[Client], Awaitable[Any]]], Any]
) -> None:
    put(home, "core", "- likes tea")

    async def act(client: Client) -> None:
        policy = {"include_user_core": False, "archival_mode": "auto"}
        await client.run("hello", conversation="c1", memory_policy=policy)
        with pytest.raises(Refused, match="archival"):
            await client.run("hello", memory_policy={"archival": "auto"})

    during(act)
    (turn,) = home.explain(home.conversation("c1")).turns()
    assert "blocks/user" not in turn.receipts[0].newest
