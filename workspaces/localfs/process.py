"""Name this process, and check whether another one still lives.

A name consists of the machine's boot, the pid namespace, the pid and the start time. Containers on one
machine share the boot but not the pids, and pids are reused. Where there is no /proc (macOS), no process is
ever judged dead; then time alone decides.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def this_process() -> str:
    pid = os.getpid()
    return f"{_machine()}/{pid}/{_started(pid)}"


def is_dead(process: str) -> bool:
    """Return True only if the process is certainly dead."""
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
    """Return the start time in clock ticks: field 22, counted after the name, which may contain any
    character."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]
