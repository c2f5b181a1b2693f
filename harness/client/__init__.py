"""A client for the HTTP API of a harness, for programs in Python. `Client` is the entry point."""

from harness.client.client import Client
from harness.client.connection import StreamEvent

__all__ = ["Client", "StreamEvent"]
