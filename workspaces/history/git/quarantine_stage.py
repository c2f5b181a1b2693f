"""One stage of a quarantine: a separate git directory in which one pack is unpacked, listed and read.

While git unpacks the pack, the directory borrows objects from its alternates if the pack may build on them.
Git copies delta bases from there. Afterwards the directory sees only its own objects.
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
"""Largest file that git holds whole. It holds larger ones a piece at a time."""

LISTED_BYTES = 64 * 1024
"""Bytes of git's listing to read at once: a thousand objects."""

KINDS = ("commit", "tree", "blob")


class ObjectListing(NamedTuple):
    """A listing of objects in three parallel lists. The garbage collector would walk through twenty thousand
    tuples again and again."""

    kinds: list[str]
    ids: list[ObjectId]
    sizes: list[int]


class QuarantineStage:
    """A git directory with the unpacked objects of one untrusted pack."""

    def __init__(self, directory: Path, pack: bytes, *, alternates: Sequence[Path]) -> None:
        """Create the directory, which must not exist yet, and unpack the pack. `alternates` are object
        directories that the pack may build on.

        Raises: Refused when git finds the pack damaged, or an object that it refers to is missing."""
        self._directory = directory
        self._listing = ObjectListing([], [], [])
        self._is_listed = False
        alternates_file = make_git_directory(directory, alternates=alternates)
        try:
            self._unpack(pack)
        except Unavailable as failure:
            shutil.rmtree(directory, ignore_errors=True)
            raise Refused("bundle", "in S3", f"is damaged: {failure.reason}") from failure
        alternates_file.unlink()

    @property
    def objects(self) -> Path:
        return self._directory / "objects"

    def objects_unpacked(self) -> ObjectListing:
        """Return all unpacked objects, in the order in which they are read fastest."""
        for _ in self.listing():
            pass
        return self._listing

    def read(
        self,
        kinds: Collection[str] = KINDS,
        check: Callable[[ObjectListing], None] = lambda _: None,
    ) -> Generator[tuple[str, ObjectId, bytes]]:
        """Yield kind, id and bytes of each object of these kinds, while git lists and unpacks the next ones.
        `check` receives each part of the listing before an object of that part is read. An exception from
        `check` ends the reading. A caller that stops early must close the generator."""
        wanted: SimpleQueue[list[tuple[str, ObjectId, int]] | None] = SimpleQueue()

        def request(stdin: BinaryIO) -> None:
            try:
                with suppress(BrokenPipeError), stdin:  # the reading side reports why git died
                    for part in self.listing():
                        check(part)
                        is_wanted = [kind in kinds for kind in part.kinds]
                        wanted.put([*compress(zip(*part, strict=True), is_wanted)])
                        ids = compress(part.ids, is_wanted)
                        stdin.writelines(f"{one}\n".encode() for one in ids)
                        stdin.flush()
            finally:
                wanted.put(None)

        command = (self._git_directory, "cat-file", "--batch", "--buffer")
        with ThreadPoolExecutor(1) as executor, open_git_session(*command, is_limited=True) as git:
            requesting = executor.submit(request, git.stdin)
            while (part := wanted.get()) is not None:
                for kind, one, size in part:
                    yield kind, one, read_object(git.stdout, kind, one, size)
            requesting.result()

    def listing(self) -> Iterator[ObjectListing]:
        """Yield the unpacked objects, some at a time."""
        if self._is_listed:
            yield self._listing
            return
        listing = self._listing = ObjectListing([], [], [])
        command = (
            self._git_directory,
            "cat-file",
            "--batch-all-objects",
            "--unordered",
            "--batch-check=%(objecttype) %(objectname) %(objectsize)",
        )
        with open_git_session(*command, is_limited=True) as git:
            git.stdin.close()
            while lines := git.stdout.readlines(LISTED_BYTES):
                words = b"".join(lines).decode().split()
                ids = cast("list[ObjectId]", words[1::3])
                part = ObjectListing(words[::3], ids, [*map(int, words[2::3])])
                listing.kinds.extend(part.kinds)
                listing.ids.extend(part.ids)
                listing.sizes.extend(part.sizes)
                yield part
        self._is_listed = True

    def durable_files(self) -> list[Path]:
        """Return the files of the pack after a flush to disk, the index last. A reader that finds the index
        must find the pack."""
        pack_files = (self.objects / "pack").glob("pack-*")
        files = sorted(pack_files, key=lambda file: file.suffix == ".idx")
        try:
            for file in files:
                sync(file)
        except OSError as error:
            raise unwritable(error) from error
        return files

    @property
    def _git_directory(self) -> str:
        return f"--git-dir={self._directory}"

    def _unpack(self, pack: bytes) -> None:
        """Unpack with one thread, because git checks one object at a time."""
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
            stdin=pack,
            is_limited=True,
        )


def read_object(out: BinaryIO, kind: str, one: ObjectId, size: int) -> bytes:
    """Read the next object from the output of `git cat-file --batch`.

    Raises: Unavailable when the output is another object or ends early."""
    head = f"{one} {kind} {size}\n".encode()
    data = out.read(len(head) + size + 1)
    if len(data) != len(head) + size + 1 or not data.startswith(head):
        raise Unavailable("git cat-file", f"did not print {one} as listed")
    return data[len(head) : -1]


def make_git_directory(directory: Path, *, alternates: Sequence[Path]) -> Path:
    """Create a git directory without objects of its own. It borrows those of the `alternates` as long as the
    returned file exists."""
    alternates_file = directory / "objects" / "info" / "alternates"
    try:
        for name in ("refs", "objects/pack", "objects/info"):
            (directory / name).mkdir(parents=True)
        (directory / "HEAD").write_text("ref: refs/heads/main\n")
        alternates_file.write_text("".join(f"{one}\n" for one in alternates))
    except OSError as error:
        raise unwritable(error) from error
    return alternates_file
