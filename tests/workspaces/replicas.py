"""Machines that share workspaces: each has a home of its own; they share records and a place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from workspaces.accounts.account import default_owner
from workspaces.clock import Clock, SystemClock
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.blobs import NO_META, Blob, ErasedPast, Expect, Meta, PastData, Stat, Token
from workspaces.storage.in_memory import MemoryBlobs
from workspaces.storage.records import RecordStore
from workspaces.sync.engine import Sync
from workspaces.workspace.workspace import Workspace


class MemoryPrefix:
    """A place in memory, and what was asked of it."""

    def __init__(self, store: Any = None, prefix: str = "", asked: list[str] | None = None) -> None:
        self.store = MemoryBlobs() if store is None else store
        self._prefix = prefix
        self.asked = [] if asked is None else asked

    def read(self, name: str) -> Blob:
        self.asked.append(f"GET {name}")
        return self.store.read(self._prefix + name)

    def read_if_changed(self, name: str, since: Token) -> Blob | None:
        self.asked.append(f"GET {name}")
        return self.store.read_if_changed(self._prefix + name, since)

    def write(self, name: str, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        self.asked.append(f"PUT {name}")
        return self.store.write(self._prefix + name, data, expect=expect, meta=meta)

    def delete(self, name: str, *, expect: Expect) -> None:
        self.asked.append(f"DELETE {name}")
        self.store.delete(self._prefix + name, expect=expect)

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        self.asked.append("LIST")
        for stat in self.store.scan(self._prefix + prefix):
            yield Stat(stat.name.removeprefix(self._prefix), stat.size, stat.token)

    def walk(self, prefix: str = "", *, asked: Callable[[], None] = lambda: None) -> Iterator[Stat]:
        asked()
        return self.scan(prefix)

    def erase_past(self, is_erased: Callable[[str], bool]) -> ErasedPast:
        del is_erased
        return ErasedPast(0)

    def past_names(self) -> Iterator[str]:
        return iter(())

    def past_data(self) -> Iterator[PastData]:
        return iter(())

    def below(
        self, part: str, *, bytes_max: int | None = None, names_max: int | None = None
    ) -> MemoryPrefix:
        del bytes_max, names_max
        return MemoryPrefix(self.store, f"{self._prefix}{part}/", self.asked)

    def address(self) -> str:
        return "memory"

    def close(self) -> None:
        pass


class Replica:
    """The workspace `notes` as one machine has it."""

    def __init__(
        self,
        home: Path,
        records: RecordStore,
        place: SharedBucket,
        clock: Clock | None = None,
        *,
        revised: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.home = Home(home)
        self.home.prepare()
        clock = clock or SystemClock()
        owner = default_owner(records, clock)
        self.workspaces = Workspaces(
            owner,
            self.home,
            records,
            clock,
            lambda _: {},
            place=place,
            are_records_shared=True,
            revised=revised,
        )
        if not self.workspaces.list():
            self.workspaces.create("notes")
        self.workspace: Workspace = self.workspaces.get("notes")
        self.sync: Sync = self.workspaces.sync("notes")
        self.root = self.workspace.root

    def put(self, path: str, text: str) -> None:
        """As an editor saves."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def texts(self) -> dict[str, str]:
        return {
            file.relative_to(self.root).as_posix(): file.read_text()
            for file in sorted(self.root.rglob("*"))
            if file.is_file()
        }
