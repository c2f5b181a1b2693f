"""Several homes that share records and S3, as machines do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.sandboxes.none import NoSandbox
from tests.servers import BUCKET, S3Server
from workspaces.ids import new_id

Open = Callable[..., Harness]


@pytest.fixture
def prefix(tmp_path: Path, seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    prefix = new_id("test")
    monkeypatch.setenv("HARNESS_S3", f"s3://{BUCKET}/{prefix}")
    monkeypatch.setenv("HARNESS_RECORDS", f"sqlite:{tmp_path}/records.db")
    return prefix


@pytest.fixture
def opened(tmp_path: Path, prefix: str) -> Iterator[Open]:
    """A home by its name."""
    machines: list[Harness] = []

    def open_machine(name: str, **more: Any) -> Harness:
        machines.append(Harness.open(tmp_path / name, sandbox=NoSandbox("not here"), **more))
        return machines[-1]

    yield open_machine
    for machine in machines:
        machine.close()
