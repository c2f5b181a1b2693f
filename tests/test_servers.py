"""A missing server is never a silent pass."""

from __future__ import annotations

import pytest

from tests.servers import executable


def test_a_missing_server_is_a_skip_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-server is not installed"):
        executable("no-such-server")


def test_a_missing_server_is_an_error_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-server is not installed"):
        executable("no-such-server")
