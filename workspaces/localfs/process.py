"""Who this process is, and whether another one still lives.

A process is named by the machine's boot, its pid namespace, its pid and its start time: containers
on one machine share the boot but not the pids, and pids are used again. Where /proc does not tell
(macOS), nobody is ever judged dead; time alone decides then.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def this_process() -> str:
    pid = os.getpid()
    return f"{_machine()}/{pid}/{_started(pid)}"


def is_dead(process: str) -> bool:
    """True only when it is certain."""
    machine, _, rest = process.rpartition("/")[0].rpartition("/")
    pid, started = rest, process.rpartition("/")[2]
    if not machine or machine != _machine() or not pid.isdigit() or not started:
        return False
    return _started(int(pid)) != started


def _machine() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """The start time in clock ticks: field 22, counted after the name, which may hold anything."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]
