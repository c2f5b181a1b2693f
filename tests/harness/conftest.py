from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import Harness
from harness.models.scripted import ScriptedModel, ScriptedReply
from harness.sandboxes.none import NoSandbox


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here reaches a provider, whatever the environment of whoever runs the suite."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "HARNESS_HOME", "HARNESS_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def harness(home: Path) -> Iterator[Harness]:
    """With the demo model, and without bash, wherever the suite runs."""
    with Harness.open(home, sandbox=NoSandbox("not in this test")) as opened:
        yield opened


@pytest.fixture
def scripted(home: Path) -> Iterator[Callable[..., tuple[Harness, ScriptedModel]]]:
    """A harness whose every agent is answered by these lines."""
    opened: list[Harness] = []

    def open_with(*lines: ScriptedReply) -> tuple[Harness, ScriptedModel]:
        model = ScriptedModel(*lines)
        opened.append(Harness.open(home, model=model, sandbox=NoSandbox("not in this test")))
        return opened[-1], model

    yield open_with
    for one in opened:
        one.close()
