"""Finding transcripts below directories, with the state that tells whether one has changed.

A person may have thousands. So one look at a directory brings names and states, and no path is taken apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FoundFile:
    path: str
    size: int
    mtime_ns: int

    @property
    def file(self) -> Path:
        return Path(self.path)

    @property
    def name(self) -> str:
        return self.path.rpartition(os.sep)[2]


def found_files(directory: str) -> Iterator[FoundFile]:
    """Yield the files of one directory in the order of their names; none if it cannot be read."""
    for entry in _entries(directory):
        try:
            if entry.is_file():
                stat = entry.stat()
                yield FoundFile(entry.path, stat.st_size, stat.st_mtime_ns)
        except OSError:
            continue  # deleted since


def found_folders(directory: str) -> list[str]:
    """Return the directories in one directory in the order of their names."""
    return [entry.path for entry in _entries(directory) if _is_folder(entry)]


def files_below(directory: str) -> Iterator[FoundFile]:
    """Yield the files of a directory and of all directories below."""
    yield from found_files(directory)
    for folder in found_folders(directory):
        yield from files_below(folder)


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=_name)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name
