"""Worlds in which machines also take lines out of files and of the past, while everything else goes on.

At the end every machine has heard of each line: then the line is in no file, no object of the store, and no
revision or object of any machine. Every other line is where it would have been.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from tests.workspaces.simulated import Machine, Process
from tests.workspaces.simulation import API, NAMES, World
from workspaces.history.git.rewrite import RedactedFile, Redaction
from workspaces.home.rewrite import rewrite_workspace

HEARINGS_MAX = 12


class ForgettingWorld(World):
    keeps_every_version = False
    """What a machine had not shared becomes one revision, and not each version of it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.has_twins, self.names = False, NAMES
        self.forgotten: set[str] = set()
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

    def settle(self) -> None:
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
        packs = [self.packs.read(stat.name).data for stat in self.packs.scan("")]
        objects = [
            data
            for pack in packs
            if not pack.startswith(b"{")
            for data in pickle.loads(pack)[2].values()
        ]
        assert not self.has_forgotten([*store.values(), *objects]), "the store has a forgotten line"
        super().check_history(store)


def redaction_of(lines: list[str]) -> Redaction:
    def redacted(_path: str, data: bytes) -> RedactedFile | None:
        text = data.decode()
        after = text
        for line in lines:
            after = after.replace(line, f"F{line[1:]}")
        return None if after == text else RedactedFile(after.encode(), 1)

    return Redaction(redacted)
