"""The client is tested against a server whose model the test speaks for."""

from __future__ import annotations

from tests.harness.web.conftest import puppet

__all__ = ["puppet"]
