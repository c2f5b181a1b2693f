"""What a command of the command line takes from its start to its end, against an interpreter that does
nothing. The byte code is cached, as after an installation."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.ratio import report

ROUNDS = int(os.environ.get("ROUNDS", "15"))

FILES = 20.0
WITH_A_MODEL = 30.0

COMMANDS: dict[str, tuple[list[str], float]] = {
    "path": (["path", "notes"], FILES),
    "ls": (["ls", "notes"], FILES),
    "cat": (["cat", "notes", "MEMORY.md"], FILES),
    "log": (["log", "notes"], FILES),
    "write": (["write", "notes", "a.md"], FILES),
    "recall": (["recall", "deploy"], FILES),
    "prompt": (["prompt"], FILES),
    "run, demo model": (["run", "hello"], WITH_A_MODEL),
}

LIBRARIES: dict[str, str] = {
    "typer and yaml": "import typer, yaml",
    "… and pydantic, jinja2, asyncio": "import typer, yaml, pydantic, jinja2, asyncio, httpx2",
}
"""What the commands need: a floor for their ratios."""


def main() -> None:
    with TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        names = [*COMMANDS, *LIBRARIES]
        times: dict[str, list[float]] = {name: [] for name in ["", *names]}
        for command, _ in COMMANDS.values():
            _run(_ours(home, command))  # makes the home, and the byte code
        for _ in range(ROUNDS):
            for name in ["", *names]:
                begin = time.perf_counter()
                _run(_line(name, home))
                times[name].append(time.perf_counter() - begin)
    bare = median(times[""])
    print(f"  python -c pass: {1000 * bare:.1f} ms")
    for name in names:
        goal = COMMANDS[name][1] if name in COMMANDS else None
        kind = f"harness {name}" if name in COMMANDS else f"importing {name}"
        report(f"{kind}: python -c pass", median(times[name]), bare, at_most=goal)


def _line(name: str, home: Path) -> list[str]:
    if name in COMMANDS:
        return _ours(home, COMMANDS[name][0])
    return [sys.executable, "-c", LIBRARIES.get(name, "pass")]


def _ours(home: Path, command: list[str]) -> list[str]:
    return [sys.executable, "-m", "harness.cli.app", "--home", str(home), *command]


def _run(line: list[str]) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HARNESS_", "ANTHROPIC_", "PYTHONDONTWRITE"))
    }
    subprocess.run(line, input=b"text\n", capture_output=True, env=environment, check=True)


if __name__ == "__main__":
    main()
