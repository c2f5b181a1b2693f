"""Several machines of one account, each with a home and records of its own, on one place."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import Harness
from harness.bootstrap.composition import wire
from harness.bootstrap.first_start import create_defaults
from harness.bootstrap.join import Joined, join
from harness.models.port import Model
from harness.runtime.settings import read_settings
from harness.sandboxes.none import NoSandbox
from harness.sync.registry_sync import SyncResult
from workspaces.clock import ManualClock
from workspaces.errors import Failure
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.remote.bucket import SharedBucket
from workspaces.remote.registry import Registry, RegistryKind, StoredEntry

LOCATION = "s3://bucket/prefix"


class Laptop:
    """One machine. Its clock goes with every look at it, and only then."""

    def __init__(self, home: Path, prefix: Any, clock: ManualClock, *, joins: bool = True) -> None:
        """`prefix`: its wire to the place. The first one of an account does not join."""
        self.home, self.prefix, self.clock = home, prefix, clock
        self.joined: Joined | None = self.join() if joins else None
        self.again()

    def place(self) -> SharedBucket:
        return SharedBucket(LOCATION, self.prefix)

    def join(self, account: str | None = None) -> Joined:
        return join(self.home, LOCATION, account=account, place=self.place())

    def again(self, model: Model | None = None) -> None:
        """As a new process on the same home, with this model for every agent."""
        settings = read_settings(self.home, environment={})
        sandbox = NoSandbox("not in this test")
        house = wire(settings, place=self.place(), sandbox=sandbox, clock=self.clock, model=model)
        owner = house.owner()
        create_defaults(house.rooms(owner))
        self.harness = Harness(house, owner)

    @property
    def workspaces(self) -> Workspaces:
        return self.harness.workspaces

    def home_paths(self) -> Home:
        return self.harness.settings.home

    @property
    def roster(self) -> Registry:
        return self.place().registry(self.harness.rooms.principal.account_id)

    def entry(self, kind: RegistryKind, entry_id: str) -> StoredEntry:
        found = self.roster.read(kind, entry_id)
        assert found is not None
        return found

    def follow(self) -> SyncResult:
        assert self.harness.following is not None
        self.clock.advance(1)
        return self.harness.following.sync()

    def attach(self, reference: str) -> str:
        assert self.harness.following is not None
        workspace_id, _ = self.harness.following.attach(reference)
        self.sync()
        return workspace_id

    def sync(self) -> SyncResult:
        """As `harness sync` does."""
        followed = self.follow()
        for record in self.workspaces.list(private=True):
            if record.is_shared:
                self.workspaces.sync(record.id).run(accept_deletions=True)
        return followed

    def sync_if_possible(self) -> None:
        with suppress(Failure):
            self.sync()

    def names(self) -> set[str]:
        return {record.name for record in self.workspaces.list()}

    def put(self, workspace: str, path: str, text: str) -> None:
        """As an editor saves."""
        file = self.workspaces.get(workspace).root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def texts(self, workspace: str) -> dict[str, str]:
        root = self.workspaces.get(workspace).root
        files = sorted(file for file in root.rglob("*") if file.is_file())
        return {file.relative_to(root).as_posix(): file.read_text() for file in files}
