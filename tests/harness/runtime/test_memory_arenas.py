from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.runtime.memory_arenas import ARENAS_MAX

ARENAS = """
import ctypes, sys, threading
from harness.runtime.memory_arenas import bound_arenas
if sys.argv[2] == "bound":
    assert bound_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.fopen.restype = ctypes.c_void_p
gate = threading.Barrier(9)
def allocate():
    gate.wait()
    for _ in range(1000):
        libc.malloc(100)
    gate.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
gate.wait()
gate.wait()
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def arenas(tmp_path: Path, how: str) -> int:
    """How many arenas the C library has in a process with eight threads."""
    file = tmp_path / how
    root = str(Path(__file__).parents[3])
    subprocess.run([sys.executable, "-c", ARENAS, str(file), how], cwd=root, check=True, timeout=60)
    return len(re.findall(r"<heap nr=", file.read_text()))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_a_process_with_many_threads_has_two_arenas(tmp_path: Path) -> None:
    assert arenas(tmp_path, "bound") <= ARENAS_MAX
    assert arenas(tmp_path, "default") > ARENAS_MAX
