"""The HTTP client: a home that somebody serves, for programs in Python. `Client` is all there is to know."""

from harness.client.client import Client as Client
from harness.client.connection import Told as Told

__all__ = ["Client", "Told"]
