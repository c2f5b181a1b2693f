"""A process that writes a history: started by test_power_cut.py, and traced."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from workspaces.clock import ManualClock
from workspaces.history.history import History
from workspaces.paths import WorkspacePath
from workspaces.revision import Author

BY = Author("caller", "usr_2", "api")
DONE = b"done\n"
"""Said each time something was promised to last."""


def record(history: History, files: int, told: bytes = b"a") -> None:
    names = (WorkspacePath(f"{n}.md") for n in range(files))
    history.record({name: b"%s %d\n" % (told, n) for n, name in enumerate(names)}, BY)
    os.write(1, DONE)


def receive(history: History, other: History, files: int) -> None:
    """What another history has, as it comes from another machine."""
    other.record({WorkspacePath(f"{n}.md"): os.urandom(1000) for n in range(files)}, BY)
    tip = other.tip()
    assert tip
    with history.quarantine() as quarantine:
        for _, bundle in other.bundles(tip, []):
            quarantine.take(bundle)
        quarantine.check()
        history.receive(quarantine, tip)
        history.follow(tip, {}, BY)
    os.write(1, DONE)


def work(place: Path, mode: str) -> None:
    history = History.create(place / "h.git", ManualClock())
    match mode:
        case "few":
            record(history, 1)
            record(history, 2, b"b")
        case "some":
            record(history, 40)
        case "many":
            record(history, 100)
        case "packed":
            record(history, 1)
            record(history, 100, b"b")
            history.pack()
            os.write(1, DONE)
        case _:
            other = History.create(place / "other.git", ManualClock())
            receive(history, other, int(mode))


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2])
