"""A text taken out of a workspace that several machines share: in memory, with real homes."""

from __future__ import annotations

import os
import random
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.workspaces.conftest import AGENT
from tests.workspaces.home.test_rewrite import MARK, PERSON, REDACTION, SECRET, held_bytes
from tests.workspaces.replicas import MemoryPrefix, Replica
from tests.workspaces.two_machines import a, at_the_next_exchange, b, machine, place, prefix
from workspaces.errors import Unavailable
from workspaces.history.git import repack
from workspaces.history.git.branch import Branch
from workspaces.home.rewrite import RewrittenWorkspace, rewrite_workspace
from workspaces.paths import WorkspacePath
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.faulty import FaultyBlobs, StoreFault
from workspaces.storage.in_memory import MemoryBlobs, MemoryRecords
from workspaces.sync.baseline import Baseline
from workspaces.sync.replication import Replication
from workspaces.tree.port import Label
from workspaces.tree.safe_replace import SafeReplace

__all__ = ["a", "b", "machine", "place", "prefix"]

LABEL = "f_00000001"
SOAK = bool(os.environ.get("SOAK"))


def forget(machine: Replica) -> RewrittenWorkspace:
    return rewrite_workspace(machine.workspace, REDACTION, by=PERSON, label=LABEL)


def stored(prefix: MemoryPrefix) -> dict[str, bytes]:
    return {stat.name: prefix.store.read(stat.name).data for stat in prefix.store.scan()}


def inflated(bundle: bytes) -> Iterator[bytes]:
    """What the pack of a bundle holds: each object, or what a delta inserts."""
    pack = bundle[bundle.index(b"PACK") :]
    at = 12
    while at < len(pack) - 20:
        kind = pack[at] >> 4 & 7
        while pack[at] & 128:
            at += 1
        at += 1
        if kind == 7:  # a delta names its base by id
            at += 20
        elif kind == 6:  # or by distance
            while pack[at] & 128:
                at += 1
            at += 1
        stream = zlib.decompressobj()
        yield stream.decompress(pack[at:])
        at = len(pack) - len(stream.unused_data)


def holds_secret(data: bytes) -> bool:
    if data.startswith(b"# v2 git bundle"):
        return any(map(holds_secret, inflated(data)))
    return re.search(rb"card[ -]4111[ -]2222", data, re.IGNORECASE) is not None


def packs_of(prefix: MemoryPrefix) -> set[str]:
    return {name for name in stored(prefix) if name.endswith(".bundle")}


def filled(a: Replica, b: Replica) -> None:
    a.workspace.write("a.md", "one\ntwo\nthree\n", by=AGENT)
    a.sync.run()
    a.workspace.write("a.md", f"one\nmy {SECRET}\nthree\n", by=AGENT)
    a.workspace.write("b.md", "b\n", by=AGENT)
    a.sync.run()
    b.sync.run()


def test_a_text_goes_from_the_store_and_from_a_machine_that_was_offline_and_changed_files(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    filled(a, b)
    old = a.workspace.history.tip()
    packs = packs_of(prefix)
    assert sum(map(holds_secret, stored(prefix).values())) == 2, "a file and a pack"
    b.workspace.write("own.md", "written offline\n", by=AGENT)
    b.put("a.md", f"one\nmy {SECRET}\nthree\nand four\n")
    assert old is not None

    done = forget(a)
    assert old in done.renamed
    assert not any(map(holds_secret, stored(prefix).values()))
    assert len(packs_of(prefix) - packs) == 1, "what was before the text keeps its pack"
    assert not holds_secret(held_bytes(a.home.root))

    report = b.sync.run()
    assert report.unfollowed is None
    assert b.texts()["a.md"] == f"one\nmy {MARK}\nthree\nand four\n"
    assert b.texts()["own.md"] == "written offline\n"
    assert not holds_secret(held_bytes(b.home.root))
    a.sync.run()
    assert a.texts() == b.texts()
    assert a.workspace.history.tip() == b.workspace.history.tip()
    assert b.workspace.read("a.md", view=old).text == f"one\nmy {MARK}\nthree\n"
    assert not any(map(holds_secret, stored(prefix).values()))


def test_a_machine_that_had_nothing_of_its_own_has_the_new_history(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    filled(a, b)
    forget(a)
    b.sync.run()
    assert b.workspace.history.tip() == a.workspace.history.tip()
    assert not holds_secret(held_bytes(b.home.root))


class Gate:
    """What an account forbids, as a machine knows it."""

    def version(self, *, is_fresh: bool = False) -> int:
        del is_fresh
        return 1

    def changed(self, *_change: object, take_pass: bool) -> list[object]:
        del take_pass
        return []

    def refused(self, _places: object) -> None:
        raise AssertionError("nothing is refused")

    def mended(self, _before: bytes | None, after: bytes) -> bytes | None:
        return after.replace(SECRET.encode(), MARK.encode())


def test_what_a_machine_had_not_shared_is_checked_like_a_strangers(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    filled(a, b)
    forget(a)
    b.workspace.write("own.md", f"in a revision: {SECRET}\n", by=AGENT)
    b.workspace.write("other.md", "and another\n", by=AGENT)
    b.workspace.edits.protection.gate = Gate()  # pyright: ignore[reportAttributeAccessIssue]
    b.sync.run()
    a.sync.run()
    assert a.texts() == b.texts()
    assert a.texts()["own.md"] == f"in a revision: {MARK}\n"
    (newest, before) = a.workspace.log(limit=2)
    assert sorted(newest.paths) == ["other.md", "own.md"]
    assert "Forgot" in before.trailers
    for one in (a, b):
        assert not holds_secret(held_bytes(one.home.root))
    assert not any(map(holds_secret, stored(prefix).values()))


def test_what_people_save_meanwhile_stays_without_the_text(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(a, b)
    saved = f"one\nmy {SECRET}\nthree\nsaved right before\nand {SECRET} again\n"
    opened: list[IO[str]] = []
    at_the_next_exchange(
        a,
        monkeypatch,
        before=saved,
        opened=lambda: opened.append((a.root / "a.md").open("a")),
    )
    exchange = a.workspace._blobs.exchange

    def exchanged(label: Label, path: WorkspacePath) -> None:
        exchange(label, path)
        while opened:
            with opened.pop() as file:
                file.write("appended right after\n")

    monkeypatch.setattr(a.workspace._blobs, "exchange", exchanged)
    forget(a)
    assert a.texts()["a.md"] == saved.replace(SECRET, MARK) + "appended right after\n"
    assert not holds_secret(held_bytes(a.home.root))
    b.sync.run()
    assert a.texts() == b.texts()


def test_packs_that_a_machine_wrote_before_it_heard_are_deleted(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    filled(a, b)
    forget(a)
    b.workspace.write("own.md", f"in a revision: {SECRET}\n", by=AGENT)
    b.sync.push_dirty()
    assert b.workspace.history.tip() != a.workspace.history.tip()
    forget(b)
    a.sync.run()
    assert a.workspace.history.tip() == b.workspace.history.tip()
    assert a.texts() == b.texts()
    for one in (a, b):
        assert not holds_secret(held_bytes(one.home.root))
    assert not any(map(holds_secret, stored(prefix).values()))


def test_another_machine_that_is_faster_makes_the_steps_begin_again(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    filled(a, b)
    replace_history = a.sync.replace_history
    others: list[Callable[[], object]] = [
        lambda: (b.workspace.write("b.md", f"again {SECRET}\n", by=AGENT), b.sync.run())
    ]

    def later(*args: object, **named: object) -> object:
        if others:
            others.pop()()
        return replace_history(*args, **named)  # pyright: ignore[reportArgumentType]

    a.sync.replace_history = later  # pyright: ignore[reportAttributeAccessIssue]
    forget(a)
    assert a.texts()["b.md"] == f"again {MARK}\n"
    b.sync.run()
    for one in (a, b):
        assert not holds_secret(held_bytes(one.home.root))
    assert not any(map(holds_secret, stored(prefix).values()))


class Killed(BaseException):
    """The process ends here."""


class Network:
    """The network of one machine: it carries so many requests, and then none."""

    def __init__(self) -> None:
        self.store = MemoryBlobs()
        self.carries: int | None = None
        self.last = StoreFault.NONE
        """What happens to the last request that it carries."""

    def prefix(self) -> MemoryPrefix:
        return MemoryPrefix(FaultyBlobs(self.store, self._plan()))

    def _plan(self) -> Iterator[StoreFault]:
        while True:
            if self.carries is None:
                yield StoreFault.NONE
                continue
            self.carries -= 1
            is_last = self.carries == 0
            yield (
                self.last if is_last else StoreFault.BEFORE if self.carries < 0 else StoreFault.NONE
            )


def test_after_any_lost_request_a_repetition_goes_on(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    network, records = Network(), MemoryRecords()
    place = SharedBucket("memory:", network.prefix())
    a = Replica(tmp_path / "a", records, place)
    b = Replica(tmp_path / "b", records, place)
    filled(a, b)
    b.workspace.write("own.md", "written offline\n", by=AGENT)
    carried, failures = 0, 0
    while True:
        carried += 1 if SOAK else chance.randint(3, 6)
        network.carries = carried
        network.last = chance.choice((StoreFault.NONE, StoreFault.BEFORE, StoreFault.AFTER))
        try:
            forget(Replica(tmp_path / "a", records, place))
            break
        except Unavailable:
            failures += 1
    network.carries = None
    assert failures
    a = Replica(tmp_path / "a", records, place)
    assert not holds_secret(held_bytes(a.home.root))
    b.sync.run()
    a.sync.run()
    assert (
        a.texts()
        == b.texts()
        == {"a.md": f"one\nmy {MARK}\nthree\n", "b.md": "b\n", "own.md": "written offline\n"}
    )
    assert not holds_secret(held_bytes(b.home.root))
    assert not any(map(holds_secret, stored(MemoryPrefix(network.store)).values()))


KILLS: tuple[tuple[object, str], ...] = (
    (SafeReplace, "put"),
    (Branch, "move"),
    (Replication, "_move_head"),
    (repack, "note_erasure"),
    (repack, "_pack_reachable"),
    (repack, "_remove_all"),
    (Replication, "erase_replaced"),
    (Baseline, "erase_deleted"),
    (repack, "end_erasure"),
)


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_a_kill_at_any_step_a_repetition_goes_on(
    when: str, tmp_path: Path, prefix: MemoryPrefix, place: SharedBucket
) -> None:
    records = MemoryRecords()
    a = Replica(tmp_path / "a", records, place)
    b = Replica(tmp_path / "b", records, place)
    filled(a, b)
    a.put("c.md", f"by hand: {SECRET}\n")
    for place_of, name in KILLS:
        step = getattr(place_of, name)

        def killed(*args: object, step: Callable[..., object] = step, **named: object) -> object:
            if when == "after":
                step(*args, **named)
            raise Killed

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(place_of, name, killed)
            try:
                forget(Replica(tmp_path / "a", records, place))
            except Killed:
                continue
        assert when == "after", f"{name} was never reached"
    a = Replica(tmp_path / "a", records, place)
    forget(a)
    b.sync.run()
    assert a.texts() == b.texts()
    assert a.texts()["c.md"] == f"by hand: {MARK}\n"
    for one in (a, b):
        assert not holds_secret(held_bytes(one.home.root))
    assert not any(map(holds_secret, stored(prefix).values()))
