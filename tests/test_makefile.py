"""The commands of the Makefile, as make would run them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((), '--port "8642" --open'),
        (("PORT=9000",), '--port "9000" --open'),
        (("OPEN=no",), '--port "8642"'),
    ],
)
def test_make_run_serves_the_home_at_the_port_that_it_is_given_and_opens_a_browser(
    arguments: tuple[str, ...], options: str
) -> None:
    command = [
        "make",
        "--no-print-directory",
        "--dry-run",
        "--assume-old=.venv/.installed",
        "run",
        *arguments,
    ]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1].rstrip().endswith(f"/harness up {options}")
