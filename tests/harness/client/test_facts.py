from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness import Harness
from harness.client.client import Client
from harness.web.app import create_app
from workspaces.errors import Conflict, NotFound, Refused


def test_the_client_reads_and_writes_facts(tmp_path: Path) -> None:
    with Harness.open(tmp_path / "home") as harness:
        _, key = harness.rooms.keys.create()

        async def talk() -> None:
            async with Client.within(create_app(harness), key) as client:
                facts = client.workspace_facts("notes")
                made = await facts.put("tea", "Likes tea.", pinned=True)
                changed = await facts.change(made["id"], value="Green tea.")
                assert await facts.list(pinned=True) == [changed]
                assert await facts.list(source="auto") == []
                with pytest.raises(Conflict):
                    await facts.change(made["id"], expect=made["version"], value="x")
                with pytest.raises(Refused, match="importance"):
                    await facts.change(made["id"], importance=101)
                await facts.delete(made["id"])
                with pytest.raises(NotFound):
                    await facts.delete(made["id"])
                assert await client.agent_facts().list() == []

        asyncio.run(talk())
