"""What a home is born with: one sandbox, one workspace, one agent that mounts it writable.

Born once: what its owner deletes later does not come back. Each step looks before it makes, so a
birth that was interrupted goes on, and two processes that are first at the same instant both succeed.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.wiring import Rooms
from workspaces.errors import AlreadyExists
from workspaces.expect import ANY
from workspaces.records import Key, Put


def be_born(rooms: Rooms) -> None:
    mark = Key("accounts", f"born:{rooms.principal.account_id}")
    if rooms.records.get(mark) is not None:
        return
    settings = rooms.settings
    _make(lambda: rooms.sandboxes.create({"name": "default"}))
    _make(lambda: rooms.workspaces.create(settings.default_workspace))
    _make(
        lambda: rooms.agents.create(settings.default_agent, workspaces=[settings.default_workspace])
    )
    rooms.records.write(Put(mark, {}, expect=ANY))


def _make(make: Callable[[], object]) -> None:
    try:
        make()
    except AlreadyExists:
        return
