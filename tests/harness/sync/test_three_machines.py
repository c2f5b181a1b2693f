"""Three machines of one account at random: no deleted workspace returns, and no written line is lost.

Each seed is a sequence of edits, record changes, deletions, attachments, syncs and crashes during a sync.
In the end all machines sync. They must agree, every deleted workspace must be gone everywhere, and every
written line must be in a tree, a history or the trash.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.laptops import Laptop
from tests.workspaces.replicas import MemoryPrefix
from workspaces.accounts.stored_workspace import is_private
from workspaces.clock import ManualClock, SystemClock
from workspaces.errors import Failure
from workspaces.history.history import History
from workspaces.home.workspaces import private_to_user
from workspaces.remote.registry import LiveEntry, Tombstone
from workspaces.storage.faulty import FaultyBlobs, StoreFault

SEEDS = range(200 if os.environ.get("SOAK") else 8)
STEPS = 40
ROUNDS_MAX = 12


class Wire:
    """To the place. It can be cut after so many requests."""

    def __init__(self) -> None:
        self.requests_left: int | None = None

    def faults(self) -> Iterator[StoreFault]:
        while True:
            if self.requests_left is None:
                yield StoreFault.NONE
                continue
            self.requests_left -= 1
            yield StoreFault.NONE if self.requests_left >= 0 else StoreFault.BEFORE


class Story:
    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = MemoryPrefix()
        self.clock = ManualClock()
        self.wires = [Wire(), Wire(), Wire()]
        prefixes = [
            MemoryPrefix(FaultyBlobs(self.store.store, wire.faults(), f"seed {seed}"))
            for wire in self.wires
        ]
        first = Laptop(directory / "0", prefixes[0], self.clock, joins=False)
        first.sync()
        self.machines = [first] + [
            Laptop(directory / str(number), prefixes[number], self.clock) for number in (1, 2)
        ]
        self.written: set[str] = set()
        self.deleted: set[str] = set()
        self.numbers = iter(range(1_000_000))

    def step(self) -> None:
        machine = self.chance.choice(self.machines)
        wire = self.wires[self.machines.index(machine)]
        deeds: list[tuple[float, Callable[[Laptop], None]]] = [
            (8, self.edit),
            (4, self.sync),
            (2, self.change),
            (1, self.make),
            (1.2, self.delete),
            (2, self.attach),
            (1, self.agent),
        ]
        weights, todo = zip(*deeds, strict=True)
        (deed,) = self.chance.choices(todo, weights)
        self.clock.advance(self.chance.choice((0, 1, 60)))
        if self.chance.random() < 0.3:
            wire.requests_left = self.chance.randrange(12)
        with suppress(Failure):  # the place was not to be had, a name was taken, it was deleted
            deed(machine)
        if wire.requests_left is not None:
            wire.requests_left = None
            machine.again()  # whoever was cut off has died, too

    def edit(self, machine: Laptop) -> None:
        for record in machine.workspaces.list(private=True):
            line = f"line {next(self.numbers)}"
            file = machine.workspaces.open(record).root / f"{self.chance.choice('abc')}.md"
            before = file.read_text() if file.exists() else ""
            file.write_text(f"{before}{line}\n")
            self.written.add(line)

    def sync(self, machine: Laptop) -> None:
        machine.sync()

    def change(self, machine: Laptop) -> None:
        for record in machine.workspaces.list():
            number = next(self.numbers)
            patch = self.chance.choice(({"name": f"name {number}"}, {"description": f"d {number}"}))
            machine.workspaces.patch(record.id, patch)

    def make(self, machine: Laptop) -> None:
        machine.workspaces.create(f"made {next(self.numbers)}")
        machine.workspaces.private(
            private_to_user(machine.harness.rooms.principal.user_id), create=True
        )

    def delete(self, machine: Laptop) -> None:
        for record in machine.workspaces.list(private=True)[:1]:
            machine.harness.deletion.workspace(record.id, force=True)
            if not is_private(record.id):
                self.deleted.add(record.id)

    def attach(self, machine: Laptop) -> None:
        assert machine.harness.following is not None
        offers = [one for one in machine.harness.following.offered() if not one.is_here]
        if offers:
            machine.attach(self.chance.choice(offers).id)

    def agent(self, machine: Laptop) -> None:
        if self.chance.random() < 0.5:
            names = [one.name for one in machine.workspaces.list()][:1]
            machine.harness.agents.create(f"agent {next(self.numbers)}", workspaces=names)
        else:
            for agent in machine.harness.agents.list()[:1]:
                machine.harness.deletion.agent(agent.id)

    def end(self) -> None:
        """Everybody is attached to everything, and syncs until nothing is left to do."""
        for _ in range(ROUNDS_MAX):
            busy = False
            for machine in self.machines:
                machine.again()
                assert machine.harness.following is not None
                for offer in machine.harness.following.offered():
                    if not offer.is_here:
                        machine.attach(offer.id)
                        busy = True
                followed = machine.sync()
                assert followed.troubles == []
                busy = busy or bool(followed.published or followed.applied or followed.trashed)
            if not busy:
                return
        pytest.fail("it does not end")

    def everything(self) -> str:
        """All that a person finds on any of the machines."""
        found: list[str] = []
        for machine in self.machines:
            root = machine.home_paths().root
            for area in ("workspaces", "trash"):
                found += [f.read_text() for f in (root / area).rglob("*.md") if f.is_file()]
            for git in (*(root / "history").glob("*.git"), *(root / "trash").glob("*/history.git")):
                found += texts_of(History(git, SystemClock()))
        return "\n".join(found)


def texts_of(history: History) -> Iterator[str]:
    for revision in history.log():
        for object_id in history.tree(revision.id).values():
            yield history.read(object_id).decode()


def followed_by(machine: Laptop, workspaces: set[str]) -> set[str]:
    """Agents that mount something that is there; others stay where they are."""
    return {
        agent.id
        for agent in machine.harness.agents.list()
        if not agent.config.workspaces
        or any(mount.workspace_id in workspaces for mount in agent.config.workspaces)
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_no_deleted_workspace_returns_and_no_written_line_is_lost(
    tmp_path: Path, seed: int
) -> None:
    print(f"seed {seed}")
    story = Story(tmp_path, seed)
    for _ in range(STEPS):
        story.step()
    story.end()
    one, *others = story.machines
    here = {str(record.id): record for record in one.workspaces.list(private=True)}
    for other in others:
        assert {record.id: record for record in other.workspaces.list(private=True)} == here
        for record in here.values():
            assert other.texts(record.id) == one.texts(record.id), record.id
        assert followed_by(other, set(here)) == followed_by(one, set(here))
    assert not story.deleted & here.keys()
    for workspace_id in story.deleted:
        assert isinstance(one.entry("workspace", workspace_id).entry, Tombstone)
    for workspace_id in here:
        assert isinstance(one.entry("workspace", workspace_id).entry, LiveEntry)
    alive = {one.workspaces.open(record).namespace for record in here.values()}
    there = {stat.name.split("/")[0] for stat in story.store.store.scan("fs-")}
    assert there <= alive
    everything = story.everything()
    lost = {line for line in story.written if f"{line}\n" not in everything}
    assert lost == set()
