"""Passes that are killed on the way: by themselves, at every step, and with a provider that counts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from harness.bootstrap.composition import Application, wire
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.conversations.conversation import Conversation
from harness.learning.learner import PassReport, PassWish
from harness.messages.message import Message
from harness.messages.model_request import ModelRequest, Reply, Usage
from harness.messages.progress import Emit
from harness.runtime.settings import read_settings
from harness.sandboxes.none import NoSandbox
from tests.harness.learning.saying import block, fact, saves
from tests.harness.talk import Deadly, forked
from workspaces.clock import SystemClock


class CountingModel:
    """A model that notes each request in a file, which a kill does not undo."""

    name = "counting"

    def __init__(self, file: Path, deadly: Deadly | None = None) -> None:
        self._file = file
        self._deadly = deadly

    async def reply(self, request: ModelRequest, *, output_tokens_max: int, emit: Emit) -> Reply:
        del output_tokens_max, emit
        with self._file.open("a") as file:
            file.write("asked\n")
        if self._deadly is not None:
            self._deadly.point()  # the answer is lost
        wanted = request.tools[0].schema["properties"]
        facts = (fact(),) if "facts" in wanted else ()
        parts = saves(*facts, blocks=(block("- runs the night shift"),))
        return Reply(Message("assistant", tuple(parts)), Usage(100, 10))


def services(home: Path, asked: Path, die_at: int | None = None) -> PrincipalServices:
    """The services of a home, whose process dies at this point."""
    settings = read_settings(home, environment=dict(os.environ))
    whole = wire(settings)
    deadly = Deadly(whole.records)
    house = Application(
        settings,
        deadly,
        SystemClock(),
        place=None,
        large=whole.large,
        model=CountingModel(asked, deadly),
        embedder=None,
        sandbox=NoSandbox("not here"),
    )
    rooms = house.rooms(house.owner())
    deadly.passed, deadly.die_at = 0, die_at
    return rooms


def learned(rooms: PrincipalServices, conversation_id: str) -> PassReport:
    conversation: Conversation = rooms.conversations.get(conversation_id)
    return asyncio.run(rooms.learning.read(conversation, PassWish()))


def killed_at(home: Path, asked: Path, conversation_id: str, point: int) -> bool:
    """Return True if the pass was killed, and False if it ended before this point."""
    return not forked(lambda: _learn(home, asked, conversation_id, point))


def _learn(home: Path, asked: Path, conversation_id: str, point: int) -> None:
    learned(services(home, asked, point), conversation_id)
