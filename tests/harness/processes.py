"""Starting account_writer.py, several at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.strace import ROOT, WAIT_S, environment

WRITER = Path(__file__).parent / "account_writer.py"


def started(file: Path, account_id: str, mode: str, times: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WRITER), str(file), account_id, mode, str(times)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


def ended(writer: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = writer.communicate(timeout=WAIT_S)
    return writer.returncode, out
