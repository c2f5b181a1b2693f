"""A chamber of a quarantine: a git directory of its own, in which one pack is unpacked, listed and read.

While it is unpacked it sees what lies elsewhere, if it may build on that; bases of deltas that lie there are
brought in. From then on it sees nothing but itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import compress
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, NamedTuple, cast

from workspaces.errors import Refused, Unavailable
from workspaces.history.git.bundle import BUNDLE_BYTES_MAX
from workspaces.history.git.objects import ObjectId, sync, unwritable
from workspaces.history.git.program import open_git_session, run_git

HELD_BYTES_MAX = 32 * 2**20
"""Of one file: of larger ones git holds a piece at a time."""

LISTED_BYTES = 64 * 1024
"""Of what git lists, at once: a thousand objects."""

KINDS = ("commit", "tree", "blob")


class ObjectListing(NamedTuple):
    """Of each object the same place in three lists: twenty thousand tuples would be walked through by the
    garbage collector, again and again."""

    kinds: list[str]
    ids: list[ObjectId]
    sizes: list[int]


class QuarantineStage:
    def __init__(self, directory: Path, pack: bytes, *, seeing: Sequence[Path]) -> None:
        """In a directory that is not there yet. `seeing`: where objects lie that the pack may build on.
        Refused when git finds it damaged, or leading to what is nowhere."""
        self._directory = directory
        self._found = ObjectListing([], [], [])
        self._is_listed = False
        self._is_durable = False
        elsewhere = make_git_directory(directory, seeing=seeing)
        try:
            self._unpack(pack)
        except Unavailable as failure:
            shutil.rmtree(directory, ignore_errors=True)
            raise Refused("bundle", "in S3", f"is not good: {failure.reason}") from failure
        elsewhere.unlink()

    @property
    def objects(self) -> Path:
        return self._directory / "objects"

    def found(self) -> ObjectListing:
        """All that was unpacked, in the order in which it is read fastest."""
        for _ in self.listing():
            pass
        return self._found

    def read(
        self,
        kinds: Collection[str] = KINDS,
        check: Callable[[ObjectListing], None] = lambda _: None,
    ) -> Generator[tuple[str, ObjectId, bytes]]:
        """Kind, id and bytes of each of these kinds, while git lists and unpacks the next ones. `check` is
        told of all that are listed, before any of them is read; what it raises ends the reading. Close it
        where it is not gone through to the end."""
        wanted: SimpleQueue[list[tuple[str, ObjectId, int]] | None] = SimpleQueue()

        def ask(told: BinaryIO) -> None:
            try:
                with suppress(BrokenPipeError), told:  # who reads finds out what it died of
                    for part in self.listing():
                        check(part)
                        asked = [kind in kinds for kind in part.kinds]
                        wanted.put([*compress(zip(*part, strict=True), asked)])
                        told.writelines(f"{one}\n".encode() for one in compress(part.ids, asked))
                        told.flush()
            finally:
                wanted.put(None)

        command = (self._git_directory, "cat-file", "--batch", "--buffer")
        with ThreadPoolExecutor(1) as beside, open_git_session(*command, is_limited=True) as git:
            asking = beside.submit(ask, git.told)
            while (part := wanted.get()) is not None:
                for kind, one, size in part:
                    yield kind, one, read_object(git.out, kind, one, size)
            asking.result()

    def listing(self) -> Iterator[ObjectListing]:
        """What was unpacked, some at a time."""
        if self._is_listed:
            yield self._found
            return
        found = self._found = ObjectListing([], [], [])
        command = (
            self._git_directory,
            "cat-file",
            "--batch-all-objects",
            "--unordered",
            "--batch-check=%(objecttype) %(objectname) %(objectsize)",
        )
        with open_git_session(*command, is_limited=True) as git:
            git.told.close()
            while lines := git.out.readlines(LISTED_BYTES):
                words = b"".join(lines).decode().split()
                ids = cast("list[ObjectId]", words[1::3])
                part = ObjectListing(words[::3], ids, [*map(int, words[2::3])])
                found.kinds.extend(part.kinds)
                found.ids.extend(part.ids)
                found.sizes.extend(part.sizes)
                yield part
        self._is_listed = True

    def durable_files(self) -> list[Path]:
        """Its pack as files that survive a power cut, the index last: who finds that finds the pack."""
        found = (self.objects / "pack").glob("pack-*")
        files = sorted(found, key=lambda file: file.suffix == ".idx")
        if not self._is_durable:
            try:
                for file in files:
                    sync(file)
            except OSError as error:
                raise unwritable(error) from error
            self._is_durable = True
        return files

    @property
    def _git_directory(self) -> str:
        return f"--git-dir={self._directory}"

    def _unpack(self, pack: bytes) -> None:
        """With one thread: git checks one object at a time, and the other processor is not idle."""
        run_git(
            self._git_directory,
            "-c",
            "core.fsync=none",
            "-c",
            f"core.bigFileThreshold={HELD_BYTES_MAX}",
            "index-pack",
            "--stdin",
            "--fix-thin",
            "--strict",
            "--threads=1",
            f"--max-input-size={BUNDLE_BYTES_MAX}",
            told=pack,
            is_limited=True,
        )


def read_object(out: BinaryIO, kind: str, one: ObjectId, size: int) -> bytes:
    """The next one that `git cat-file --batch` prints."""
    head = f"{one} {kind} {size}\n".encode()
    data = out.read(len(head) + size + 1)
    if len(data) != len(head) + size + 1 or not data.startswith(head):
        raise Unavailable("git cat-file", f"did not print {one} as it listed it")
    return data[len(head) : -1]


def make_git_directory(directory: Path, *, seeing: Sequence[Path]) -> Path:
    """Without objects of its own: it sees those that lie elsewhere, as long as the file is there that this
    returns."""
    elsewhere = directory / "objects" / "info" / "alternates"
    try:
        for name in ("refs", "objects/pack", "objects/info"):
            (directory / name).mkdir(parents=True)
        (directory / "HEAD").write_text("ref: refs/heads/main\n")
        elsewhere.write_text("".join(f"{one}\n" for one in seeing))
    except OSError as error:
        raise unwritable(error) from error
    return elsewhere
