"""An agent's bash and a caller of the API change one block at once: neither loses a line."""

from __future__ import annotations

import threading

from harness import Harness
from harness.memory.blocks.block import BlockConflict
from harness.memory.blocks.condition import UNCONDITIONAL, BlockCondition
from harness.messages.message import ToolCall
from harness.models.scripted import ScriptedModel
from tests.ordinary import reachable_directory
from workspaces.errors import Busy

COMMAND = "cat blocks/core.md > /dev/null; sleep 0.3; echo '- by bash' >> blocks/core.md"


def test_a_bash_edit_and_an_api_write_at_once_are_both_kept() -> None:
    call = ToolCall("t1", "bash", {"command": COMMAND, "workspace": "_user"})
    model = ScriptedModel((call,), "done")
    with (
        reachable_directory() as place_of_home,
        Harness.open(place_of_home / "home", model=model) as harness,
    ):
        assert harness.confinement().works
        agent = harness.agents.create("writer", workspaces=["notes"], private="rw")
        place, by = harness.blocks.place("core"), harness.rooms.principal.author("api")
        harness.blocks.put(place, "- first", UNCONDITIONAL, by=by)
        tries: list[str] = []

        def add() -> None:
            """As a client does: read, append, and begin again when somebody else was faster."""
            while len(tries) < 100:
                block = harness.blocks.get(place)
                condition = BlockCondition(block.updated_at)
                try:
                    harness.blocks.put(place, f"{block.content}\n- by the api", condition, by=by)
                except (BlockConflict, Busy) as refusal:
                    tries.append(refusal.code)
                else:
                    return

        client = threading.Timer(0.4, add)
        client.start()
        outcome = harness.run("Note it.", agent=agent)
        client.join()
        assert outcome.status == "done"
        lines = harness.blocks.get(place).content.splitlines()
        assert sorted(lines) == ["- by bash", "- by the api", "- first"]
        assert len(tries) < 100
