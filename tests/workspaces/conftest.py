from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from workspaces.accounts.account import default_owner
from workspaces.clock import ManualClock
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.revision import Author
from workspaces.storage.in_memory import MemoryRecords
from workspaces.workspace.workspace import Workspace

AGENT = Author("helper", "agent_1", "turn", {"Agent": "agent_1", "Conversation": "conv_1 c1"})
CALLER = Author("caller", "usr_2", "api")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


@pytest.fixture
def open_workspaces(home: Home, clock: ManualClock) -> Callable[[], Workspaces]:
    """A second call is a second process: nothing shared but the disk and the records."""
    records = MemoryRecords(clock)

    def opened() -> Workspaces:
        owner = default_owner(records, clock)
        return Workspaces(owner, home, records, clock, template=lambda _: {})

    return opened


@pytest.fixture
def workspace(open_workspaces: Callable[[], Workspaces]) -> Workspace:
    return open_workspaces().create("notes")


@pytest.fixture
def root(home: Home, workspace: Workspace) -> Path:
    """The workspace's directory, as an editor or a shell sees it."""
    return home.tree(workspace.namespace)
