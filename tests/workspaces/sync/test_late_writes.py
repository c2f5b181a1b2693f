"""Safe replace: sync or a program exchanges a file while a person or a shell writes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests.workspaces.conftest import CALLER
from tests.workspaces.replicas import Replica
from tests.workspaces.two_machines import (
    MEMORY,
    a,
    at_the_next_exchange,
    b,
    filled,
    machine,
    place,
    prefix,
)
from workspaces.clock import ManualClock
from workspaces.errors import AlreadyExists
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.in_memory import MemoryRecords
from workspaces.sync.baseline import BaselineChange
from workspaces.sync.survey import Survey
from workspaces.tree.port import Label

__all__ = ["a", "b", "machine", "place", "prefix"]


def in_the_next_pause(machine: Replica, do: Callable[[], object]) -> None:
    """Before the second look at what was displaced; the looks that follow wait for nothing."""

    def pause(_seconds: float) -> None:
        machine.sync._pause = lambda _: None
        do()

    machine.sync._pause = pause


def sync_while_a_shell_appends(machine: Replica, path: str) -> None:
    """It had the file open before, and writes right before the second look."""
    with (machine.root / path).open("a") as shell:

        def pause() -> None:
            shell.write("late\n")
            shell.flush()

        in_the_next_pause(machine, pause)
        machine.sync.run()


def test_the_state_in_the_middle_of_a_safe_replace_does_not_enter_the_baseline(
    a: Replica, machine: Callable[[str], Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program writes and a person saves; another process looks before what came out is given back."""
    a.put(MEMORY, "one\n")
    a.sync.run()
    other = machine("a")
    is_shown, is_over = threading.Event(), threading.Event()
    exchange, survey = a.workspace._blobs.exchange, other.sync._surveyor.survey

    def exchanged(label: Label, path: WorkspacePath) -> None:
        if is_shown.is_set():
            exchange(label, path)
            return
        a.put(MEMORY, "one\nby hand\n")
        exchange(label, path)
        is_shown.set()
        is_over.wait(timeout=0.5)  # of the other as much as can be done meanwhile

    def write() -> None:
        a.workspace.write(MEMORY, "one\ntold\n", by=CALLER, expect=version_of(b"one\n"))

    writing = threading.Thread(target=write)

    def surveyed() -> Survey:
        if not is_shown.is_set():
            writing.start()
            assert is_shown.wait(timeout=60)
        return survey()

    monkeypatch.setattr(a.workspace._blobs, "exchange", exchanged)
    monkeypatch.setattr(other.sync._surveyor, "survey", surveyed)
    other.sync.run()
    is_over.set()
    writing.join(timeout=60)
    a.sync.run()
    assert sorted(a.texts()[MEMORY].splitlines()) == ["by hand", "one", "told"]


def test_a_file_replaced_during_another_late_write_check_gets_its_own_check(
    a: Replica, b: Replica, machine: Callable[[str], Replica]
) -> None:
    filled(a, b, 2)
    b.put("0.md", "theirs\n")
    b.sync.run()
    other = machine("a")
    with (a.root / "1.md").open("a") as shell:

        def pause(seconds: float) -> None:
            if a.workspace.read("1.md").text == "1\n":
                a.workspace.write("1.md", "told\n", by=CALLER, expect=version_of(b"1\n"))

        other.sync._pause = pause
        other.sync.run()
        assert a.texts()["1.md"] == "told\n"
        shell.write("late\n")
    other.sync.run()
    assert a.texts() == {"0.md": "theirs\n", "1.md": "told\nlate\n"}


@pytest.mark.parametrize(
    ("file", "stands", "beside"),
    [
        ("notes/1.md", "notes/1.md/in.md", "notes/1.conflict-{}.md"),
        ("notes/1.md", "notes", "1.conflict-{}.md"),
    ],
)
def test_a_late_write_whose_path_is_occupied_becomes_a_conflict_copy(
    a: Replica, b: Replica, file: str, stands: str, beside: str
) -> None:
    filled(a, b)
    a.put(file, "one\n")
    a.sync.run()
    b.sync.run()
    b.put(file, "two\n")
    b.sync.run()
    with (a.root / file).open("a") as shell:

        def pause() -> None:
            shell.write("late\n")
            shell.flush()
            (a.root / file).unlink()
            if stands == "notes":
                (a.root / stands).rmdir()
            a.put(stands, "in its place\n")

        in_the_next_pause(a, pause)
        a.sync.run()
    a.sync.run()
    beside = beside.format(version_of(b"one\nlate\n")[:12])
    texts = a.texts()
    assert (texts[beside], texts[stands]) == ("one\nlate\n", "in its place\n")
    assert a.workspace.displaced() == []


def test_a_late_append_to_a_pulled_file_does_not_claim_the_pulled_keys_as_its_own_change(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person saves while a swap is under way, and a shell opens what goes in before the two are merged. The
    value that came in with it is nobody's here."""
    a.put(MEMORY, "---\nmood: calm\n---\none\n")
    a.sync.run()
    b.sync.run()
    b.put(MEMORY, "---\nmood: glad\n---\none\n")
    b.sync.run()
    exchange = a.workspace._blobs.exchange
    shells: list[TextIO] = []

    def exchanged(label: Label, path: WorkspacePath) -> None:
        monkeypatch.setattr(a.workspace._blobs, "exchange", exchange)
        a.put(MEMORY, "---\nmood: calm\n---\none\nby hand\n")
        exchange(label, path)
        shells.append((a.root / MEMORY).open("a"))

    def pause() -> None:
        b.put(MEMORY, "---\nmood: gladder\n---\none\n")
        b.sync.run()
        shells[0].write("late\n")
        shells[0].close()

    monkeypatch.setattr(a.workspace._blobs, "exchange", exchanged)
    in_the_next_pause(a, pause)
    a.sync.run()
    front, *lines = a.texts()[MEMORY].removeprefix("---\n").replace("---\n", "").splitlines()
    assert front == "mood: gladder"
    assert sorted(lines) == ["by hand", "late", "one"]


@pytest.fixture
def apart(tmp_path: Path, place: SharedBucket) -> Callable[[str], Replica]:
    """Machines by name, as `machine`; the clock of `b` is two days ahead."""
    records, clocks = MemoryRecords(), {"a": ManualClock(), "b": ManualClock()}
    clocks["b"].advance(2 * 86_400)
    return lambda name: Replica(tmp_path / name, records, place, clocks[name])


def test_a_manual_edit_of_a_file_just_pulled_wins_whatever_the_other_clock_says(
    apart: Callable[[str], Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has saved right before it came in, and the other machine's clock is two days ahead."""
    a, b = apart("a"), apart("b")
    a.put(MEMORY, "---\nmood: calm\n---\none\n")
    a.sync.run()
    b.sync.run()
    b.put(MEMORY, "---\nmood: glad\n---\none\n")
    b.sync.run()
    at_the_next_exchange(
        a,
        monkeypatch,
        before="---\nmood: calm\n---\none\nby hand\n",
        after="---\nmood: mine\n---\none\n",
    )
    for one in (a, b, a):
        one.sync.run()
    assert a.texts() == b.texts() == {MEMORY: "---\nmood: mine\n---\none\nby hand\n"}


def test_every_save_during_a_safe_replace_is_merged_back(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    saves = iter(("first\n", "second\n", "third\n"))
    exchange = a.workspace._blobs.exchange

    def exchanged(label: Label, path: WorkspacePath) -> None:
        a.put(MEMORY, a.texts()[MEMORY] + next(saves, ""))
        exchange(label, path)

    monkeypatch.setattr(a.workspace._blobs, "exchange", exchanged)
    a.workspace.write(MEMORY, "one\ntold\n", by=CALLER, expect=version_of(b"one\n"))
    assert sorted(a.texts()[MEMORY].split()) == ["first", "one", "second", "third", "told"]
    blamed = {line.text: line.author for line in a.workspace.history.blame(WorkspacePath(MEMORY))}
    assert blamed.pop("told") == CALLER.name
    assert set(blamed.values()) == {a.workspace._person.name}
    a.sync.run()
    b.sync.run()
    assert a.texts() == b.texts()
    assert a.workspace.displaced() == []


def test_a_merged_save_that_a_person_removed_is_not_merged_again_by_a_late_write(
    a: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look finds the save as it was given back, and what a shell appended to it after that."""
    a.put(MEMORY, "one\n")
    a.sync.run()
    shells: list[TextIO] = []
    at_the_next_exchange(
        a,
        monkeypatch,
        before="one\nby hand\n",
        opened=lambda: shells.append((a.root / MEMORY).open("a")),
    )
    a.workspace.write(MEMORY, "one\ntold\n", by=CALLER, expect=version_of(b"one\n"))
    assert sorted(a.texts()[MEMORY].split()) == ["by", "hand", "one", "told"]
    a.put(MEMORY, "one\ntold\n")
    shells[0].write("late\n")
    shells[0].close()
    a.sync.run()
    assert a.texts() == {MEMORY: "one\ntold\nlate\n"}


@pytest.mark.parametrize("is_undone", [False, True])
@pytest.mark.parametrize("sender", ["program", "watcher"])
def test_a_manual_edit_before_a_push_reaches_the_baseline_is_not_undone(
    apart: Callable[[str], Replica], monkeypatch: pytest.MonkeyPatch, sender: str, is_undone: bool
) -> None:
    """It is in the store and here, and not yet in its row; the other machine has built on it. What another
    process of this one brings now comes from what was sent, and not from what was before."""
    a, b = apart("a"), apart("b")
    first, sent = "---\nmood: calm\n---\none\n", "---\nmood: sent\n---\none\nsent\n"
    here = first if is_undone else "---\nmood: mine\n---\none\nsent\n"
    a.put(MEMORY, first)
    a.sync.run()
    other = apart("a")
    syncing = threading.Thread(target=other.sync.refresh, args=[WorkspacePath(MEMORY)])
    take = a.sync._baseline.take

    def taken(given: Iterable[BaselineChange], *, wait: bool = True) -> None:
        steps = list(given)
        if not steps:
            return
        monkeypatch.setattr(a.sync._baseline, "take", take)
        b.sync.run()
        b.put(MEMORY, "---\nmood: sent\n---\ntheirs\none\nsent\n")
        b.sync.run()
        a.put(MEMORY, here)
        syncing.start()
        syncing.join(timeout=0.5)  # as far as it comes
        take(steps, wait=wait)

    monkeypatch.setattr(a.sync._baseline, "take", taken)
    if sender == "program":
        a.workspace.write(MEMORY, sent, by=CALLER, expect=version_of(first.encode()))
    else:
        a.put(MEMORY, sent)
        a.sync.push([WorkspacePath(MEMORY)])
    syncing.join(timeout=60)
    for one in (a, b):
        one.sync.run()
    assert a.texts() == b.texts() == {MEMORY: here.replace("one", "theirs\none")}


def test_a_late_write_to_a_deleted_file_with_a_long_name_restores_the_file(
    a: Replica, b: Replica
) -> None:
    """A label has no room for it, and says a hash."""
    path = f"n/{'x' * 190}.md"
    a.put(path, "one\n")
    a.put("kept.md", "kept\n")
    a.sync.run()
    b.sync.run()
    (b.root / path).unlink()
    b.sync.run()
    sync_while_a_shell_appends(a, path)
    assert a.texts()[path] == "one\nlate\n"
    assert a.workspace.displaced() == []


def test_a_file_created_during_a_safe_replace_without_exchange_is_merged(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    b.sync.run()
    b.put(MEMORY, "one\ntheirs\n")
    b.sync.run()
    aside = a.workspace._blobs._aside
    take = aside.take

    def taken(*where: Any) -> None:
        take(*where)
        monkeypatch.setattr(aside, "take", take)
        a.put(MEMORY, "one\nmine\n")

    monkeypatch.setattr(aside, "exchange", lambda *_: False)
    monkeypatch.setattr(aside, "take", taken)
    a.sync.run()
    b.sync.run()
    assert a.texts() == b.texts()
    assert sorted(a.texts()[MEMORY].split()) == ["mine", "one", "theirs"]


def test_a_late_append_does_not_restore_lines_deleted_on_another_machine(
    a: Replica, b: Replica
) -> None:
    a.put(MEMORY, "one\ntwo\n")
    a.sync.run()
    b.sync.run()
    b.put(MEMORY, "one\n")
    b.sync.run()
    sync_while_a_shell_appends(a, MEMORY)
    assert a.texts() == {MEMORY: "one\nlate\n"}


def test_a_version_replaced_by_the_late_write_check_is_in_a_revision(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what was written a moment ago, between the revision that it begins with and the swap."""
    filled(a, b, 2)
    b.put("0.md", "theirs\n")
    b.sync.run()
    look = a.workspace._blobs.look
    with (a.root / "0.md").open("a") as shell:

        def pause() -> None:
            monkeypatch.setattr(a.workspace._blobs, "look", looked)
            shell.write("late\n")
            shell.flush()

        def looked(label: Label) -> bytes | None:
            if a.texts()["0.md"] == "theirs\n":
                a.put("0.md", "theirs\nfresh\n")
            return look(label)

        in_the_next_pause(a, pause)
        a.sync.run()
    assert a.texts()["0.md"] == "theirs\nfresh\nlate\n"
    assert a.workspace.find_version("0.md", version_of(b"theirs\nfresh\n")) is not None


def test_a_file_prepared_for_a_safe_replace_is_not_listed_as_displaced(
    a: Replica, machine: Callable[[str], Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    a.put(MEMORY, "one\n")
    a.sync.run()
    found: list[Label] = []
    other = machine("a").workspace
    looking = threading.Thread(target=lambda: found.extend(other.displaced()))
    prepare = a.workspace._blobs.prepare

    def prepared(files: Mapping[Label, bytes]) -> None:
        prepare(files)
        looking.start()
        looking.join(timeout=0.3)  # as far as it comes
        assert found == []

    monkeypatch.setattr(a.workspace._blobs, "prepare", prepared)
    a.workspace.write(MEMORY, "told\n", by=CALLER, expect=version_of(b"one\n"))
    looking.join(timeout=60)
    assert [other._blobs.look(label) for label in found] == [b"one\n"]


# Where the file system cannot exchange two files in one step.


def deleted_elsewhere(a: Replica, b: Replica) -> None:
    """And not yet here."""
    a.put(MEMORY, "one\n")
    a.sync.run()
    b.sync.run()
    (b.root / MEMORY).unlink()
    b.sync.run(accept_deletions=True)


def test_a_save_during_a_pulled_deletion_is_restored_without_exchange(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted_elsewhere(a, b)
    tree = a.workspace._blobs
    take = tree.take

    def taken(path: WorkspacePath, label: Label) -> None:
        a.put(MEMORY, "one\nby hand\n")
        take(path, label)

    monkeypatch.setattr(tree._aside, "exchange", lambda *_: False)  # type: ignore[attr-defined]
    monkeypatch.setattr(tree, "take", taken)
    a.sync.run(accept_deletions=True)
    b.sync.run()
    assert a.texts() == b.texts() == {MEMORY: "one\nby hand\n"}


def test_a_save_during_a_pulled_deletion_survives_if_the_file_is_created_again(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted_elsewhere(a, b)
    aside = a.workspace._blobs._aside  # type: ignore[attr-defined]
    take = aside.take
    saves = ["one\nby hand\n"]

    def taken(*where: Any) -> None:
        if saves:
            a.put(MEMORY, saves.pop())
        take(*where)
        if len(made) < 2:
            made.append(f"new {len(made)}\n")
            a.put(MEMORY, made[-1])

    made: list[str] = []
    monkeypatch.setattr(aside, "exchange", lambda *_: False)
    monkeypatch.setattr(aside, "take", taken)
    with suppress(AlreadyExists):
        a.sync.run(accept_deletions=True)
    monkeypatch.undo()
    a.sync.run()
    told = "".join(a.texts().values())
    assert "by hand\n" in told
    assert all(line in told for line in made)
    assert a.workspace.displaced() == []
