"""A file system of 1 MB that a test can fill, where this process may mount one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Generator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)  # what is open may be closed later


def fill(file: Path) -> None:
    """Write into the file until its disk is full."""
    with suppress(OSError), file.open("wb", buffering=0) as filler:
        while filler.write(b"x" * 4096):
            pass
