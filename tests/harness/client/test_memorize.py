from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.client.client import Client
from harness.memory.facts.facts import FactChange
from harness.web.app import create_app
from workspaces.errors import Conflict, NotFound, Refused

ID = "019b0000-0000-7000-8000-00000000dddd"
CONVERSATION = {
    "id": ID,
    "provider": "codex",
    "messages": [
        {"role": "user", "text": "The staging server is called heron."},
        {"role": "assistant", "text": "Noted."},
    ],
}


def test_the_client_memorizes_lists_and_deletes(tmp_path: Path) -> None:
    with Harness.open(tmp_path / "home") as harness:
        _, key = harness.rooms.keys.create()

        async def talk() -> None:
            async with Client.within(create_app(harness), key) as client:
                memories, told = client.memories, "Staging is heron."
                with pytest.raises(Refused, match="quote"):
                    await memories.memorize(told, conversation=CONVERSATION, quotes=["not said"])
                asked: Any = {
                    "quotes": ["called heron"],
                    "tags": ["deploy"],
                    "memory_key": "staging",
                }
                made = await memories.memorize(told, conversation=CONVERSATION, **asked)
                again = await memories.memorize(told, conversation=CONVERSATION, **asked)
                assert (made["status"], again["status"]) == ("created", "unchanged")
                memory = made["memory"]
                assert await memories.get("memorize:staging") == memory
                page = await memories.list(tags="deploy", per_page=1)
                assert (page["data"], page["meta"]["total"]) == ([memory], 1)
                archives = (await memories.conversations(provider="codex"))["data"]
                assert [one["conversation_id"] for one in archives] == [ID]
                shown = await memories.conversation(archives[0]["id"], around=1, limit=1)
                assert [one["text"] for one in shown["messages"]] == [
                    "The staging server is called heron."
                ]
                facts = harness.facts.of_workspace(memory["workspace"])
                facts.change(memory["id"], FactChange("A stork.", adopts=True))
                with pytest.raises(Conflict):
                    changed: Any = {**asked, "tags": ["other"]}
                    await memories.memorize(told, conversation=ID, **changed)
                await memories.delete(memory["id"])
                with pytest.raises(NotFound):
                    await memories.get(memory["id"])
                await memories.delete_conversation(archives[0]["id"])
                assert (await memories.conversations())["data"] == []

        asyncio.run(talk())
