"""A real browser, one process for these tests, and a home that is served to it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.harness.web.pages.browser.stage import Stage

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = ["--disable-dev-shm-usage", "--disable-gpu"]


@pytest.fixture(scope="package")  # its loop runs in this thread: other tests must not see it
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage.open(tmp_path / "home") as opened:
        yield opened
