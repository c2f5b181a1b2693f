"""What functions compile while the suite runs is tried when it ends, and fails the run.

With workers each tells the one that started them what it has seen, and that one tries it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.hostile.child import tried
from tests.hostile.patterns import Pattern, Recorder

_RECORDER = Recorder(imports=False)
_TOLD = "hostile_patterns"


def pytest_configure(config: pytest.Config) -> None:
    _RECORDER.install()
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_Workers())


class _Workers:
    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        _RECORDER.found.update(dict(getattr(node, "workeroutput", {}).get(_TOLD, ())))


def pytest_sessionfinish(session: pytest.Session) -> None:
    _RECORDER.uninstall()
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output[_TOLD] = list(_RECORDER.found.items())
        return
    slow = slow_among(_RECORDER.patterns())
    if slow:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        session.config.stash[_SLOW] = slow


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for name, why in config.stash.get(_SLOW, {}).items():
        terminalreporter.write_line(f"SLOW EXPRESSION {name}\n    {why}", red=True)


_SLOW = pytest.StashKey[dict[str, str]]()


def slow_among(patterns: list[Pattern]) -> dict[str, str]:
    """Return those that take too long, each with what it is slow with."""
    return (
        {name: why for name, why in tried("recorded", patterns).items() if why} if patterns else {}
    )
