"""A text taken out of a workspace that several machines share: in memory, with real homes."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.workspaces.conftest import AGENT
from tests.workspaces.home.test_rewrite import MARK, PERSON, REDACTION, SECRET, held_bytes
from tests.workspaces.replicas import MemoryPrefix, Replica
from tests.workspaces.two_machines import a, b, machine, place, prefix
from workspaces.home.rewrite import RewrittenWorkspace, rewrite_workspace

__all__ = ["a", "b", "machine", "place", "prefix"]

LABEL = "f_00000001"


def forget(machine: Replica) -> RewrittenWorkspace:
    return rewrite_workspace(machine.workspace, REDACTION, by=PERSON, label=LABEL)


def stored(prefix: MemoryPrefix) -> dict[str, bytes]:
    return {stat.name: prefix.store.read(stat.name).data for stat in prefix.store.scan()}


def holds_secret(data: bytes) -> bool:
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
    old = a.workspace.tip()
    packs = packs_of(prefix)
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
    assert a.workspace.tip() == b.workspace.tip()
    assert b.workspace.read("a.md", view=old).text == f"one\nmy {MARK}\nthree\n"
    assert not any(map(holds_secret, stored(prefix).values()))


def test_a_machine_that_had_nothing_of_its_own_has_the_new_history(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    filled(a, b)
    forget(a)
    b.sync.run()
    assert b.workspace.tip() == a.workspace.tip()
    assert not holds_secret(held_bytes(b.home.root))


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
