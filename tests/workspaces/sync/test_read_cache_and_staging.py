"""Bytes that sync reads once (read cache), and pulled files in staging until the rest has arrived."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.workspaces.replicas import MemoryPrefix, Replica
from tests.workspaces.two_machines import MEMORY, a, b, in_staging, machine, place, prefix
from workspaces.errors import Unavailable
from workspaces.localfs.staging import STAGED_PREFIX
from workspaces.sync.thread_pool import RESULTS_AT_ONCE

__all__ = ["a", "b", "machine", "place", "prefix"]

WAIT_S_MAX = 60.0


def test_a_sync_in_a_new_process_hashes_only_changed_files(
    a: Replica, machine: Callable[[str], Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        a.put(f"{number}.md", "x")
        os.utime(a.root / f"{number}.md", (1, 1))
    monkeypatch.setattr("workspaces.tree.scan.YOUNG_S", -3600)
    a.sync.run()
    again = machine("a")
    again.sync._get_ready()
    read = files_read(again, monkeypatch)
    a.put("3.md", "changed")
    again.sync.run()
    assert set(read) == {"3.md"}


def files_read(of: Replica, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    read: list[str] = []
    tree = of.workspace._blobs._tree
    plain = tree._opened_file
    monkeypatch.setattr(tree, "_opened_file", lambda at, n: (read.append(n), plain(at, n))[1])
    return read


def test_a_push_reads_each_file_once_through_the_read_cache(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number}.md" for number in range(50)]
    for name in names:
        a.put(name, name)
    a.workspace.edits.commit()
    read = files_read(a, monkeypatch)
    assert sorted(a.sync.run().pushed) == sorted(names)
    assert sorted(read) == sorted(names)
    b.sync.run()
    assert b.texts() == a.texts()


def test_a_file_too_large_for_the_read_cache_is_read_and_checked_again(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workspaces.sync.read_cache.BYTES_MAX", 10)
    a.put("0.md", "12345")
    a.put("1.md", "678901")
    a.put("2.md", "abcde")
    a.workspace.edits.commit()
    read = files_read(a, monkeypatch)
    settled = a.workspace.edits.committed

    def saved_meanwhile(found: Any) -> Any:
        if a.texts()["1.md"] == "678901":
            a.put("1.md", "changed")
        return settled(found)

    monkeypatch.setattr(a.workspace.edits, "committed", saved_meanwhile)
    report = a.sync.run()
    assert sorted(report.pushed) == ["0.md", "1.md", "2.md"]
    assert read.count("1.md") > read.count("0.md") == read.count("2.md")
    assert a.workspace.edits.pending() == []
    b.sync.run()
    assert b.texts() == a.texts() == {"0.md": "12345", "1.md": "changed", "2.md": "abcde"}


def test_pulled_files_are_staged_while_later_files_still_arrive(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * RESULTS_AT_ONCE
    for number in range(count):
        a.put(f"{number:03}.md", f"{number}")
    a.sync.run()
    is_aside = threading.Event()
    stage, read = b.workspace._blobs.stage, MemoryPrefix.read

    def staging(data: bytes) -> Any:
        staged = stage(data)
        is_aside.set()
        return staged

    def waiting(self: MemoryPrefix, name: str) -> Any:
        if name == f"{count - 1:03}.md":
            assert is_aside.wait(WAIT_S_MAX)
        return read(self, name)

    monkeypatch.setattr(b.workspace._blobs, "stage", staging)
    monkeypatch.setattr(MemoryPrefix, "read", waiting)
    assert len(b.sync.run().pulled) == count
    assert b.texts() == a.texts()
    assert in_staging(b) == []


def test_staged_files_are_removed_if_a_pull_fails(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2 * RESULTS_AT_ONCE):
        a.put(f"{number:03}.md", f"{number}")
    a.sync.run()
    aside: list[str] = []
    read, unstage = MemoryPrefix.read, b.workspace._blobs.unstage

    def failing(self: MemoryPrefix, name: str) -> Any:
        if name == f"{2 * RESULTS_AT_ONCE - 1:03}.md":
            raise Unavailable("S3", "does not answer")
        return read(self, name)

    def unstaging() -> None:
        aside.extend(in_staging(b))
        unstage()

    monkeypatch.setattr(b.workspace._blobs, "unstage", unstaging)
    with monkeypatch.context() as patched:
        patched.setattr(MemoryPrefix, "read", failing)
        with pytest.raises(Unavailable):
            b.sync.run()
    assert aside, "nothing was on its way"
    assert in_staging(b) == []
    assert b.texts() == {}
    b.sync.run()
    assert b.texts() == a.texts()


def test_staged_files_of_a_dead_process_are_removed_before_a_pull(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    a.put(MEMORY, "theirs\n")
    a.sync.run()
    (b.home.staging(b.workspace.namespace) / f"{STAGED_PREFIX}dead").write_bytes(b"half")
    stage, found = b.workspace._blobs.stage, list[list[str]]()

    def staging(data: bytes) -> Any:
        found.append(in_staging(b))
        return stage(data)

    monkeypatch.setattr(b.workspace._blobs, "stage", staging)
    assert b.sync.run().pulled == [MEMORY]
    assert found == [[]]


def test_a_full_disk_during_a_pull_is_named_with_a_remedy(
    a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    a.put(MEMORY, "theirs\n")
    a.sync.run()

    def full(_fd: int, _data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(Unavailable, match="the disk is full") as failure:
            b.sync.run()
    assert failure.value.remedy == "free some space and try again"
    assert in_staging(b) == []
    assert b.sync.run().pulled == [MEMORY]
