from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.cli.terminal import Terminal
from tests.harness.messages_server import KEY, MessagesServer


@pytest.fixture
def harness(tmp_path: Path) -> Terminal:
    """On a home that is not there yet."""
    return Terminal(tmp_path / "home", {})


@pytest.fixture
def born(harness: Terminal) -> Terminal:
    """On a home that is there already, so that commands may run side by side."""
    harness("ls", "notes").done()
    return harness


@pytest.fixture
def asking(born: Terminal, server: MessagesServer) -> Terminal:
    """With the provider's model."""
    variables = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}
    return Terminal(born.home, variables)
