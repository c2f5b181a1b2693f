"""The HTTP client: a home that somebody serves, for programs in Python. `Client` is all there is to know."""

from harness.client.client import Client
from harness.client.connection import StreamEvent

__all__ = ["Client", "StreamEvent"]
