from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.disk import small_disk, tiny_disk
from tests.harness.messages_server import MessagesServer, serving
from tests.postgres_server import postgres, postgres_address
from tests.servers import moto_s3, rclone_s3, seaweedfs, versioned

pytest_plugins = ("tests.hostile.plugin",)

__all__ = [
    "moto_s3",
    "postgres",
    "postgres_address",
    "rclone_s3",
    "running_server",
    "seaweedfs",
    "server",
    "small_disk",
    "tiny_disk",
    "versioned",
]


@pytest.fixture(scope="session")
def running_server() -> Generator[MessagesServer]:
    with serving() as server:
        yield server


@pytest.fixture
def server(running_server: MessagesServer) -> Generator[MessagesServer]:
    """The provider, for one test: everything it was asked must keep the provider's rules."""
    running_server.forget()
    yield running_server
    assert not running_server.broken_rules
    assert not running_server.left_unsaid
