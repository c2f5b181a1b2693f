"""A process that writes to a home as fast as it can, and prints the number of each write that was kept.

python -m tests.harness.backup.busy_home HOME
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from harness import Harness
from harness.sandboxes.none import NoSandbox

LARGE = "tea " * 10_000
"""An event of 40 000 characters, which is kept beside the records until it is answered."""


def main() -> None:
    with Harness.open(Path(sys.argv[1]), sandbox=NoSandbox("not here")) as harness:
        threading.Thread(target=_talk, args=(harness,), daemon=True).start()
        workspace = harness.workspaces.open_or_create("busy")
        by = harness.rooms.principal.author("api")
        number = 0
        while True:
            workspace.write(f"{number % 200:03}.md", f"{number}\n".encode(), by=by)
            print(number, flush=True)
            number += 1


def _talk(harness: Harness) -> None:
    number = 0
    while True:
        harness.run(f"{LARGE}{number}", conversation=f"c{number % 5}")
        number += 1


if __name__ == "__main__":
    main()
