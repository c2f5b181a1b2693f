from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.mcp.clients import Place
from tests.harness.web.serving import home_at


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A home with one server for all tests of a module."""
    home = home_at(tmp_path_factory.mktemp("mcp") / "home")
    with home.served() as server:
        yield Place(home, server)
