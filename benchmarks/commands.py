"""What a command of the command line takes from its start to its end, against an interpreter that does
nothing, and against one that only imports the libraries that the command needs.

Both by processor time, and the least of several rounds: what else the machine does cannot make a command
quicker. The byte code is cached, as after an installation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory

from benchmarks.ratio import report

ROUNDS = int(os.environ.get("ROUNDS", "15"))

FILES = 20.0
WITH_A_MODEL = 30.0
OVER_LIBRARIES = 1.3
"""The goal for a command that misses its first one: times its libraries alone."""

MODEL = "from pydantic import BaseModel; type('Model', (BaseModel,), {})"
"""A bare `import pydantic` imports little. What it needs for a model, it imports at the first one."""

ON_FILES = "import typer, sqlite3, subprocess"
WHOLE = f"import typer, sqlite3, subprocess, yaml, jinja2, asyncio; {MODEL}"

COMMANDS: dict[str, tuple[list[str], float, str]] = {
    "path": (["path", "notes"], FILES, ON_FILES),
    "ls": (["ls", "notes"], FILES, ON_FILES),
    "ls, all workspaces": (["ls"], FILES, ON_FILES),
    "workspace list": (["workspace", "list"], FILES, ON_FILES),
    "cat": (["cat", "notes", "MEMORY.md"], FILES, ON_FILES),
    "log": (["log", "notes"], FILES, ON_FILES),
    "write": (["write", "notes", "a.md"], FILES, ON_FILES),
    "recall": (["recall", "deploy"], FILES, ON_FILES),
    "prompt --hook, no news": (["prompt", "--hook", "plans"], FILES, ON_FILES),
    "prompt of a workspace": (["prompt", "notes"], FILES, WHOLE),
    "prompt": (["prompt"], FILES, WHOLE),
    "run, demo model": (["run", "hello"], WITH_A_MODEL, WHOLE),
    "approve --show": (["approve", "c1", "--show"], WITH_A_MODEL, WHOLE),
    "status": (["status"], WITH_A_MODEL, WHOLE),
    "memory add": (["memory", "add", "drink", "tea", "-w", "notes"], WITH_A_MODEL, WHOLE),
}

INPUT = json.dumps({"hook_event_name": "UserPromptSubmit", "session_id": "s1"}).encode()
"""What a program writes to its hook. To other commands it is a text."""


def main() -> None:
    with TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        for command in (["workspace", "create", "plans"], ["run", "hello", "-c", "c1"]):
            _seconds(_ours(home, command))
        lines = {name: _ours(home, command) for name, (command, _, _) in COMMANDS.items()}
        for code in ("pass", ON_FILES, WHOLE):
            lines[code] = [sys.executable, "-c", code]
        for line in lines.values():
            _seconds(line)  # makes the byte code, and tells the hook's session of the memory
        rounds = [{name: _seconds(line) for name, line in lines.items()} for _ in range(ROUNDS)]
    least = {name: min(one[name] for one in rounds) for name in lines}
    print(f"  python -c pass: {1000 * least['pass']:.1f} ms of processor time")
    for code in (ON_FILES, WHOLE):
        report(
            f"importing {_shown(code)}: python -c pass", least[code], least["pass"], at_most=None
        )
    for name, (_, goal, libraries) in COMMANDS.items():
        report(f"harness {name}: python -c pass", least[name], least["pass"], at_most=goal)
        over = None if least[name] <= goal * least["pass"] else OVER_LIBRARIES
        report("  … its libraries", least[name], least[libraries], at_most=over)


def _shown(code: str) -> str:
    return code.removeprefix("import ").replace(f"; {MODEL}", ", pydantic")


def _ours(home: Path, command: list[str]) -> list[str]:
    return [sys.executable, "-m", "harness.cli.app", "--home", str(home), *command]


def _seconds(line: list[str]) -> float:
    """Run a program to its end. Return the processor time that it and its programs took."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HARNESS_", "ANTHROPIC_", "PYTHONDONTWRITE"))
    }
    before = getrusage(RUSAGE_CHILDREN)
    done = subprocess.run(line, input=INPUT, capture_output=True, env=environment, check=False)
    if "approve" not in line:  # it ends with 1, because no call waits
        done.check_returncode()
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
