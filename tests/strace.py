"""System calls seen and made to fail from outside: the program under test is the one that ships."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WAIT_S = 600


@pytest.fixture(scope="session")
def strace() -> str:
    found = shutil.which("strace")
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("strace is missing, and CI does without nothing: apt-get install strace")
    if found is None:
        pytest.skip("strace is not installed: nothing was proven about single system calls")
    return found


def python(*arguments: object) -> list[str]:
    return [sys.executable, *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


def run(*command: object, code: int | None = 0) -> str:
    """What the command printed. Its end is checked unless `code` is None."""
    done = subprocess.run(
        [str(part) for part in command],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert code is None or done.returncode == code, done.stderr
    return done.stdout
