"""What durability costs: each store beside the fewest system calls that could do the same.

    python -m benchmarks.stores [directory]

Both sides of a ratio take turns, so that a noisy disk is noisy for both; figures are medians. Ratios over
their limit are marked and make the exit code 1.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from workspaces.expect import ABSENT
from workspaces.records import Key, Put, encoded
from workspaces.stores.files import FileBlobs
from workspaces.stores.sqlite import SqliteRecords

ROUNDS = 400
SIZES = (10, 1_000, 10_000, 100_000)
ENTRY = {"role": "user", "text": "a line of a transcript, as long as they usually are. " * 10}
PAGE = b"- a fact that an agent keeps about its user\n" * 100


@dataclass(frozen=True, slots=True)
class Ratio:
    name: str
    ours_s: float
    peer_s: float
    limit: float

    @property
    def ratio(self) -> float:
        return self.ours_s / self.peer_s

    def __str__(self) -> str:
        mark = "" if self.ratio <= self.limit else "  OVER"
        times = f"{self.ours_s * 1e6:9.1f} {self.peer_s * 1e6:9.1f}"
        return f"{self.name:<58} {times} {self.ratio:6.2f} {self.limit:6.2f}{mark}"


def main(directory: Path) -> int:
    print(f"{'':<58} {'ours µs':>9} {'peer µs':>9} {'ratio':>6} {'limit':>6}")
    over = 0
    for measure in (appends, newest, conditional_writes):
        for ratio in measure(directory):
            print(ratio)
            over += ratio.ratio > ratio.limit
    return 1 if over else 0


def appends(directory: Path) -> Iterator[Ratio]:
    """A record appended to a transcript of n, and the same bytes appended to a plain file."""
    bytes_ = encoded(Put(Key("t", "n"), ENTRY)).encode()
    log = os.open(directory / "append.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    first: Ratio | None = None
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

            ratio = Ratio(f"append to {wanted:,} : write + fdatasync", *in_turn(ours, peer), 1.5)
            yield ratio
            first = first or ratio
        yield Ratio(f"append to {SIZES[-1]:,} : to {SIZES[0]}", ratio.ours_s, first.ours_s, 1.5)
    os.close(log)


def newest(directory: Path) -> Iterator[Ratio]:
    with (
        closing(SqliteRecords(directory / "long.db")) as long,
        closing(SqliteRecords(directory / "short.db")) as short,
    ):
        fill(long, 0, 100_000)
        fill(short, 0, 50)
        ours, peer = in_turn(
            lambda: long.scan("t", backwards=True, limit=50),
            lambda: short.scan("t", backwards=True, limit=50),
        )
        yield Ratio("newest 50 of 100,000 : newest 50 of 50", ours, peer, 3.0)


def conditional_writes(directory: Path) -> Iterator[Ratio]:
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

        yield Ratio("conditional write : temp + fsync + rename + fsync", *in_turn(ours, peer), 1.3)


def in_turn(ours: Callable[[], object], peer: Callable[[], object]) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    for n in range(2 * ROUNDS):
        for side in (0, 1) if n % 2 else (1, 0):
            begin = time.perf_counter()
            (ours, peer)[side]()
            times[side].append(time.perf_counter() - begin)
    return median(times[0]), median(times[1])


def fill(store: SqliteRecords, begin: int, end: int) -> None:
    for first in range(begin, end, 100):
        store.write(*(Put(key(n), ENTRY, ABSENT) for n in range(first, min(first + 100, end))))


def key(n: int) -> Key:
    return Key("t", f"{n:08}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else ".") as name:
        sys.exit(main(Path(name)))
