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
from functools import partial
from hashlib import md5
from typing import Any

from greenlet import getcurrent

from tests.workspaces.simulated import Machine, Process, parse_head
from workspaces.blobs import Token
from workspaces.clock import ManualClock
from workspaces.history.objects import ObjectId, blob_id
from workspaces.revision import Author
from workspaces.stores.memory import MemoryBlobs

NAMES = ("MEMORY.md", "notes/a.md", "notes/b.md", "decisions/d.md", "tool.py")
API = Author("api", "u", "api")
AGENT = Author("agent", "agent_1", "turn")
ROUNDS_MAX = 30
STEPS = (8, 30)


class World:
    def __init__(self, seed: int) -> None:
        self.randomly = random.Random(seed)
        self.random = self.randomly.random
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
        self.machines = [Machine(self, n) for n in range(self.randomly.choice((2, 2, 2, 3, 4)))]

    # The random part.

    def live(self) -> None:
        if self.random() < 0.5:
            self.begin_with_files()
        for _ in range(self.randomly.randint(*STEPS)):
            machine = self.randomly.choice(self.machines)
            process = self.randomly.choice(machine.processes)
            if self.random() < 0.35:
                self.person(machine)
            elif process.running is not None:
                process.go_on()
            else:
                process.begin(partial(self.randomly.choices(*DOINGS)[0], self, process))
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

    # What processes do.

    def sync(self, process: Process) -> None:
        process.sync.run(accept_deletions=True)

    def pull(self, process: Process) -> None:
        process.sync.pull()

    def push_dirty(self, process: Process) -> None:
        process.sync.push_dirty()

    def push_saved(self, process: Process) -> None:
        """As a watcher does."""
        before = process.workspace.tip()
        process.workspace.settle()
        changed = process.machine.history.differences(before, process.workspace.tip())
        process.sync.push(changed)

    def program(self, process: Process) -> None:
        """Somebody who says what they had seen. When they are told that it is written, it is."""
        name = self.randomly.choice(NAMES)
        file = process.workspace.read(name)
        line = self.line()
        lines = file.text.splitlines(keepends=True)
        place = self.randomly.randrange(len(lines) + 1)
        text = "".join([*lines[:place], line, *lines[place:]])
        process.workspace.write(name, text, by=API, expect=file.version)
        self.written.add(line)

    def remove(self, process: Process) -> None:
        """The same of a deletion. What it was to take away may be gone, whatever they are told."""
        file = process.workspace.read(self.randomly.choice(NAMES))
        self.note(file.text, "")
        process.workspace.delete(file.path, by=API, expect=file.version)

    def command(self, process: Process) -> None:
        """An agent's shell: what it does is what people do, in a tree that nobody else may change."""
        with process.workspace.command(AGENT):
            for _ in range(self.randomly.randint(1, 3)):
                self.person(process.machine)
                process.machine.io()

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
            machine.finish()
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
        process = self.randomly.choice(machine.processes)
        process.begin(lambda: reports.append(process.sync.run(accept_deletions=True)))
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
        line = history.line(tip) if tip else frozenset[str]()
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


DOINGS = (
    (
        World.sync,
        World.pull,
        World.push_dirty,
        World.push_saved,
        World.program,
        World.remove,
        World.command,
    ),
    (50, 7, 3, 3, 5, 1, 3),
)


def _unwritten(world: World) -> set[str]:
    """Lines of programs that were told nothing: either is right."""
    return {f"L{number:05}\n" for number in range(1, world.lines + 1)}


def _etag(data: bytes) -> Token:
    """As stores that encrypt or join parts make them: fixed by the bytes, and not their MD5."""
    return Token(f'"{md5(data[::-1], usedforsecurity=False).hexdigest()}-1"')


def simulate(seed: int) -> None:
    world = World(seed)
    world.live()
    world.settle()
    world.check()
    if seed % 3 == 0:
        world.epilogue()
