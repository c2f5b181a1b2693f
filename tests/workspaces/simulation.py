"""Several machines, one store, and everything that can go wrong between them, from one seed.

What runs is the product: `Workspace`, `TreeScan`, `Swaps`, `Baseline`, `Sync`. What is given to it is in
memory: the live tree, the store, the history, the lock and the clock. At each of their calls the seed
decides whether the machine dies, the answer is lost, or others go on first; each machine's sync is a
greenlet, so that any two of them can be interleaved at every call.

People write lines that never come twice. At the end everyone syncs until nothing happens any more. Then
all trees and the store hold the same files (nothing has diverged), and every line that nobody has taken
away on purpose is in them (nothing is lost); whatever was in the store is in a revision.

One thing is not claimed: what one person moves back to where another has moved it away from. To a sync of
paths a move is a deletion and a new file. Who moves a file away and back has changed nothing there, and has
deleted it where it was meanwhile; who has moved it to that place has changed the first and kept the second.
Each path is then right by itself, and the lines are in none of them: they are in the history (0140).
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from hashlib import md5
from pathlib import Path
from typing import Any

from greenlet import getcurrent, greenlet

from tests.workspaces.memory_history import MemoryHistory
from workspaces.baseline import Baseline
from workspaces.blobs import Blob, Stat, Token
from workspaces.clock import ManualClock
from workspaces.configuration import WorkspaceConfig, WorkspaceRecord
from workspaces.errors import Conflict, Failure, NotFound, Unavailable
from workspaces.head import Head
from workspaces.head import parse_head as parsed_head
from workspaces.history.objects import ObjectId, blob_id
from workspaces.ids import Namespace, WorkspaceId
from workspaces.paths import WorkspacePath
from workspaces.replicate import Replication
from workspaces.revision import Author
from workspaces.stamp import Stamp
from workspaces.stores.memory import MemoryBlobs
from workspaces.stores.memory_tree import Inode, MemoryTree
from workspaces.sync.sync import Sync
from workspaces.workspace import Workspace
from workspaces.writer import Intent

NAMES = ("MEMORY.md", "notes/a.md", "notes/b.md", "decisions/d.md", "tool.py")
ROUNDS_MAX = 30
STEPS = (8, 30)
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

    def exchange(self, label: Any, path: WorkspacePath) -> None:
        self.about_to_go(path)
        super().exchange(label, path)

    def take(self, path: WorkspacePath, label: Any) -> None:
        self.about_to_go(path)
        super().take(path, label)


_MOVES = ("prepare", "exchange", "enter", "take", "look", "discard", "flush")
Tree = at_each_call(_Shelled, "read", "write", "delete", *_MOVES)
History = at_each_call(MemoryHistory, "record", "follow", "receive")


class _Empty(Baseline):
    """Made once and copied: most worlds are over before as many rows are written as tables are made."""

    def _opened(self) -> sqlite3.Connection:
        database = sqlite3.connect(":memory:", isolation_level=None)
        database.deserialize(_empty_rows())
        return database


@cache
def _empty_rows() -> bytes:
    rows = Baseline(None)
    with rows._asked() as database:
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

        return self._asked(put)

    def delete(self, name: str, *, expect: Any) -> None:
        self._asked(lambda: self._store.delete(name, expect=expect))

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        return iter(self._asked(lambda: list(self._store.scan(prefix))))

    def _head_there(self) -> Head | None:
        with suppress(NotFound):
            return parse_head(self._store.read("head.json").data)
        return None

    def _check_head(self, before: Head | None, head: Head) -> None:
        """It only moves on, and what it names was there before."""
        history = self._machine.history
        assert before is None or before.tip in history.line(head.tip), "the head went back"
        files = set(history.tree(head.tip).values())
        assert files <= self._world.stored, "the head names what was never there"
        assert all(f"{pack.name}.bundle" in self._store._blobs for pack in head.packs)

    def _asked(self, ask: Callable[[], Any]) -> Any:
        self._machine.io()
        thrown = self._world.random() if self._world.is_wild else 1.0
        if thrown < 0.02:
            raise Unavailable("store", "no answer, nothing happened")
        answer = ask()
        self._machine.io()
        if thrown < 0.04:
            raise Unavailable("store", "the answer was lost")
        return answer


class Lock:
    """The writer lock: its intent outlives the machine's death, as a file does."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.left_behind: Intent | None = None
        self.is_held = False

    @contextmanager
    def hold(self, who: str, *, wait_s: float = 0.0) -> Generator[Lock]:
        while self.is_held:
            self._machine.wait()
        self.is_held = True
        life = self._machine.life
        try:
            yield self
            self._noted(None)
        finally:
            if self._machine.life == life:
                self.is_held = False

    def intend(self, author: Author, paths: Any) -> None:
        self._noted(Intent(author, None if paths is None else tuple(paths)))

    def fulfilled(self) -> None:
        self._noted(None)

    def _noted(self, intent: Intent | None) -> None:
        self._machine.io()
        self.left_behind = intent


class Machine:
    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.life = 0
        self.tree = Tree(world.clock, grain_s=0.5, identity=f"root {number}")
        self.history = History(world.clock)
        self.rows = Rows(None)
        self.tree.io = self.history.io = self.rows.io = self.io
        self.tree.about_to_go = self.open_by_a_shell
        self.running: greenlet | None = None
        self.open: list[tuple[Inode, str]] = []
        """Descriptors of shells, and what each will write."""
        self.start()

    def start(self) -> None:
        """After a crash as at the first time: nothing is left but what is on the disk."""
        self.life += 1
        self.lock, left = Lock(self), getattr(getattr(self, "lock", None), "left_behind", None)
        self.lock.left_behind = left
        self.running = None
        self.tree_lock = Lock(self)
        nonces = iter(range(10**9))
        self.workspace = Workspace(
            RECORD,
            Namespace("fs-1"),
            root=Path("/nowhere"),
            blobs=self.tree,
            history=self.history,
            lock=self.lock,
            person=PERSON,
            clock=self.world.clock,
            origins=None,
            recall=None,
            nonce=lambda: f"{self.life}-{next(nonces)}",
        )
        self.sync = self.world.make_sync(
            self.workspace,
            Store(self),
            self.rows,
            place=lambda: "store",
            alone=lambda: self.tree_lock.hold("sync"),
            pause=self.pause,
            threads=1,
            replication=Replication(
                self.history,
                Store(self, of_history=True),
                self.rows,
                now=lambda: 0.0,
                threads=1,
            ),
            clock=self.world.clock.monotonic,
        )
        self.workspace.remote = self.sync

    def io(self) -> None:
        if getcurrent() is self.world.hub:
            return
        me = getcurrent()
        if me.life != self.life:
            raise Crash
        if not self.world.is_wild:
            return
        thrown = self.world.random()
        if thrown < self.world.crashes:
            self.start()
            raise Crash
        if thrown < self.world.switches:
            self.wait()

    def wait(self) -> None:
        self.world.hub.switch()
        if getcurrent().life != self.life:
            raise Crash

    def pause(self, seconds: float) -> None:
        """The longest of all moments, and so the likeliest to die in."""
        self.io()
        self.write_what_is_open()
        if self.world.is_wild and self.world.crashes > 0 and self.world.random() < 0.2:
            self.start()
            raise Crash
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

    def begin(self, work: Callable[[], None]) -> None:
        """Some work of the product's, as far as it comes before others go on."""

        def run(*_: Any) -> None:
            with suppress(Crash, Failure):
                work()

        self.running = greenlet(run, self.world.hub)
        self.running.life = self.life
        self.go_on()

    def go_on(self) -> None:
        if self.running is not None:
            running = self.running
            running.switch()
            if running.dead and self.running is running:
                self.running = None


class World:
    def __init__(
        self,
        seed: int,
        *,
        make_sync: Callable[..., Sync] = Sync,
        with_api: bool = True,
    ) -> None:
        self.randomly = random.Random(seed)
        self.random = self.randomly.random
        self.make_sync = make_sync
        self.hub = getcurrent()
        self.clock = ManualClock()
        self.is_wild = True
        self.crashes = self.randomly.choice((0.0, 0.005, 0.02))
        self.switches = self.crashes + self.randomly.choice((0.05, 0.2, 0.5))
        as_s3 = self.randomly.random() < 0.5
        self.store = MemoryBlobs(_etag if as_s3 else None)
        self.packs = MemoryBlobs(_etag if as_s3 else None)
        self.stored: set[ObjectId] = set()
        self.written: set[str] = set()
        self.removed: set[str] = set()
        self.taken_away: set[int] = set()
        """Inodes that a person has replaced or removed: what is written there is gone by their will."""
        self.moved_away: dict[tuple[str, str], set[int]] = {}
        """The machines where a line was moved away from a path."""
        self.moved_back: set[str] = set()
        """Lines that were moved to where they had been moved away from on another machine."""
        self.lines = 0
        self.with_api = with_api
        self.machines = [Machine(self, n) for n in range(self.randomly.choice((2, 2, 2, 3, 4)))]

    # The random part.

    def live(self) -> None:
        if self.random() < 0.5:
            self.begin_with_files()
        for _ in range(self.randomly.randint(*STEPS)):
            machine = self.randomly.choice(self.machines)
            thrown = self.random()
            if thrown < 0.35:
                self.person(machine)
            elif machine.running is not None:
                machine.go_on()
            elif thrown < 0.85 or not self.with_api:
                machine.begin(lambda machine=machine: machine.sync.run(accept_deletions=True))
            elif thrown < 0.92:
                machine.begin(lambda machine=machine: machine.sync.pull())
            elif thrown < 0.95:
                machine.begin(lambda machine=machine: machine.sync.push_dirty())
            else:
                machine.begin(lambda machine=machine: self.program(machine))
            if self.random() < 0.3:
                self.clock.advance(self.randomly.choice((0.01, 0.3, 3.0)))

    def begin_with_files(self) -> None:
        """Everybody has the same files already: what follows is swapped, not only made."""
        for name in NAMES[:4]:
            self.put(self.machines[0], name, self.line() + self.line())
        self.settle()
        self.is_wild = True

    def person(self, machine: Machine) -> None:
        """One thing that somebody does to the files of a machine."""
        name = self.randomly.choice(sorted({*NAMES, *machine.tree.files}))
        text = self.text(machine, name)
        if text is None:
            self.put(machine, name, self.line() + (self.line() if self.random() < 0.3 else ""))
            return
        doings = (self.append, self.append, self.save, self.save, self.save, self.write_in_place)
        rare = (self.open, self.delete, self.rename)
        self.randomly.choice((*doings, *rare))(machine, name, text)

    def append(self, machine: Machine, name: str, text: str) -> None:
        line = self.line()
        machine.tree.change(machine.tree.files[name], (text + line).encode())
        self.written.add(line)

    def save(self, machine: Machine, name: str, text: str) -> None:
        """A line put in, replaced or taken out, and a new file in the place of the old one."""
        lines = text.splitlines(keepends=True)
        place = self.randomly.randrange(len(lines) + 1)
        new, gone = self.randomly.choice(((1, 0), (1, 1), (0, 1)))
        put_in = [self.line()] if new else []
        self.put(machine, name, "".join([*lines[:place], *put_in, *lines[place + gone :]]))

    def write_in_place(self, machine: Machine, name: str, text: str) -> None:
        """The same file, and the same size."""
        lines = text.splitlines(keepends=True)
        if lines:
            lines[self.randomly.randrange(len(lines))] = self.line()
            self.note(text, "".join(lines))
            machine.tree.change(machine.tree.files[name], "".join(lines).encode())

    def open(self, machine: Machine, name: str, text: str) -> None:
        """A shell opens the file to append to it, and does so later."""
        del text
        machine.open.append((machine.tree.files[name], self.line()))

    def delete(self, machine: Machine, name: str, text: str) -> None:
        self.note(text, "")
        self.taken_away.add(machine.tree.files.pop(name).number)

    def rename(self, machine: Machine, name: str, text: str) -> None:
        other = self.randomly.choice(NAMES)
        if other != name:
            over = self.text(machine, other)
            if over is not None:
                self.delete(machine, other, over)
            machine.tree.files[other] = machine.tree.files.pop(name)
            for line in text.splitlines(keepends=True):
                self.moved_away.setdefault((name, line), set()).add(machine.number)
                if self.moved_away.get((other, line), set()) - {machine.number}:
                    self.moved_back.add(line)

    def program(self, machine: Machine) -> None:
        """Somebody who says what they had seen. When they are told that it is written, it is."""
        name = self.randomly.choice(NAMES)
        file = machine.workspace.read(name)
        line = self.line()
        lines = file.text.splitlines(keepends=True)
        place = self.randomly.randrange(len(lines) + 1)
        text = "".join([*lines[:place], line, *lines[place:]])
        try:
            machine.workspace.write(name, text, by=Author("api", "u", "api"), expect=file.version)
        except Conflict:
            return
        self.written.add(line)

    def put(self, machine: Machine, name: str, text: str) -> None:
        self.note(self.text(machine, name) or "", text)
        if name in machine.tree.files:
            self.taken_away.add(machine.tree.files[name].number)
        machine.tree.put(name, text.encode())

    def note(self, before: str, after: str) -> None:
        old, new = set(before.splitlines(keepends=True)), set(after.splitlines(keepends=True))
        self.removed |= old - new
        self.written |= new - old

    def text(self, machine: Machine, name: str) -> str | None:
        inode = machine.tree.files.get(name)
        return None if inode is None else inode.data.decode()

    def line(self) -> str:
        self.lines += 1
        return f"L{self.lines:05}\n"

    # The quiet part.

    def settle(self) -> None:
        """Everything goes on undisturbed until nothing happens any more."""
        self.is_wild = False
        for machine in self.machines:
            while machine.running is not None:
                machine.go_on()
            machine.write_what_is_open()
        quiet = 0
        for _ in range(ROUNDS_MAX):
            for machine in self.machines:
                quiet = 0 if self.synced(machine) else quiet + 1
                if quiet == len(self.machines):
                    return
        raise AssertionError("it never ends")

    def synced(self, machine: Machine) -> bool:
        """Whether anything happened."""
        reports: list[Any] = []
        machine.begin(lambda: reports.append(machine.sync.run(accept_deletions=True)))
        assert reports, "an undisturbed sync has failed"
        (report,) = reports
        looks = 2 if "head.json" in self.packs._blobs else 3  # no head: the entry is asked for
        return bool(report.requests > looks or report.pending)

    def check(self) -> None:
        store = {stat.name: self.store.read(stat.name).data for stat in self.store.scan()}
        for machine in self.machines:
            tree = {name: inode.data for name, inode in machine.tree.files.items()}
            assert tree == store, f"machine {machine.number} has diverged"
            assert not machine.tree.aside, "something was left aside"
        lines = {
            line for data in store.values() for line in data.decode().splitlines(keepends=True)
        }
        assert lines <= self.written | self.removed | _unwritten(self), "torn"
        lost = self.written - self.removed - self.moved_back - lines
        assert not lost, f"lost: {sorted(lost)}"
        history = self.machines[0].history
        assert self.stored <= history.reachable(), (
            "a version that was in the store is in no revision"
        )
        tips = {machine.history.tip() for machine in self.machines}
        assert len(tips) == 1, "histories have diverged"
        (tip,) = tips
        line = history.line(tip) if tip else ()
        for machine in self.machines:
            assert machine.history.made <= line, "a revision is not in the history of all"
        tree = {path: blob_id(data) for path, data in store.items()}
        assert history.tree(tip) == tree, "the newest revision is not what the files are"
        assert (tip is None) or parse_head(self.packs.read("head.json").data).tip == tip

    def epilogue(self) -> None:
        """A deletion, a change and a new file go everywhere."""
        first, *_, last = self.machines
        names = sorted(last.tree.files)
        if len(names) > 1:
            self.note(self.text(last, names[0]) or "", "")
            del last.tree.files[names[0]]
            self.put(last, names[1], f"{self.line()}{self.line()}")
        self.put(first, "new.md", self.line())
        self.synced(first)
        self.synced(last)  # in a second round its own change goes out
        self.synced(first)
        self.synced(last)
        assert first.history.tip() == last.history.tip(), "it was not told as it was told there"
        self.put(first, "new.md", f"{self.line()}{self.line()}")
        self.synced(first)
        self.synced(last)
        assert first.history.tip() == last.history.tip(), "it was not told as it was told there"
        told = last.history.commit(last.history.tip())
        assert len(told.parents) == 1, "a merge where there is nothing to merge"
        assert not self.synced(first), "it does not know what it has just pushed"
        self.settle()
        self.check()
        if len(names) > 1:
            assert names[0] not in first.tree.files, "a deleted file has come back"


def _unwritten(world: World) -> set[str]:
    """Lines of programs that were told nothing: either is right."""
    return {f"L{number:05}\n" for number in range(1, world.lines + 1)}


def _etag(data: bytes) -> Token:
    """As stores that encrypt or join parts make them: fixed by the bytes, and not their MD5."""
    return Token(f'"{md5(data[::-1], usedforsecurity=False).hexdigest()}-1"')


def simulate(seed: int, *, make_sync: Callable[..., Sync] = Sync) -> None:
    world = World(seed, make_sync=make_sync)
    world.live()
    world.settle()
    world.check()
    if seed % 3 == 0:
        world.epilogue()
