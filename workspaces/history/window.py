"""A window: what a revision says of its files, read through a git directory that sees several others.

Git reads them all at once, wherever each of them lies, which takes a tenth of what asking for one after the
other does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from workspaces.errors import Unavailable
from workspaces.history.chamber import make_git_directory
from workspaces.history.git import run_git
from workspaces.history.objects import ObjectId
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId

READ_BYTES_MAX = 256 * 2**20
"""Of all files together, since they are held. What a small pack unpacks to is for its writer to say."""

File = tuple[WorkspacePath, ObjectId, int]
"""And its size."""


class Window:
    def __init__(self, directory: Path, *, seeing: Sequence[Path]) -> None:
        """In a directory that is not there yet."""
        make_git_directory(directory, seeing=seeing)
        self._git_directory = f"--git-dir={directory}"

    def files(
        self, revision: RevisionId, wanted: Collection[WorkspacePath]
    ) -> Iterator[tuple[WorkspacePath, bytes]]:
        """As many of these as may be read at once. Unavailable."""
        files = list(_within_limit(self._listed(revision, wanted)))
        command = (self._git_directory, "cat-file", "--batch", "--buffer")
        told = "".join(f"{one}\n" for _, one, _ in files).encode()
        printed = run_git(*command, told=told, is_limited=True) if files else b""
        end = 0
        for path, one, size in files:
            head = f"{one} blob {size}\n".encode()
            begin = end + len(head)
            end = begin + size + 1
            if not printed.startswith(head, begin - len(head)) or end > len(printed):
                raise Unavailable("git cat-file", f"did not print {one} as it listed it")
            yield path, printed[begin : end - 1]

    def _listed(self, revision: RevisionId, wanted: Collection[WorkspacePath]) -> Iterator[File]:
        command = (self._git_directory, "ls-tree", "-r", "-l", "-z", "--end-of-options", revision)
        for line in run_git(*command, is_limited=True).decode().split("\0")[:-1]:
            about, _, path = line.partition("\t")
            _, _, one, size = about.split()
            if path in wanted:
                yield WorkspacePath(path), ObjectId(one), int(size)


def _within_limit(files: Iterator[File]) -> Iterator[File]:
    size = 0
    for file in files:
        if size + file[2] <= READ_BYTES_MAX:
            size += file[2]
            yield file
