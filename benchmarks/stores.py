"""What durability costs: each store beside the fewest system calls that could do the same."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing
from pathlib import Path

from benchmarks.ratio import compare, report
from workspaces.conditions import ABSENT
from workspaces.storage.records import Key, Put, encoded
from workspaces.storage.sqlite import SqliteRecords
from workspaces.tree.directory import FileBlobs

ROUNDS = 800
SIZES = (10, 1_000, 10_000, 100_000)
ENTRY = {"role": "user", "text": "a line of a transcript, as long as they usually are. " * 10}
PAGE = b"- a fact that an agent keeps about its user\n" * 100


def main() -> None:
    with tempfile.TemporaryDirectory(dir=".") as name:  # a real disk: /tmp may be memory
        directory = Path(name)
        _appends(directory)
        _newest(directory)
        _conditional_writes(directory)


def _appends(directory: Path) -> None:
    """A record appended to a transcript of n, and the same bytes appended to a plain file."""
    bytes_ = encoded(Put(Key("t", "n"), ENTRY)).encode()
    log = os.open(directory / "append.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    medians: list[float] = []
    with closing(SqliteRecords(directory / "append.db")) as store:
        size = 0
        for wanted in SIZES:
            fill(store, size, wanted)
            size = wanted

            def ours() -> None:
                nonlocal size
                store.write(Put(key(size), ENTRY, expect=ABSENT))
                size += 1

            def peer() -> None:
                os.write(log, bytes_)
                os.fdatasync(log)

            appended, bare = compare(ours, peer, rounds=ROUNDS)
            report(f"record append to {wanted:,} / write + fdatasync", appended, bare, at_most=1.5)
            medians.append(appended)
    report("record append to 100,000 / to 10", medians[-1], medians[0], at_most=1.5)
    os.close(log)


def _newest(directory: Path) -> None:
    with (
        closing(SqliteRecords(directory / "long.db")) as long,
        closing(SqliteRecords(directory / "short.db")) as short,
    ):
        fill(long, 0, 100_000)
        fill(short, 0, 50)
        ours, peer = compare(
            lambda: long.scan("t", backwards=True, limit=50),
            lambda: short.scan("t", backwards=True, limit=50),
            rounds=ROUNDS,
        )
        report("newest 50 of 100,000 records / newest 50 of 50", ours, peer, at_most=3)


def _conditional_writes(directory: Path) -> None:
    """A file replaced under a condition, and the least that replaces one durably."""
    for name in ("tree", "staging", "hand"):
        (directory / name).mkdir()
    with closing(FileBlobs(directory / "tree", directory / "staging")) as store:
        token = store.write("notes/a.md", PAGE, expect=ABSENT)
        hand = directory / "hand"
        count = 0

        def ours() -> None:
            nonlocal token, count
            count += 1
            token = store.write("notes/a.md", PAGE + b"%d" % count, expect=token)

        def peer() -> None:
            fd = os.open(hand / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(fd, PAGE + b"%d" % count)
            os.fsync(fd)
            os.close(fd)
            (hand / "new").rename(hand / "a.md")
            parent = os.open(hand, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(parent)
            os.close(parent)

        written, bare = compare(ours, peer, rounds=ROUNDS)
        claim = "local conditional write / temp + fsync + rename + fsync of the directory"
        report(claim, written, bare, at_most=1.3)


def fill(store: SqliteRecords, begin: int, end: int) -> None:
    for first in range(begin, end, 100):
        store.write(*(Put(key(n), ENTRY, ABSENT) for n in range(first, min(first + 100, end))))


def key(n: int) -> Key:
    return Key("t", f"{n:08}")


if __name__ == "__main__":
    main()
