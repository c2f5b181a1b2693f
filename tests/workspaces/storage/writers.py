"""Processes that write records."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.strace import ROOT, WAIT_S, environment, python

WRITER = Path(__file__).parent / "record_writer.py"


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        python(WRITER, *arguments), env=environment(), cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=WAIT_S)
    return process.returncode, output
