from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.web.app import ServerTimeouts
from tests.harness.web.site import Caller, Site
from tests.harness.web.turning import Puppet


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here reaches a provider, whatever the environment of whoever runs the suite."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "HARNESS_HOME", "HARNESS_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site.open(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def puppet() -> Puppet:
    return Puppet()


@pytest.fixture
def spoken(tmp_path: Path, puppet: Puppet) -> Iterator[Site]:
    """Whose every agent says what the puppet is told to."""
    with Site.open(tmp_path / "home", model=puppet, patience=ServerTimeouts(turns_s=0)) as opened:
        yield opened


@pytest.fixture
def acme(spoken: Site) -> Caller:
    """With an agent that the puppet speaks for."""
    acme = spoken.account("acme")
    acme.agent()
    return acme
