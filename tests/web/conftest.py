from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.site import Site


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here reaches a provider, whatever the environment of whoever runs the suite."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "HARNESS_HOME", "HARNESS_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site.open(tmp_path / "home") as opened:
        yield opened
