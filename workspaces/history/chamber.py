"""A chamber of a quarantine: a git directory of its own, in which one pack is unpacked, listed and read.

While it is unpacked it sees what lies elsewhere, if it may build on that; bases of deltas that lie there are
brought in. From then on it sees nothing but itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import NamedTuple, cast

from workspaces.errors import Refused, Unavailable
from workspaces.history.bundle import BUNDLE_BYTES_MAX
from workspaces.history.git import reading_git, run_git
from workspaces.history.objects import ObjectId, sync, unwritable

HELD_BYTES_MAX = 32 * 2**20
"""Of one file: of larger ones git holds a piece at a time."""

KINDS = ("commit", "tree", "blob")


class Found(NamedTuple):
    """Of each object the same place in three lists: twenty thousand tuples would be walked through by the
    garbage collector, again and again."""

    kinds: list[str]
    ids: list[ObjectId]
    sizes: list[int]


class Chamber:
    def __init__(self, directory: Path, pack: bytes, *, seeing: Sequence[Path]) -> None:
        """In a directory that is not there yet. `seeing`: where objects lie that the pack may build on.
        Refused when git finds it damaged, or leading to what is nowhere."""
        self._directory = directory
        self._found: Found | None = None
        self._is_durable = False
        elsewhere = self.objects / "info" / "alternates"
        try:
            for name in ("refs", "objects/pack", "objects/info"):
                (directory / name).mkdir(parents=True)
            (directory / "HEAD").write_text("ref: refs/heads/main\n")
            elsewhere.write_text("".join(f"{one}\n" for one in seeing))
        except OSError as error:
            raise unwritable(error) from error
        try:
            self._unpack(pack)
        except Unavailable as failure:
            shutil.rmtree(directory, ignore_errors=True)
            raise Refused("bundle", "in S3", f"is not good: {failure.reason}") from failure
        elsewhere.unlink()

    @property
    def objects(self) -> Path:
        return self._directory / "objects"

    def found(self) -> Found:
        """What was unpacked, in the order in which it is read fastest."""
        if self._found is None:
            out = run_git(
                self._git_directory,
                "cat-file",
                "--batch-all-objects",
                "--unordered",
                "--batch-check=%(objecttype) %(objectname) %(objectsize)",
                is_limited=True,
            )
            words = out.decode().split()
            ids = cast("list[ObjectId]", words[1::3])
            self._found = Found(words[::3], ids, [*map(int, words[2::3])])
        return self._found

    def read(self, kinds: Collection[str] = KINDS) -> Iterator[tuple[str, ObjectId, bytes]]:
        """Kind, id and bytes of each of these kinds, while git unpacks the next ones."""
        found = self.found()
        wanted = [kind in kinds for kind in found.kinds]
        told = "".join(f"{one}\n" for one in compress(found.ids, wanted)).encode()
        command = (self._git_directory, "cat-file", "--batch", "--buffer")
        with reading_git(*command, told=told, is_limited=True) as out:
            for kind, one, size in compress(zip(*found, strict=True), wanted):
                head, data = out.readline(), out.read(size + 1)
                if not head.endswith(b" %d\n" % size) or len(data) <= size:
                    raise Unavailable("git cat-file", f"did not print {one} as it listed it")
                yield kind, one, data[:-1]

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
