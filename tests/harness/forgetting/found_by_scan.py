"""Run the scan as a process of its own. A process that has a database open loses its locks when it reads the
file as bytes, and others then change what it has mapped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.harness.forgetting import scan


def found_by_scan(phrases: list[str], *places: Path) -> dict[str, list[str]]:
    """Ask the other program for the phrases below some directories."""
    command = [sys.executable, str(Path(scan.__file__)), *map(str, places)]
    done = subprocess.run(
        command, input="\n".join(phrases), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)
