"""The `harness` command, killed with SIGKILL right before its n-th write: to the records, to the place, or
of a name in the file system. Run as `python -m tests.harness.cli.killed N …`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def mortal(call: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def dying(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)

    return dying


def main() -> None:
    from harness.cli.app import main as command
    from workspaces.storage.s3.blobs import S3Blobs
    from workspaces.storage.sqlite import SqliteRecords

    left = [int(sys.argv.pop(1))]
    for owner, name in (
        (SqliteRecords, "write"),
        (S3Blobs, "write"),
        (S3Blobs, "delete"),
        (Path, "rename"),
        (Path, "replace"),
        (Path, "mkdir"),
    ):
        setattr(owner, name, mortal(getattr(owner, name), left))
    command()


if __name__ == "__main__":
    main()
