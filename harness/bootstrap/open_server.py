"""The mark of a server without keys, so that `harness doctor` can say that one runs.

The server holds a shared lock on the file as long as it lives. The file has its address.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager

from workspaces.home.layout import Home

ADDRESS_BYTES_MAX = 300


@contextmanager
def marked_open(home: Home, address: str) -> Generator[None]:
    """Mark this process as a server without keys at an address."""
    descriptor = os.open(home.open_server, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, address.encode()[:ADDRESS_BYTES_MAX], 0)
        yield
    finally:
        os.close(descriptor)


def open_server(home: Home) -> str | None:
    """Return the address of a server without keys that runs now, or None."""
    try:
        descriptor = os.open(home.open_server, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, ADDRESS_BYTES_MAX, 0).decode(errors="replace")
    finally:
        os.close(descriptor)
    return None
