"""A missing test server is a named skip, and an error in CI."""

from __future__ import annotations

import pytest

from tests.servers import executable


def test_a_missing_server_skips_the_test_with_the_servers_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-server is not installed"):
        executable("no-such-server")


def test_a_missing_server_fails_the_test_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-server is not installed"):
        executable("no-such-server")
