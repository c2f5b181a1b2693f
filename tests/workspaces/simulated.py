"""One machine of the simulation: the product on a disk in memory, its wire to the store, and how it dies."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

from tests.workspaces.memory_history import MemoryHistory
from workspaces.clock import ManualClock
from workspaces.coordination.writer_lock import Intent
from workspaces.errors import Failure, NotFound, Refused, Unavailable
from workspaces.history.git.objects import ObjectId, blob_id
from workspaces.ids import Namespace, WorkspaceId
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.storage.blobs import Blob, Stat, Token
from workspaces.sync.baseline import Baseline
from workspaces.sync.engine import Sync
from workspaces.sync.history_head import HistoryHead
from workspaces.sync.history_head import parse_head as parsed_head
from workspaces.sync.outbox import Outbox
from workspaces.sync.replication import Replication
from workspaces.timestamp import Stamp
from workspaces.tree.in_memory import Inode, MemoryTree
from workspaces.workspace.workspace import Workspace
from workspaces.workspace_record import WorkspaceConfig, WorkspaceRecord

if TYPE_CHECKING:
    from tests.workspaces.simulation import World

STAMP = Stamp("2026-01-01T00:00:00.000000Z")
RECORD = WorkspaceRecord(
    id=WorkspaceId("ws_1"),
    name="notes",
    config=WorkspaceConfig(),
    created_at=STAMP,
    updated_at=STAMP,
)
parse_head = lru_cache(1024)(parsed_head)
"""The same bytes are looked at with every write."""

PERSON = Author("person", "usr_1", "edit")
TURNS_MAX = 1_000
"""So often two who share a lock come to their turn before it is said that neither ever will."""


class Crash(BaseException):
    """The machine is dead: no handler of the product sees anything of it."""


def at_each_call(kind: type, *names: str) -> type:
    """The class with an I/O before and after each of these methods."""

    def hooked(name: str) -> Callable[..., Any]:
        plain = getattr(kind, name)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            self.io()
            answer = plain(self, *args, **kwargs)
            self.io()
            return answer

        return call

    return type(kind.__name__, (kind,), {name: hooked(name) for name in names})


class _Shelled(MemoryTree):
    """A shell opens a file at the worst moment: right before it is moved away."""

    about_to_go: Callable[[str], None]

    def has_place(self, path: str) -> bool:
        try:
            self._check_place(path)
        except Refused:
            return False
        return True

    def exchange(self, label: Any, path: WorkspacePath) -> None:
        self.about_to_go(path)
        super().exchange(label, path)

    def take(self, path: WorkspacePath, label: Any) -> None:
        self.about_to_go(path)
        super().take(path, label)


_STAGING = ("stage", "confirm", "unstage")
_MOVES = (*_STAGING, "prepare", "exchange", "enter", "take", "look", "relabel", "discard", "flush")
Tree = at_each_call(_Shelled, "examine", "write", "delete", *_MOVES)
History = at_each_call(MemoryHistory, "record", "follow", "receive", "keep")


class _Empty(Baseline):
    """Made once and copied: most worlds are over before as many rows are written as tables are made."""

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(":memory:", isolation_level=None)
        database.deserialize(_empty_rows())
        return database


@cache
def _empty_rows() -> bytes:
    rows = Baseline(None)
    with rows._connection() as database:
        return database.serialize()


Rows = at_each_call(_Empty, "take", "tree", "note")


class Store:
    """The shared store as one machine reaches it."""

    def __init__(self, machine: Machine, *, of_history: bool = False) -> None:
        self._machine = machine
        self._world = machine.world
        self._store = self._world.packs if of_history else self._world.store
        self._stored = set[ObjectId]() if of_history else self._world.stored

    def read(self, name: str) -> Blob:
        return self._asked(lambda: self._store.read(name))

    def read_if_changed(self, name: str, since: Token) -> Blob | None:
        return self._asked(lambda: self._store.read_if_changed(name, since))

    def write(self, name: str, data: bytes, *, expect: Any, meta: Any = None) -> Token:
        def put() -> Token:
            before = self._head_there() if name == "head.json" else None
            token = self._store.write(name, data, expect=expect, meta=meta or {})
            self._stored.add(blob_id(data))
            if name == "head.json":
                self._check_head(before, parse_head(data))
            return token

        return self._asked(put, written=name)

    def delete(self, name: str, *, expect: Any) -> None:
        self._asked(lambda: self._store.delete(name, expect=expect))

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        return iter(self._asked(lambda: list(self._store.scan(prefix))))

    def _head_there(self) -> HistoryHead | None:
        with suppress(NotFound):
            return parse_head(self._store.read("head.json").data)
        return None

    def _check_head(self, before: HistoryHead | None, head: HistoryHead) -> None:
        """It only moves on, and what it names was there before."""
        history = self._machine.history
        is_ours = before is None or before.tip in history.present_ids(head.tip)
        assert is_ours, "the head went back"
        files = set(history.tree(head.tip).values())
        there = self._world.stored | self._world.by_hand
        assert files <= there, "the head names what was never there"
        assert all(f"{pack.name}.bundle" in self._store._blobs for pack in head.packs)

    def _asked(self, ask: Callable[[], Any], written: str = "") -> Any:
        self._machine.io()
        thrown = self._world.random() if self._world.is_wild else 1.0
        if thrown < 0.02:
            raise Unavailable("store", "no answer, nothing happened")
        answer = ask()
        self._machine.io()
        if thrown < 0.04:
            if written == "MEMORY.md":
                self._world.may_come_back = True
            raise Unavailable("store", "the answer was lost")
        return answer


class Lock:
    """A lock file: who dies lets go of it, and the intent stays in it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.left_behind: Intent | None = None
        self.holder: Process | None = None

    @contextmanager
    def hold(self, who: str, *, wait_s: float = 0.0) -> Generator[Lock]:
        while self.holder is not None:
            self._machine.wait()
        me = getcurrent()
        self.holder = me.process
        try:
            yield self
            self._noted(None)
        finally:
            if me.life == me.process.life:
                self.holder = None

    def intend(self, author: Author, paths: Any) -> None:
        self._noted(Intent(author, None if paths is None else tuple(paths)))

    def fulfilled(self) -> None:
        self._noted(None)

    def _noted(self, intent: Intent | None) -> None:
        self._machine.io()
        self.left_behind = intent


class Sending(Outbox):
    """Who dies sends no more."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(None)
        self._machine = machine
        self.senders: list[Process] = []

    @contextmanager
    def sending(self) -> Generator[None]:
        me = getcurrent()
        self.senders.append(me.process)
        try:
            yield
        finally:
            if me.life == me.process.life:
                self.senders.remove(me.process)

    def wait(self) -> None:
        while self.senders:
            self._machine.wait()


class Skewed:
    """A machine's own clock: it goes as fast as the others, and shows something else."""

    def __init__(self, clock: ManualClock, ahead_s: float) -> None:
        self._clock = clock
        self._ahead = timedelta(seconds=ahead_s)

    def now(self) -> datetime:
        return self._clock.now() + self._ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def jump(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)


class Machine:
    """Its disk, and one or two processes that share it."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.clock = Skewed(world.clock, world.random() * world.skew_s)
        self.tree = Tree(self.clock, grain_s=0.5, identity=f"root {number}")
        self.history = History(self.clock)
        self.rows = Rows(None)
        self.tree.io = self.history.io = self.rows.io = self.io
        self.tree.about_to_go = self.open_by_a_shell
        self.lock = Lock(self)
        self.tree_lock = Lock(self)
        self.outbox = Sending(self)
        self.open: list[tuple[Inode, str]] = []
        """Descriptors of shells, and what each will write."""
        count = 2 if world.random() < 0.4 else 1
        self.processes = [Process(self, number) for number in range(count)]
        self._dead: list[greenlet] = []

    def io(self) -> None:
        me = getcurrent()
        if me is self.world.hub:
            return
        if me.life != me.process.life:
            raise Crash
        if not self.world.is_wild:
            return
        thrown = self.world.random()
        if thrown < self.world.crashes:
            self.die(me.process)
        if thrown < self.world.switches:
            self.wait()

    def wait(self) -> None:
        self.world.hub.switch()
        me = getcurrent()
        if me.life != me.process.life:
            raise Crash

    def die(self, process: Process) -> None:
        """One process, or all at once: the power is gone."""
        gone = [process] if self.world.random() < 0.5 else self.processes
        for one in gone:
            if one.running is not None and one is not process:
                self._dead.append(one.running)
            for lock in (self.lock, self.tree_lock):
                if lock.holder is one:
                    lock.holder = None
            if one in self.outbox.senders:
                self.outbox.senders.remove(one)
            one.start()
        raise Crash

    def bury(self) -> None:
        """Those who died in their sleep have no say in what others find."""
        for one in self._dead:
            one.throw(Crash)
        self._dead.clear()

    def pause(self, seconds: float) -> None:
        """The longest of all moments, and so the likeliest to die in."""
        self.io()
        self.write_what_is_open()
        if self.world.is_wild and self.world.crashes > 0 and self.world.random() < 0.2:
            self.die(getcurrent().process)
        self.world.clock.advance(seconds)
        self.io()

    def open_by_a_shell(self, path: str) -> None:
        if self.world.is_wild and path in self.tree.files and self.world.random() < 0.2:
            self.open.append((self.tree.files[path], self.world.line()))

    def write_what_is_open(self) -> None:
        for inode, line in self.open:
            self.append_to(inode, line)
        self.open.clear()

    def append_to(self, inode: Inode, line: str) -> None:
        if inode.number in self.world.taken_away:
            return
        self.tree.change(inode, inode.data + line.encode())
        self.world.written.add(line)

    def finish(self) -> None:
        """What was begun goes on to its end; who waits for another's lock gets it."""
        for _ in range(TURNS_MAX):
            busy = [process for process in self.processes if process.running is not None]
            if not busy:
                return
            for process in busy:
                process.go_on()
        raise AssertionError("they wait for each other")


class NoIndex:
    """Nothing is made of files and history here."""

    def empty(self) -> None:
        pass


class Process:
    """What it knows is gone when it dies; what is on the disk is not."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.machine = machine
        self.number = number
        self.life = 0
        self.start()

    def start(self) -> None:
        self.life += 1
        self.running: greenlet | None = None
        machine, clock = self.machine, self.machine.clock
        nonces = iter(range(10**9))
        self.workspace = Workspace(
            RECORD,
            Namespace("fs-1"),
            root=Path("/nowhere"),
            blobs=machine.tree,
            history=machine.history,
            lock=machine.lock,
            person=PERSON,
            clock=clock,
            origins=NoIndex(),
            file_origins=NoIndex(),
            recall=NoIndex,
            nonce=lambda: f"{self.number}-{self.life}-{next(nonces)}",
            protection=machine.world.protection,
        )
        self.sync = Sync(
            self.workspace,
            Store(machine),
            machine.rows,
            place=lambda: "store",
            alone=lambda: machine.tree_lock.hold("sync"),
            outbox=machine.outbox,
            pause=machine.pause,
            threads=1,
            replication=Replication(
                machine.history,
                Store(machine, of_history=True),
                machine.rows,
                now=lambda: clock.now().timestamp(),
                threads=1,
            ),
            clock=clock.monotonic,
        )
        self.workspace.share(self.sync)
        self.workspace.rewriting._pause = machine.pause

    def begin(self, work: Callable[[], None]) -> None:
        """Some work of the product's, as far as it comes before others go on."""

        def run(*_: Any) -> None:
            with suppress(Crash, Failure):
                work()

        self.running = greenlet(run, self.machine.world.hub)
        self.running.process, self.running.life = self, self.life
        self.go_on()

    def go_on(self) -> None:
        running = self.running
        if running is not None:
            running.switch()
            if running.dead and self.running is running:
                self.running = None
        self.machine.bury()
