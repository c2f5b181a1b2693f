"""A backup of a home, against `tar` of the same files; and a second one, of which nothing has changed.

Both write to the same disk and flush what they wrote. `tar` reads everything each time, knows no
records in use, and makes no hash.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.ratio import report
from harness import Harness
from harness.backup.create import create
from harness.backup.reader import YOUNG_S
from harness.sandboxes.none import NoSandbox

FILES = int(os.environ.get("FILES", "2000"))
REVISIONS = 100
ATTACHED_BYTES = 100 * 2**20
ROUNDS = int(os.environ.get("ROUNDS", "5"))


def main() -> None:
    with TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        _fill(home)
        time.sleep(YOUNG_S + 0.1)
        place, archive = Path(directory) / "backups", Path(directory) / "home.tar"
        first, second, packed = list[float](), list[float](), list[float]()
        for _ in range(ROUNDS):
            shutil.rmtree(place, ignore_errors=True)
            first.append(_seconds(lambda: create(home, str(place))))
            second.append(_seconds(lambda: create(home, str(place))))
            packed.append(_seconds(lambda: _tar(home, archive)))
        print(f"  {FILES} files, {REVISIONS} revisions, {ATTACHED_BYTES // 2**20} MiB attached")
        print(
            f"  first {median(first):.2f} s, second {median(second):.3f} s, tar {median(packed):.2f} s"
        )
        report(
            "second backup, nothing changed: the first", median(second), median(first), at_most=0.1
        )
        report("first backup: `tar` and flush", median(first), median(packed), at_most=None)


def _fill(home: Path) -> None:
    with Harness.open(home, sandbox=NoSandbox("not here")) as harness:
        notes, by = harness.workspaces.get("notes"), harness.rooms.principal.author("api")
        for number in range(FILES):
            file = notes.root / f"notes/{number % 50}/{number}.md"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"# {number}\n\n" + f"- fact {number}\n" * 40)
        for number in range(ATTACHED_BYTES // 2**20):  # no piece is like another
            (notes.root / f"{number}.bin").write_bytes(os.urandom(2**20))
        notes.edits.commit()
        for number in range(REVISIONS):
            notes.write("MEMORY.md", f"- {number}\n".encode(), by=by)


def _tar(home: Path, archive: Path) -> None:
    archive.unlink(missing_ok=True)
    subprocess.run(["tar", "-cf", archive, "-C", home, "."], check=True)
    with archive.open() as written:
        os.fsync(written.fileno())


def _seconds(do: Callable[[], object]) -> float:
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
