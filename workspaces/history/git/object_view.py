"""A window: what a revision says of its files, read through a git directory that sees several others.

Git reads them all at once, wherever each of them lies, which takes a tenth of what asking for one after the
other does. Strangers may have written what it reads: nothing is held but what is wanted.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from workspaces.history.git.objects import ObjectId
from workspaces.history.git.program import open_git_session
from workspaces.history.git.quarantine_stage import LISTED_BYTES, make_git_directory, read_object
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId

READ_BYTES_MAX = 256 * 2**20
"""Of all files together. What a small pack unpacks to is for its writer to say."""


class _Listed(NamedTuple):
    path: WorkspacePath
    id: ObjectId
    size: int


class ObjectView:
    def __init__(self, directory: Path, *, seeing: Sequence[Path]) -> None:
        """In a directory that is not there yet."""
        make_git_directory(directory, seeing=seeing)
        self._git_directory = f"--git-dir={directory}"

    def files(
        self, revision: RevisionId, wanted: Collection[WorkspacePath]
    ) -> Generator[tuple[WorkspacePath, bytes]]:
        """As many of these as may be read at once. Unavailable. Close it where it is not gone through to the
        end."""
        files = list(_within_limit(self._listed(revision, wanted)))
        if not files:
            return

        def ask(told: BinaryIO) -> None:
            with suppress(BrokenPipeError), told:  # who reads finds out that it has died
                told.writelines(f"{file.id}\n".encode() for file in files)

        command = (self._git_directory, "cat-file", "--batch", "--buffer")
        with ThreadPoolExecutor(1) as beside, open_git_session(*command, is_limited=True) as git:
            asking = beside.submit(ask, git.told)
            for file in files:
                yield file.path, read_object(git.out, "blob", file.id, file.size)
            asking.result()

    def _listed(self, revision: RevisionId, wanted: Collection[WorkspacePath]) -> Iterator[_Listed]:
        command = (self._git_directory, "ls-tree", "-r", "-l", "-z", "--end-of-options", revision)
        with open_git_session(*command, is_limited=True) as git:
            git.told.close()
            rest = b""
            while part := git.out.read(LISTED_BYTES):
                *lines, rest = (rest + part).split(b"\0")
                for line in lines:
                    about, _, name = line.decode(errors="replace").partition("\t")
                    size = about.rpartition(" ")[2]  # none, where it is damaged
                    if name in wanted and size.isdigit():
                        yield _Listed(WorkspacePath(name), ObjectId(about.split()[2]), int(size))


def _within_limit(files: Iterator[_Listed]) -> Iterator[_Listed]:
    size = 0
    for file in files:
        if size + file.size <= READ_BYTES_MAX:
            size += file.size
            yield file
