"""Several machines, one store, and everything that can go wrong between them, from one seed.

What runs is the product: `Workspace`, `TreeScan`, `SafeReplace`, `Baseline`, `Replication`, `Sync`. What is
given to it is in memory: the live tree, the store, the history, the locks and the clocks. At each of their
calls the seed decides whether a process or its machine dies, the answer is lost, or others go on first.
What a process does is a greenlet, so that any two of them can be interleaved at every call.

Two to four machines, one or two processes each, whose clocks may differ by days and jump. People append,
save, delete, move, and write to what they have opened long ago; programs write and delete under conditions;
commands have the tree to themselves; watchers push what was saved; somebody copies a file from elsewhere, or
changes one in the bucket, by hand. In some worlds MEMORY.md has a front matter, in some there are names that
have no place beside each other, in some few packs are folded.

People write lines that never come twice. At the end everyone syncs until nothing happens any more. Then
all trees and the store hold the same files, but for what has no place somewhere and is listed there, until
it is given other names (nothing has diverged), and every line that nobody has taken away on purpose is in
them (nothing is lost); whatever was in the store is in a revision; a front matter is whole, and holds no
value that somebody saw and replaced.

One thing is not claimed: what one person moves back to where another has moved it away from. To a sync of
paths a move is a deletion and a new file. Who moves a file away and back has changed nothing there, and has
deleted it where it was meanwhile; who has moved it to that place has changed the first and kept the second.
Each path is then right by itself, and the lines are in none of them: they are in the history (0140).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import md5
from typing import Any

from greenlet import getcurrent

from tests.workspaces.simulated import Machine, Process, parse_head
from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT, ANY
from workspaces.history.git.objects import ObjectId, blob_id
from workspaces.revision import Author
from workspaces.storage.blobs import Token
from workspaces.storage.in_memory import MemoryBlobs
from workspaces.sync import history_head
from workspaces.sync.history_head import PACKS_MAX
from workspaces.workspace.protection import Protection

NAMES = ("MEMORY.md", "notes/a.md", "notes/b.md", "decisions/d.md", "tool.py")
TWINS = ("memory.md", "notes/A.md", "Notes/b.md", "notes")
"""Names that have no place beside those: they differ only in case, or are a directory there."""

ODD_STARTS = ("memory.", "notes/A.", "Notes/", "notes.")
"""They, and the second files beside them."""

KEYS = ("a", "b", "c")
DAY_S = 86_400.0
API = Author("api", "u", "api")
AGENT = Author("agent", "agent_1", "turn")
ROUNDS_MAX = 30
PARTINGS = 2
STEPS = (8, 30)


class World:
    programs_write: tuple[str, ...] = NAMES
    keeps_every_version = True
    protection: Protection | None = None
    """What may not come into the files of any machine."""

    def __init__(self, seed: int) -> None:
        self.randomly = random.Random(seed)
        self.random = self.randomly.random
        self.hub = getcurrent()
        self.clock = ManualClock()
        self.is_wild = True
        self.crashes = self.randomly.choice((0.0, 0.005, 0.02))
        self.switches = self.crashes + self.randomly.choice((0.05, 0.2, 0.5))
        as_s3 = self.randomly.random() < 0.5
        etag = md5_tag if seed % 2 else _other_tag
        self.store = MemoryBlobs(etag if as_s3 else None)
        self.packs = MemoryBlobs(etag if as_s3 else None)
        self.stored: set[ObjectId] = set()
        self.by_hand: set[ObjectId] = set()
        """What somebody has put into the store past the product."""
        self.taken_there: set[ObjectId] = set()
        """What he has found there. Who had written it may have died, and nobody else have seen it."""
        self.written: set[str] = set()
        self.removed: set[str] = set()
        self.taken_away: set[int] = set()
        """Inodes that a person has replaced or removed: what is written there is gone by their will."""
        self.moved_away: dict[tuple[str, str], set[int]] = {}
        """The machines where a line was moved away from a path."""
        self.moved_back: set[str] = set()
        """Lines that were moved to where they had been moved away from on another machine."""
        self.lines = 0
        self.has_front = self.randomly.random() < 0.4
        """Whether MEMORY.md begins with a front matter. There it stays: it is not moved."""
        self.replaced: set[str] = set()
        """Of its lines those that somebody has seen, and set to another value or taken away."""
        self.may_come_back = self.crashes > 0
        """They may: who dies between a swap and its row, or never hears that a write was done, meets once
        more what they have replaced, as somebody's who was later; and a deleted file comes back as who had
        changed it has it."""
        self.has_twins = self.randomly.random() < 0.25
        self.packs_max = self.randomly.choice((3, PACKS_MAX))
        self.names = (*NAMES, *TWINS) if self.has_twins else NAMES
        self.skew_s = self.randomly.choice((0.0, 3.0, 2 * DAY_S, 400 * DAY_S))
        self.machines = [Machine(self, n) for n in range(self.randomly.choice((2, 2, 2, 3, 4)))]

    # The random part.

    def live(self) -> None:
        if self.random() < 0.5:
            self.begin_with_files()
        for _ in range(self.randomly.randint(*STEPS)):
            machine = self.randomly.choice(self.machines)
            process = self.randomly.choice(machine.processes)
            thrown = self.random()
            if thrown < 0.35:
                self.person(machine)
            elif thrown < 0.4:
                self.somebody_in_the_bucket()
            elif process.running is not None:
                process.go_on()
            else:
                process.begin(partial(self.doing(), self, process))
            if self.random() < 0.3:
                self.clock.advance(self.randomly.choice((0.01, 0.3, 3.0, 100.0)))
            if self.skew_s and self.random() < 0.05:
                machine.clock.jump(self.random() * self.skew_s)

    def doing(self) -> Callable[[Any, Process], None]:
        return self.randomly.choices(*DOINGS)[0]

    def begin_with_files(self) -> None:
        """Everybody has the same files already: what follows is swapped, not only made."""
        for name in NAMES[:4]:
            has_front = self.is_front(name)
            keys = [f"{key}: {self.line()}" for key in KEYS] if has_front else []
            front = ["---\n", *keys, "---\n"] if keys else []
            self.put(self.machines[0], name, "".join([*front, self.line(), self.line()]))
        self.settle()
        self.is_wild = True

    def person(self, machine: Machine) -> None:
        """One thing that somebody does to the files of a machine."""
        name = self.randomly.choice(sorted({*self.names, *machine.tree.files}))
        if self.has_front and self.random() < 0.3:
            name = "MEMORY.md"
        text = self.text(machine, name)
        if text is None:
            if machine.tree.has_place(name):
                more = self.line() if self.random() < 0.3 else ""
                self.put(machine, name, self.line() + more)
            return
        if self.is_front(name) and self.random() < 0.5:
            self.set_key(machine, name, text)
            return
        doings = (self.append, self.append, self.save, self.save, self.save, self.write_in_place)
        rare = (self.open, self.delete, self.rename, self.copy_over)
        self.randomly.choice((*doings, *rare))(machine, name, text)

    def somebody_in_the_bucket(self) -> None:
        """A line put to a file there, or the file deleted, and no history tells of it. Who does so may do the
        same to the files of a machine."""
        name = self.randomly.choice([one for one in self.names if not self.is_front(one)])
        text = self.text_there(name) or ""
        after = "" if text and self.random() < 0.4 else text + self.line()
        self.note(text, after)
        self.taken_there.add(blob_id(text.encode()))
        if after:
            self.by_hand.add(blob_id(after.encode()))
            self.store.write(name, after.encode(), expect=ANY)
        else:
            self.store.delete(name, expect=ANY)
        if self.random() < 0.3:
            self.same_here(self.randomly.choice(self.machines), name, after)

    def same_here(self, machine: Machine, name: str, after: str) -> None:
        before = self.text(machine, name)
        if after and (before is not None or machine.tree.has_place(name)):
            self.put(machine, name, after)
        elif before is not None and not after:
            self.delete(machine, name, before)

    def append(self, machine: Machine, name: str, text: str) -> None:
        line = self.line()
        machine.tree.change(machine.tree.files[name], (text + line).encode())
        self.written.add(line)

    def save(self, machine: Machine, name: str, text: str) -> None:
        """A line put in, replaced or taken out, and a new file in the place of the old one."""
        front, lines = parted(text)
        place = self.randomly.randrange(len(lines) + 1)
        new, gone = self.randomly.choice(((1, 0), (1, 1), (0, 1)))
        put_in = [self.line()] if new else []
        self.put(machine, name, "".join([*front, *lines[:place], *put_in, *lines[place + gone :]]))

    def write_in_place(self, machine: Machine, name: str, text: str) -> None:
        """The same file, and the same size."""
        front, lines = parted(text)
        if lines:
            lines[self.randomly.randrange(len(lines))] = self.line()
            after = "".join([*front, *lines])
            self.note(text, after)
            machine.tree.change(machine.tree.files[name], after.encode())

    def set_key(self, machine: Machine, name: str, text: str) -> None:
        """A key of the front matter gets a value, another one, or goes."""
        front, lines = parted(text)
        key = self.randomly.choice(KEYS)
        before = next((line for line in front if line.startswith(f"{key}:")), None)
        after = [f"{key}: {self.line()}"] if before is None or self.random() < 0.8 else []
        kept = [line for line in front if line not in ("---\n", before)]
        told = sorted([*kept, *after])
        if before is not None:
            self.replaced.add(before)
        self.put(machine, name, "".join(["---\n", *told, "---\n", *lines] if told else lines))

    def open(self, machine: Machine, name: str, text: str) -> None:
        """A shell opens the file to append to it, and does so later."""
        del text
        machine.open.append((machine.tree.files[name], self.line()))

    def delete(self, machine: Machine, name: str, text: str) -> None:
        self.note(text, "")
        self.may_come_back = self.may_come_back or name == "MEMORY.md"
        self.taken_away.add(machine.tree.files.pop(name).number)

    def rename(self, machine: Machine, name: str, text: str) -> None:
        other = self.randomly.choice(self.names)
        if self.has_front and "MEMORY.md" in (name, other):
            return
        if other != name and (other in machine.tree.files or machine.tree.has_place(other)):
            over = self.text(machine, other)
            if over is not None:
                self.delete(machine, other, over)
            machine.tree.files[other] = machine.tree.files.pop(name)
            for line in text.splitlines(keepends=True):
                self.moved_away.setdefault((name, line), set()).add(machine.number)
                if self.moved_away.get((other, line), set()) - {machine.number}:
                    self.moved_back.add(line)

    def copy_over(self, machine: Machine, name: str, text: str) -> None:
        """The file as another machine or the store has it, with no sync: both have made the same change."""
        if self.is_front(name):
            return
        others = (self.text(other, name) for other in self.machines if other is not machine)
        texts = [one for one in (self.text_there(name), *others) if one is not None]
        if texts:
            self.put(machine, name, self.randomly.choice(texts))

    # What processes do.

    def sync(self, process: Process) -> None:
        process.sync.run(accept_deletions=True)

    def pull(self, process: Process) -> None:
        process.sync.pull()

    def push_dirty(self, process: Process) -> None:
        process.sync.push_dirty()

    def push_saved(self, process: Process) -> None:
        """As a watcher does."""
        before = process.workspace.history.tip()
        process.workspace.edits.commit()
        changed = process.machine.history.differences(before, process.workspace.history.tip())
        process.sync.push(changed)

    def program(self, process: Process) -> None:
        """Somebody who says what they had seen. When they are told that it is written, it is."""
        name = self.randomly.choice(self.programs_write)
        file = process.workspace.read(name)
        line = self.line()
        front, lines = parted(file.text)
        place = self.randomly.randrange(len(lines) + 1)
        text = "".join([*front, *lines[:place], line, *lines[place:]])
        process.workspace.write(name, text, by=API, expect=file.version)
        self.written.add(line)

    def remove(self, process: Process) -> None:
        """The same of a deletion. What it was to take away may be gone, whatever they are told."""
        file = process.workspace.read(self.randomly.choice(NAMES))
        self.note(file.text, "")
        self.may_come_back = self.may_come_back or file.path == "MEMORY.md"
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

    def is_front(self, name: str) -> bool:
        return self.has_front and name == "MEMORY.md"

    def text_there(self, name: str) -> str | None:
        blob = self.store._blobs.get(name)
        return None if blob is None else blob.data.decode()

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
        store = self.check_files()
        if self.has_twins:
            for _ in range(PARTINGS):
                self.part_the_twins()
                store = self.check_files()
            assert not any(self.twins_on(machine) for machine in self.machines)
        self.check_front(store.get("MEMORY.md", b""))
        self.check_history(store)

    def check_files(self) -> dict[str, bytes]:
        """What is in the store."""
        store = {stat.name: self.store.read(stat.name).data for stat in self.store.scan()}
        lines = {line for data in store.values() for line in lines_of(data)}
        for machine in self.machines:
            twins = self.twins_on(machine)
            tree = {name: inode.data for name, inode in machine.tree.files.items()}
            assert without(twins, tree) == without(twins, store), (
                f"machine {machine.number} has diverged"
            )
            assert not machine.tree.aside, "something was left aside"
            assert not machine.tree.on_its_way(), "something is still on its way"
            lines |= {line for name in twins & tree.keys() for line in lines_of(tree[name])}
        assert lines <= self.written | self.removed | _unwritten(self), "torn"
        lost = {line for line in self.written if line.startswith("L")}
        lost -= self.removed | self.moved_back | lines
        assert not lost, f"lost: {sorted(lost)}"
        return store

    def part_the_twins(self) -> None:
        """As the list of problems asks for: people give other names to them, in the store to what is nowhere
        else. What had no place may have one now, where others see it for the first time."""
        for machine in self.machines:
            files = machine.tree.files
            for name in filter(_is_odd, sorted(files)):
                files[self.kept_name()] = files.pop(name)
        self.settle()
        for name in [stat.name for stat in self.store.scan()]:
            if _is_odd(name) and not any(name in one.tree.files for one in self.machines):
                self.store.write(self.kept_name(), self.store.read(name).data, expect=ABSENT)
                self.store.delete(name, expect=ANY)
        self.settle()

    def kept_name(self) -> str:
        return f"kept-{self.line().strip()}.md"

    def check_history(self, store: dict[str, bytes]) -> None:
        history = self.machines[0].history
        told = history.reachable() | self.taken_there
        if self.keeps_every_version:
            assert self.stored <= told, "a version that was in the store is in no revision"
        tips = {machine.history.tip() for machine in self.machines}
        assert len(tips) == 1, "histories have diverged"
        (tip,) = tips
        line = history.line(tip) if tip else frozenset[str]()
        for machine in self.machines:
            assert machine.history.made <= line, "a revision is not in the history of all"
        tree = {path: blob_id(data) for path, data in store.items()}
        assert history.tree(tip) == tree, "the newest revision is not what the files are"
        assert (tip is None) or parse_head(self.packs.read("head.json").data).tip == tip

    def twins_on(self, machine: Machine) -> set[str]:
        """What has no place there, on the side where it is, and is listed."""
        if not self.has_twins:
            return set()
        workspace = machine.processes[0].workspace
        return {
            one.path for one in workspace.edits.problems() if one.kind in ("twin", "unreadable")
        }

    def check_front(self, data: bytes) -> None:
        """It is whole, and has no value that somebody has seen and replaced."""
        front, lines = parted(data.decode())
        assert all(line.startswith(("L", "F")) for line in lines), "a front matter was torn"
        keys = [line.partition(":")[0] for line in front if line != "---\n"]
        assert len(keys) == len(set(keys)), "a key stands there twice"
        assert self.may_come_back or self.replaced.isdisjoint(front), "a replaced value is back"

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
        day = first.clock.now().date()
        self.synced(first)
        self.synced(last)
        assert first.history.tip() == last.history.tip(), "it was not told as it was told there"
        told = last.history.commit(last.history.tip())
        assert len(told.parents) == 1, "a merge where there is nothing to merge"
        is_at_rest = not self.synced(first) or day != first.clock.now().date()  # then it checks
        assert is_at_rest, "it does not know what it has just pushed"
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


class FrontWorld(World):
    """Where nearly everything happens to one front matter, nobody dies and nothing is deleted: so in nearly
    every world no value may come back. It meets in some ten thousand what the other meets in a million."""

    programs_write = ("MEMORY.md",)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.crashes, self.may_come_back = 0.0, False
        self.switches = self.randomly.choice((0.1, 0.3, 0.5))
        self.has_front, self.has_twins, self.names = True, False, NAMES
        self.skew_s = self.randomly.choice((2 * DAY_S, 400 * DAY_S))
        for machine in self.machines:
            machine.clock.jump(self.random() * self.skew_s)

    def live(self) -> None:
        self.begin_with_files()
        super().live()

    def doing(self) -> Callable[[Any, Process], None]:
        often = (World.sync, World.pull, World.push_dirty, World.push_saved, World.program)
        return World.command if self.random() < 0.02 else self.randomly.choice(often)

    def person(self, machine: Machine) -> None:
        text = self.text(machine, "MEMORY.md")
        if text is None or self.random() < 0.1:
            super().person(machine)
        elif self.random() < 0.75:
            self.set_key(machine, "MEMORY.md", text)
        else:
            self.randomly.choice((self.append, self.save))(machine, "MEMORY.md", text)

    def delete(self, machine: Machine, name: str, text: str) -> None:
        """Who changed what others delete has it as it was."""

    def rename(self, machine: Machine, name: str, text: str) -> None:
        """It may replace a file."""


def parted(text: str) -> tuple[list[str], list[str]]:
    """The front matter with its fences, and the rest."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0] != "---\n":
        return [], lines
    end = lines.index("---\n", 1) + 1
    return lines[:end], lines[end:]


def _is_odd(name: str) -> bool:
    return name == "notes" or name.startswith(ODD_STARTS)


def without(names: set[str], files: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data for name, data in files.items() if name not in names}


def lines_of(data: bytes) -> list[str]:
    return data.decode().splitlines(keepends=True)


def _unwritten(world: World) -> set[str]:
    """Lines of programs that were told nothing: either is right."""
    return {f"L{number:05}\n" for number in range(1, world.lines + 1)}


def md5_tag(data: bytes) -> Token:
    """As S3 tags what is put in one piece."""
    return Token(f'"{md5(data, usedforsecurity=False).hexdigest()}"')


def _other_tag(data: bytes) -> Token:
    """As stores that encrypt or join parts make them: fixed by the bytes, and not their MD5."""
    return Token(f'"{md5(data[::-1], usedforsecurity=False).hexdigest()}-1"')


def simulate(seed: int, kind: type[World] = World) -> None:
    world = kind(seed)
    with packs_folded_beyond(world.packs_max):
        world.live()
        world.settle()
        world.check()
        if seed % 3 == 0:
            world.epilogue()


@contextmanager
def packs_folded_beyond(count: int) -> Generator[None]:
    before, history_head.PACKS_MAX = history_head.PACKS_MAX, count
    try:
        yield
    finally:
        history_head.PACKS_MAX = before
