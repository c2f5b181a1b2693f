"""What the command line costs before it does anything."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.ratio import compare, report


def main() -> None:
    bare = [sys.executable, "-c", "0"]
    show_help = [sys.executable, "-m", "harness.cli.app", "--help"]

    def run(command: list[str]) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    ours, peer = compare(lambda: run(show_help), lambda: run(bare), rounds=30)
    report("harness --help / python -c 0", ours, peer, at_most=15)


if __name__ == "__main__":
    main()
