"""The `harness` command, killed with SIGKILL right before its n-th write: to the records, to the place, or
of a name in the file system. Run as `python -m tests.harness.cli.killed N …`.

With `--steps`, before N, every flush, move and removal of a file and every start of git counts, too. A
command that ends says on standard error how many there were.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Owner = tuple[Any, str]


class Deaths:
    def __init__(self, left: int) -> None:
        self.left = left
        self.counted = 0

    def mortal(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def dying(*arguments: Any, **named: Any) -> Any:
            self.counted += 1
            if self.counted > self.left:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return dying


def writes() -> list[Owner]:
    from workspaces.storage.s3.blobs import S3Blobs
    from workspaces.storage.sqlite import SqliteRecords

    return [
        (SqliteRecords, "write"),
        (S3Blobs, "write"),
        (S3Blobs, "delete"),
        (Path, "rename"),
        (Path, "replace"),
        (Path, "mkdir"),
    ]


def steps() -> list[Owner]:
    from workspaces.localfs.staging import Staging
    from workspaces.storage.s3.blobs import S3Blobs

    of_files = ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir", "ftruncate")
    moves = ("exchange", "enter", "take", "replace")
    return [
        *writes()[:3],
        (S3Blobs, "_erase_version"),
        (subprocess.Popen, "__init__"),
        *((os, name) for name in of_files),
        *((Staging, name) for name in moves),
    ]


def main() -> None:
    from harness.cli.app import main as command

    has_steps = sys.argv[1] == "--steps"
    if has_steps:
        del sys.argv[1]
    deaths = Deaths(int(sys.argv.pop(1)))
    for owner, name in steps() if has_steps else writes():
        setattr(owner, name, deaths.mortal(getattr(owner, name)))
    try:
        command()
    finally:
        if has_steps:
            sys.stderr.write(f"steps: {deaths.counted}\n")


if __name__ == "__main__":
    main()
