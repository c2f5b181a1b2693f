"""The defaults of a new home: one sandbox, one workspace, one agent that mounts the workspace writable.

They are created once. A default that the owner deletes later does not come back. Each step looks before it
creates. So an interrupted start can go on, and two processes that start at the same moment both succeed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from harness.bootstrap.composition import Application
from harness.bootstrap.local_files import cards_mark, defaults_mark
from harness.bootstrap.services.principal_services import PrincipalServices
from workspaces.conditions import ANY
from workspaces.errors import AlreadyExists, Failure
from workspaces.storage.records import Key, Put


def create_defaults(services: PrincipalServices) -> None:
    """Create the defaults, unless they were created before."""
    if services.records.get(_mark(services)) is not None:
        return
    from harness.learning.pass_records import told_key

    settings = services.settings
    _make(lambda: services.sandboxes.add({"name": "default"}))
    _make(lambda: services.workspaces.create(settings.default_workspace))
    _make(
        lambda: services.agents.create(
            settings.default_agent, workspaces=[settings.default_workspace]
        )
    )
    told = told_key(services.principal.account_id)  # the guides of a new home tell of learning
    services.records.write(Put(_mark(services), {}, expect=ANY), Put(told, {}, expect=ANY))


def write_missing_cards(application: Application) -> None:
    """Write the cards of an old home, once. A disk that does not take them keeps nobody from reading."""
    mark = cards_mark(application.settings.home)
    if mark.exists():
        return
    with suppress(Failure, OSError):
        mark.parent.mkdir(mode=0o700, exist_ok=True)
        for account in application.accounts.list():
            owner = application.accounts.owner(account)
            application.rooms(owner).workspaces.write_missing_cards()
        mark.touch(0o600)


def adopt_joined_account(services: PrincipalServices) -> None:
    """Create the defaults of a machine that joined an account.

    The account has its defaults already. Only the sandbox belongs to this machine.
    """
    _make(lambda: services.sandboxes.add({"name": "default"}))
    services.records.write(Put(_mark(services), {}, expect=ANY))


def _mark(services: PrincipalServices) -> Key:
    return defaults_mark(services.principal.account_id)


def _make(make: Callable[[], object]) -> None:
    try:
        make()
    except AlreadyExists:
        return
