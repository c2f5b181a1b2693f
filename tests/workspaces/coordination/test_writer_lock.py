"""The writer lock, among the threads of one process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from workspaces.coordination.wait_hook import when_waiting
from workspaces.coordination.writer_lock import WriterLock, _first_thread
from workspaces.errors import WorkspaceBusy

WAIT_S = 30.0


def opened_here(file: Path) -> int:
    """Return how often this process has the file open."""
    found = 0
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # it was what lists them
            found += fd.readlink() == file
    return found


def test_only_a_single_waiting_thread_opens_the_files_of_the_writer_lock(tmp_path: Path) -> None:
    file, queue = tmp_path / "w.lock", tmp_path / "w.queue"
    has_to_wait = threading.Semaphore(0)
    written: list[int] = []

    @contextmanager
    def counted() -> Iterator[bool]:
        has_to_wait.release()
        yield True

    def write(number: int) -> None:
        when_waiting(counted)
        with WriterLock(file).hold(f"writer {number}", wait_s=WAIT_S):
            written.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
    with WriterLock(file).hold("the test"):
        for thread in threads:
            thread.start()
            assert has_to_wait.acquire(timeout=WAIT_S)
        assert (opened_here(file), opened_here(queue)) == (2, 1)
        assert written == []
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(written) == list(range(20))
    assert (opened_here(file), opened_here(queue)) == (0, 0)


def test_a_writer_that_may_not_wait_fails_at_once_naming_the_lock_holder(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path / "w.lock")
    failed: list[WorkspaceBusy] = []

    @contextmanager
    def refused() -> Iterator[bool]:
        yield False

    def write() -> None:
        when_waiting(refused)
        with pytest.raises(WorkspaceBusy) as caught, lock.hold("impatient", wait_s=2 * WAIT_S):
            pytest.fail("it has the lock")
        failed.append(caught.value)

    with lock.hold("the test"):
        thread = threading.Thread(target=write)
        thread.start()
        thread.join(WAIT_S)
    assert [(busy.holder, busy.process) for busy in failed] == [("the test", os.getpid())]


def test_a_forked_child_does_not_wait_for_a_writer_thread_of_its_parent(tmp_path: Path) -> None:
    file = tmp_path / "w.lock"
    with _first_thread(file, time.monotonic()) as is_first:
        assert is_first
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with _first_thread(file, time.monotonic()) as is_first_in_child:
                    code = 0 if is_first_in_child else 1
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
