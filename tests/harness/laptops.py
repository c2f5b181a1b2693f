"""Several machines of one account, each with a home and records of its own, on one place."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from harness import Harness
from harness.birth import be_born
from harness.following import Followed
from harness.sandboxes.none import NoSandbox
from harness.settings import read_settings
from harness.wiring import wire
from tests.workspaces.replicas import MemoryPrefix
from workspaces.place import Place


class Laptop:
    """One machine. Asked for again with `again`, it is a new process on the same home."""

    def __init__(self, home: Path, prefix: MemoryPrefix) -> None:
        self.home, self.prefix = home, prefix
        self.harness = self._opened()

    def _opened(self) -> Harness:
        settings = read_settings(self.home, environment={})
        place = Place("memory:", self.prefix)
        house = wire(settings, place=place, sandbox=NoSandbox("not in this test"))
        owner = house.owner()
        be_born(house.rooms(owner))
        return Harness(house, owner)

    def again(self) -> Harness:
        self.harness = self._opened()
        return self.harness

    def follow(self) -> Followed:
        assert self.harness.following is not None
        return self.harness.following.follow()

    def put(self, workspace: str, path: str, text: str) -> None:
        """As an editor saves."""
        file = self.harness.workspaces.get(workspace).root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def text(self, workspace: str, path: str) -> str:
        return (self.harness.workspaces.get(workspace).root / path).read_text()
