"""What a home is born with: one sandbox, one workspace, one agent that mounts it writable.

Born once: what its owner deletes later does not come back. Each step looks before it makes, so a
birth that was interrupted goes on, and two processes that are first at the same instant both succeed.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.bootstrap.composition import PrincipalServices
from workspaces.conditions import ANY
from workspaces.errors import AlreadyExists
from workspaces.storage.records import Key, Put


def create_defaults(rooms: PrincipalServices) -> None:
    if rooms.records.get(_mark(rooms)) is not None:
        return
    settings = rooms.settings
    _make(lambda: rooms.sandboxes.create({"name": "default"}))
    _make(lambda: rooms.workspaces.create(settings.default_workspace))
    _make(
        lambda: rooms.agents.create(settings.default_agent, workspaces=[settings.default_workspace])
    )
    rooms.records.write(Put(_mark(rooms), {}, expect=ANY))


def adopt_joined_account(rooms: PrincipalServices) -> None:
    """As another machine of an account that has what it was born with: only the sandbox is this machine's."""
    _make(lambda: rooms.sandboxes.create({"name": "default"}))
    rooms.records.write(Put(_mark(rooms), {}, expect=ANY))


def _mark(rooms: PrincipalServices) -> Key:
    return Key("accounts", f"born:{rooms.principal.account_id}")


def _make(make: Callable[[], object]) -> None:
    try:
        make()
    except AlreadyExists:
        return
