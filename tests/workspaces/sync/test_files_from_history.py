"""Files that sync reads from the fetched history instead of fetching each from S3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.workspaces.replicas import MemoryPrefix, Replica
from tests.workspaces.simulation import md5_tag
from tests.workspaces.two_machines import a, b, machine, place
from workspaces.conditions import ANY
from workspaces.errors import Unavailable
from workspaces.history.git.object_view import ObjectView
from workspaces.paths import WorkspacePath
from workspaces.storage.blobs import Token
from workspaces.storage.in_memory import MemoryBlobs
from workspaces.sync.thread_pool import THREADS

__all__ = ["a", "b", "machine", "place"]

MANY = THREADS + 8


def keyed_tag(data: bytes) -> Token:
    """As S3 tags what is encrypted with a key of the customer's."""
    return md5_tag(b"a secret" + data)


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> MemoryPrefix:
    return MemoryPrefix(MemoryBlobs(getattr(request, "param", md5_tag)))


def fill(one: Replica, files: int = MANY) -> None:
    for number in range(files):
        one.put(f"notes/{number:03}.md", f"{number}\n")
    one.sync.run()


def fetched(prefix: MemoryPrefix, by: Replica) -> list[str]:
    """The files that a sync asks for."""
    prefix.asked.clear()
    by.sync.run()
    return sorted(one for one in prefix.asked if one.startswith("GET") and one.endswith(".md"))


def assert_at_rest(a: Replica, b: Replica) -> None:
    for one in (b, a, b):
        report = one.sync.run()
        assert (report.pulled, report.pushed, report.merged) == ([], [], [])
    assert a.texts() == b.texts()
    assert a.workspace.history.tip() == b.workspace.history.tip()


def test_sync_reads_many_changed_files_from_the_fetched_history(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    fill(a)
    assert fetched(prefix, b) == []
    assert len(b.texts()) == MANY
    assert_at_rest(a, b)
    for number in range(MANY):
        a.put(f"notes/{number:03}.md", f"{number}\nand more\n")
    a.put("new.md", "0\n")
    (a.root / "notes" / "000.md").unlink()
    a.sync.run()
    assert fetched(prefix, b) == []
    assert len(b.texts()) == MANY
    assert_at_rest(a, b)


def test_sync_fetches_a_few_changed_files_from_s3_itself(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    fill(a, THREADS)
    assert len(fetched(prefix, b)) == THREADS
    assert_at_rest(a, b)


@pytest.mark.parametrize("prefix", [keyed_tag, None], indirect=True)
def test_sync_fetches_all_files_if_tokens_do_not_identify_their_bytes(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    fill(a)
    assert len(fetched(prefix, b)) == MANY
    assert_at_rest(a, b)


def test_sync_fetches_files_in_the_bucket_that_the_history_lacks(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    fill(a)
    there = prefix.below(a.workspace.namespace)
    there.write("notes/007.md", b"by hand\n", expect=ANY)
    there.write("notes/new.md", b"by hand\n", expect=ANY)
    assert fetched(prefix, b) == ["GET notes/007.md", "GET notes/new.md"]
    assert b.texts()["notes/007.md"] == b.texts()["notes/new.md"] == "by hand\n"
    a.sync.run()
    assert_at_rest(a, b)


def test_sync_fetches_a_file_that_must_be_merged(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    """Who has set a key later is told beside the object."""
    fill(a)
    b.put("notes/007.md", "mine\n")
    assert fetched(prefix, b) == ["GET notes/007.md"]
    a.sync.run()
    assert b.texts()["notes/007.md"] == a.texts()["notes/007.md"]


def test_sync_fetches_all_files_if_the_history_is_unusable(
    a: Replica, b: Replica, prefix: MemoryPrefix
) -> None:
    fill(a)
    for name in list(prefix.store._blobs):
        if name.endswith(".bundle"):
            prefix.store.write(name, b"no bundle", expect=ANY)
    assert len(fetched(prefix, b)) == MANY
    assert len(b.texts()) == MANY
    assert b.sync.run().unfollowed is not None


def test_sync_fetches_files_that_cannot_be_read_from_the_history(
    a: Replica, b: Replica, prefix: MemoryPrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ObjectView.files

    def failing(self: ObjectView, *asked: Any) -> Iterator[tuple[WorkspacePath, bytes]]:
        found = files(self, *asked)
        yield next(found)
        raise Unavailable("git cat-file", "was killed")

    fill(a)
    monkeypatch.setattr(ObjectView, "files", failing)
    assert len(fetched(prefix, b)) == MANY - 1
    assert_at_rest(a, b)
