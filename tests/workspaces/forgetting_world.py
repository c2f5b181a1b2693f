"""Worlds in which machines also take lines out of files and of the past, while everything else goes on.

At the end every machine has heard of each line: then the line is in no file, no object of the store, and no
revision or object of any machine. Every other line is where it would have been.

People also save lines that are forbidden. Each stays in the file of its machine until a person takes it out,
and it is in no revision and in nothing that the store has. What else they have typed there goes on then.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.workspaces.simulated import Machine, Process
from tests.workspaces.simulation import API, NAMES, World, lines_of
from workspaces.errors import ForbiddenPlace
from workspaces.history.git.rewrite import RedactedFile, Redaction
from workspaces.home.rewrite import rewrite_workspace
from workspaces.workspace.protection import Protection

HEARINGS_MAX = 12
SYNCS_WHILE_HELD = 2


class ForbiddenLines:
    """A gate that lets no line pass that begins with X."""

    def version(self, *, is_fresh: bool = False) -> int:
        del is_fresh
        return 1

    def changed(
        self, path: str, before: bytes | None, after: bytes | None, /, *, take_pass: bool
    ) -> Sequence[ForbiddenPlace]:
        del path, take_pass
        lines = enumerate(() if after is None else lines_of(after), 1)
        old = () if before is None else lines_of(before)
        return [
            ForbiddenPlace(number, "rule")
            for number, line in lines
            if line.startswith("X") and line not in old
        ]

    def refused(self, places: Sequence[ForbiddenPlace]) -> None:
        pass

    def mended(self, before: bytes | None, after: bytes) -> bytes:
        del before
        assert not forbidden_in([after]), "a forbidden line has come from elsewhere"
        return after


class ForgettingWorld(World):
    protection = Protection(gate=ForbiddenLines())
    forbidden = 0.08
    """How often somebody saves a forbidden line."""
    keeps_every_version = False
    """What a machine had not shared becomes one revision, and not each version of it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.has_twins, self.names = False, NAMES
        self.forgotten: set[str] = set()
        self.held_on: dict[str, Machine] = {}
        """The forbidden lines, each with the machine on which somebody has saved it."""
        for machine in self.machines:
            for process in machine.processes:
                process.start()

    def doing(self) -> Callable[[Any, Process], None]:
        return ForgettingWorld.forget if self.random() < 0.15 else super().doing()

    def forget(self, process: Process) -> None:
        """Somebody asks for a line that is here, or the process goes on with what was asked before."""
        lines = [
            line
            for inode in process.machine.tree.files.values()
            for line in inode.data.decode().splitlines(keepends=True)
            if line.startswith("L")
        ]
        if lines and (not self.forgotten or self.random() < 0.5):
            line = self.randomly.choice(sorted(lines))
            self.forgotten.add(line)
            self.removed.add(line)
            self.written.add(f"F{line[1:]}")
        self.hear(process)

    def hear(self, process: Process) -> None:
        lines = sorted(self.forgotten)
        label = f"f_{len(lines)}"
        rewrite_workspace(process.workspace, redaction_of(lines), by=API, label=label)

    def person(self, machine: Machine) -> None:
        if self.random() < self.forbidden and machine.tree.files:
            self.save_forbidden(machine)
        else:
            super().person(machine)

    def save_forbidden(self, machine: Machine) -> None:
        """An editor saves a file with a forbidden line, and with another one that is not."""
        name = self.randomly.choice(sorted(machine.tree.files))
        # a forgetting may erase the version on which it is held back; then no merge knows what is older
        self.may_come_back = self.may_come_back or name == "MEMORY.md"
        line = f"X{self.line()[1:]}"
        self.held_on[line] = machine
        self.put(machine, name, f"{self.text(machine, name)}{self.line()}{line}")

    def settle(self) -> None:
        self.hold_back()
        super().settle()
        for _ in range(HEARINGS_MAX):
            if not self.forgotten or not any(map(self.holds, self.machines)):
                break
            for machine in self.machines:
                heard: list[bool] = []
                process = machine.processes[0]
                process.begin(lambda p=process, h=heard: (self.hear(p), h.append(True)))  # pyright: ignore[reportArgumentType]
                assert heard, "an undisturbed request has failed"
            super().settle()

    def hold_back(self) -> None:
        """All go on while files are held back. Then people take the forbidden lines out."""
        self.is_wild = False
        for machine in self.machines:
            machine.finish()  # a command may save one, too
            machine.write_what_is_open()
        if self.held_on.keys() <= self.removed:
            return
        for machine in self.machines * SYNCS_WHILE_HELD:
            self.synced(machine)
        self.check_held_back()
        for machine in self.machines:
            for name in sorted(machine.tree.files):
                text = self.text(machine, name) or ""
                kept = [line for line in text.splitlines(keepends=True) if line not in self.held_on]
                if len(kept) < text.count("\n"):
                    self.put(machine, name, "".join(kept))

    def check_held_back(self) -> None:
        for line, machine in self.held_on.items():
            data = [inode.data for inode in machine.tree.files.values()]
            is_there = any(line.encode() in one for one in data)
            assert is_there or line in self.removed, f"lost where it was held back: {line}"
        assert not forbidden_in(self.in_store()), "the store has a line that is held back"
        for machine in self.machines:
            history = machine.history
            told = [history.read(one) for one in history.reachable()]
            assert not forbidden_in(told), "a revision has a line that is held back"

    def in_store(self) -> list[bytes]:
        """What the files and the packs of the store hold."""
        packs = [self.packs.read(stat.name).data for stat in self.packs.scan("")]
        objects = (pickle.loads(one)[2].values() for one in packs if not one.startswith(b"{"))
        files = [self.store.read(stat.name).data for stat in self.store.scan()]
        return [*files, *(data for each in objects for data in each)]

    def holds(self, machine: Machine) -> bool:
        data = [inode.data for inode in machine.tree.files.values()]
        data += [inode.data for inode in machine.tree.aside.values()]
        data += machine.history.objects.values()
        return self.has_forgotten(data)

    def has_forgotten(self, data: list[bytes]) -> bool:
        return any(line.encode() in one for one in data for line in self.forgotten)

    def check_history(self, store: dict[str, bytes]) -> None:
        for machine in self.machines:
            assert not self.holds(machine), f"machine {machine.number} has a forgotten line"
        assert not self.has_forgotten(self.in_store()), "the store has a forgotten line"
        super().check_history(store)


class HeldBackWorld(ForgettingWorld):
    forbidden = 0.35


def redaction_of(lines: list[str]) -> Redaction:
    def redacted(_path: str, data: bytes) -> RedactedFile | None:
        text = data.decode()
        after = text
        for line in lines:
            after = after.replace(line, f"F{line[1:]}")
        return None if after == text else RedactedFile(after.encode(), 1)

    return Redaction(redacted)


def forbidden_in(data: Iterable[bytes]) -> bool:
    return any(line.startswith("X") for one in data for line in lines_of(one))
