"""The tests that do more under SOAK=1, each for its share of the time.

A test function is run in a process of its own, so that one of them can be ended at its time. They are run
in a random order: what one soak has no time for, another has.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parent.parent.parent
SHARE_S_MIN = 30.0
"""A shorter one is gone before the first example."""
INTERRUPTED_S_MAX = 20.0
"""How long pytest may take to clean up."""
TAIL_LINES = 60

Verdict = Literal["passed", "failed", "cut"]

_NOTHING_RUN = 5
_PYTEST = (sys.executable, "-m", "pytest", "-p", "no:xdist")


@dataclass(frozen=True, slots=True)
class Ran:
    name: str
    verdict: Verdict
    seconds: float
    said: str


def functions() -> list[str]:
    """Return the test functions of all files that read SOAK, themselves or by `tests.machines.BOUNDED`."""
    files = [
        str(path)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if re.search(r"\b(?:SOAK|BOUNDED)\b", path.read_text())
    ]
    listed = subprocess.run(
        [*_PYTEST, "--collect-only", "-q", "-o", "addopts=--import-mode=importlib", *files],
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    names = (line.partition("[")[0] for line in listed.stdout.splitlines() if "::" in line)
    return list(dict.fromkeys(names))


def run(names: Sequence[str], minutes: float, stop: threading.Event) -> list[Ran]:
    """Run them in a random order until the time is up, and return those that were begun."""
    workers = max(1, (os.cpu_count() or 1) - 1)
    """The server that is watched needs one, too."""
    left = random.sample(names, len(names))
    end = time.monotonic() + minutes * 60
    lock = threading.Lock()
    ran: list[Ran] = []

    def work() -> None:
        while not stop.is_set():
            with lock:
                left_s = end - time.monotonic()
                if not left or left_s <= 0:
                    return
                share_s = max(SHARE_S_MIN, left_s * workers / len(left))
                name = left.pop()
            one = run_one(name, min(share_s, left_s), stop)
            with lock:
                ran.append(one)
            print(f"{one.verdict:6} {one.seconds:6.0f} s  {name}", flush=True)

    with ThreadPoolExecutor(workers) as pool:
        for worker in [pool.submit(work) for _ in range(workers)]:
            worker.result()
    return ran


def run_one(name: str, seconds: float, stop: threading.Event) -> Ran:
    """Run one test function, and interrupt it when its time is up."""
    begun = time.monotonic()
    verdict: Verdict
    process = subprocess.Popen(
        [*_PYTEST, "-x", name],
        cwd=ROOT,
        env=_environment(SOAK="1"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    )
    try:
        said = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        # with -x it has not failed so far; what an interruption brings about is no failure
        said, verdict = _interrupted(process), "cut"
    else:
        verdict = "passed" if process.returncode in {0, _NOTHING_RUN} else "failed"
    finally:
        _kill(process)
    return Ran(name, "cut" if stop.is_set() else verdict, time.monotonic() - begun, said)


def lines(names: Sequence[str], ran: Sequence[Ran]) -> list[str]:
    """Return the summary: how many ended how, and what the failed ones said."""
    counts = dict.fromkeys(("passed", "failed", "cut"), 0)
    for one in ran:
        counts[one.verdict] += 1
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    head = f"tests: {told}, {len(names) - len(ran)} not begun, of {len(names)} functions"
    failed = (one for one in ran if one.verdict == "failed")
    return [head, *(line for one in failed for line in _tail(one))]


def _tail(one: Ran) -> list[str]:
    return [f"  failed: {one.name}", *(f"    {x}" for x in one.said.splitlines()[-TAIL_LINES:])]


def _interrupted(process: subprocess.Popen[str]) -> str:
    """Ask pytest to end, as Ctrl-C does, so that it ends what it has started."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=INTERRUPTED_S_MAX)[0]
    except subprocess.TimeoutExpired:
        _kill(process)
        return process.communicate()[0]


def _kill(process: subprocess.Popen[str]) -> None:
    """End what is left of it, and the servers that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _environment(**variables: str) -> dict[str, str]:
    return {**os.environ, **variables}
