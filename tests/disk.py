"""Small file systems that a test can fill or make read-only, where this process may mount one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of 1 MB."""
    with mounted(tmp_path / "disk", "1m") as place:
        yield place


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of 24 MB, which has room for a home with something in it."""
    with mounted(tmp_path / "disk", "24m") as place:
        yield place


@contextmanager
def mounted(place: Path, size: str) -> Generator[Path]:
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here: nothing was proven about full disks")
    try:
        yield place
    finally:  # what is open may be closed later
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def read_only(disk: Path, place: Path) -> Generator[Path]:
    """Show a file system at another place, where nobody can write it."""
    place.mkdir()
    subprocess.run(["mount", "--bind", str(disk), str(place)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(file: Path) -> None:
    """Write into the file until its disk is full."""
    with suppress(OSError), file.open("wb", buffering=0) as filler:
        while filler.write(b"x" * 4096):
            pass
