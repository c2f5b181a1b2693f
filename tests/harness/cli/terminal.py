"""The command line as a person or a program calls it: a process of its own, on a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "harness.cli.app")
COMMAND_S_MAX = 300.0
AT_ONCE = 4


@dataclass(frozen=True)
class Ended:
    arguments: tuple[str | bytes, ...]
    code: int
    stdout: bytes
    stderr: str

    @property
    def out(self) -> str:
        return self.stdout.decode()

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document and nothing else."""
        return json.loads(self.out)

    def done(self) -> Ended:
        assert self.code == 0, self
        return self

    def refused(self, *words: str) -> Ended:
        """Exit code 1, nothing but sentences on standard error, these words among them."""
        assert self.code == 1, self
        assert self.stderr.startswith("error (") or "\nerror (" in self.stderr, self
        for word in words:
            assert word in self.stderr, self
        return self


@dataclass(frozen=True)
class Terminal:
    home: Path
    variables: Mapping[str, str]

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANTHROPIC_", "HARNESS_", "PYTHON", "GIT_"))
        }
        own = {"HARNESS_HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        # a terminal's streams: what is no text cannot be written to them unnoticed
        return {**kept, **own, "PYTHONIOENCODING": "utf-8:strict", **self.variables, **variables}

    def __call__(self, *arguments: str | bytes, stdin: bytes = b"", **variables: str) -> Ended:
        ended = subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            env=self.environment(**variables),
            timeout=COMMAND_S_MAX,
            check=False,
        )
        return Ended(arguments, ended.returncode, ended.stdout, told(ended.stderr))

    def all(self, *commands: Sequence[str | bytes], **variables: str) -> list[Ended]:
        """Commands that do not need each other, several at once."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda command: self(*command, **variables), commands))

    def shell(self, script: str, **variables: str) -> Ended:
        """A bash script in which `harness` is the command; its own exit code is bash's."""
        quoted = " ".join(f"'{part}'" for part in COMMAND)
        ended = subprocess.run(
            ["bash", "-c", f'set -o pipefail; harness() {{ {quoted} "$@"; }}; {script}'],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=self.environment(**variables),
            timeout=COMMAND_S_MAX,
            check=False,
        )
        return Ended((script,), ended.returncode, ended.stdout, told(ended.stderr))


def told(stderr: bytes) -> str:
    text = stderr.decode(errors="replace")
    assert "Traceback" not in text, text
    assert "Exception ignored" not in text, text
    assert "error (bug)" not in text, text
    return text
